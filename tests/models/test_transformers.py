"""Networks of Hugging Face transformers, small and random: converted, run, measured, saved, and loaded without it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import spikecast
from spikecast import Config, SpikingNetwork, measure
from tests.nets import relative

tr: Any = transformers  # its configurations take more than their types say
QUICK = Config(num_steps=2, burst=1, thresholds="quantile")
WORDS, LENGTH = 50, 7
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BLOCKS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
TEXT = {**BLOCKS, "vocab_size": WORDS, "max_position_embeddings": 32}
CAUSAL = {**TEXT, **ENDS, "num_key_value_heads": 1}
VISION = {**BLOCKS, "image_size": 32, "patch_size": 8, "num_labels": 4}
T5 = {"vocab_size": WORDS, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
GPT2 = {"vocab_size": WORDS, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2, **ENDS}
WHISPER = {
    "num_mel_bins": 8, "d_model": 16, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 24,
    "max_source_positions": 10,
}  # fmt: skip
SWIN = {"image_size": 32, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4, "num_labels": 4}
SEGFORMER = {
    "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16], "patch_sizes": [7, 3],
    "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 16, "num_labels": 4,
}  # fmt: skip
BACKBONE = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
DETR = {
    "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "num_queries": 5, "d_model": 16,
    "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "num_labels": 4,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2,
}  # fmt: skip
DINO = {"image_size": 32, "patch_size": 8, "mlp_ratio": 2, "num_labels": 4}


def tokens() -> Tensor:
    return torch.randint(5, WORDS, (3, LENGTH))


def text() -> dict[str, Tensor]:
    """Three texts, two of which end early."""
    mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [LENGTH - 2], [LENGTH - 3]])
    return {"input_ids": tokens(), "attention_mask": mask.long()}


def image() -> dict[str, Tensor]:
    return {"pixel_values": torch.rand(3, 3, 32, 32)}


def sound() -> dict[str, Tensor]:
    return {"input_features": torch.randn(3, 8, 20)}


Batch = Callable[[], dict[str, Tensor]]
# name: (class of the model, its configuration, a batch)
MODELS: dict[str, tuple[Any, Any, Batch]] = {
    "bert": (tr.BertForSequenceClassification, tr.BertConfig(**TEXT, num_labels=4), text),
    "gpt2": (tr.GPT2LMHeadModel, tr.GPT2Config(**GPT2), text),
    "llama": (tr.LlamaForCausalLM, tr.LlamaConfig(**CAUSAL), text),
    "t5 encoder": (tr.T5EncoderModel, tr.T5Config(**T5), text),
    "whisper encoder": (tr.models.whisper.modeling_whisper.WhisperEncoder, tr.WhisperConfig(**WHISPER), sound),
}
OTHERS: dict[str, tuple[Any, Any, Batch]] = {
    "vit": (tr.ViTForImageClassification, tr.ViTConfig(**VISION), image),
    "distilbert": (
        tr.DistilBertForSequenceClassification,
        tr.DistilBertConfig(vocab_size=WORDS, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=32),
        text,
    ),
    "roberta": (tr.RobertaForSequenceClassification, tr.RobertaConfig(**TEXT, num_labels=4), text),
    "clip vision": (tr.CLIPVisionModel, tr.CLIPVisionConfig(**VISION), image),
    "clip text": (tr.CLIPTextModel, tr.CLIPTextConfig(**TEXT, bos_token_id=1, eos_token_id=2), text),
    "dinov2": (tr.Dinov2ForImageClassification, tr.Dinov2Config(**BLOCKS, **DINO), image),
    "swin": (tr.SwinForImageClassification, tr.SwinConfig(**SWIN), image),
    "segformer": (tr.SegformerForSemanticSegmentation, tr.SegformerConfig(**SEGFORMER), image),
    "detr": (
        tr.DetrForObjectDetection,
        tr.DetrConfig(**DETR, backbone_config=tr.ResNetConfig(**BACKBONE, out_features=["stage2"])),
        image,
    ),
    "qwen2": (tr.Qwen2ForCausalLM, tr.Qwen2Config(**CAUSAL), text),
    "gemma": (tr.GemmaForCausalLM, tr.GemmaConfig(**CAUSAL, head_dim=8), text),
    "mistral": (tr.MistralForCausalLM, tr.MistralConfig(**CAUSAL), text),
    "phi": (tr.PhiForCausalLM, tr.PhiConfig(**CAUSAL), text),
    "mixtral": (tr.MixtralForCausalLM, tr.MixtralConfig(**CAUSAL, num_local_experts=2, num_experts_per_tok=1), text),
}


def build(name: str, attention: str = "sdpa") -> tuple[nn.Module, dict[str, Tensor]]:
    """A model and a batch by name."""
    torch.manual_seed(0)
    cls, config, batch = (MODELS | OTHERS)[name]
    if name != "segformer":  # which has but one attention; the convolutions in front of DETR's have none
        chosen = {"": attention, "backbone_config": "eager"} if name == "detr" else attention
        how = {"attn_implementation": chosen, "experts_implementation": "batched_mm"}
        config = type(config)(**{**config.to_dict(), **how})
    return cls(config).eval(), batch()


def tensors(answer: Any) -> dict[str, Tensor]:
    """The tensors of an answer by name, as loaded without the class of the answer."""
    items = answer.items() if isinstance(answer, dict) else vars(answer).items()
    return {name: value for name, value in items if isinstance(value, Tensor)}


LOAD = """
import sys
sys.modules["transformers"] = None
from safetensors.torch import load_file, save_file
import spikecast
for name in sys.argv[2:]:
    folder = f"{sys.argv[1]}/{name}"
    answer = spikecast.load(f"{folder}/net")(**load_file(f"{folder}/given"))
    save_file({key: value.contiguous() for key, value in vars(answer).items() if value is not None}, f"{folder}/found")
"""


@pytest.fixture(scope="module")
def networks() -> dict[str, tuple[SpikingNetwork, dict[str, Tensor]]]:
    made = {}
    for name in MODELS:
        model, batch = build(name)
        made[name] = spikecast.convert(model, [batch], QUICK), batch
    return made


def test_saved_networks_give_the_same_bits_without_transformers(networks: Any, tmp_path: Path) -> None:
    """Each in a process in which `import transformers` fails."""
    expected = {}
    for name, (snn, batch) in networks.items():
        expected[name] = tensors(snn(**batch))
        energy = measure.energy(snn, [batch])
        assert energy.snn[0] > 0
        assert energy.ratio is not None
        (tmp_path / name).mkdir()
        snn.save(tmp_path / name / "net")
        save_file(batch, tmp_path / name / "given")
    subprocess.run([sys.executable, "-c", LOAD, str(tmp_path), *networks], check=True)
    for name, answer in expected.items():
        found = load_file(tmp_path / name / "found")
        assert found.keys() == answer.keys()
        assert all(torch.equal(found[key], value) for key, value in answer.items())


def test_caches_are_left_out_and_said(networks: Any) -> None:
    for name in ("gpt2", "llama"):
        snn, batch = networks[name]
        answer = snn(**batch)
        assert answer.past_key_values is None
        assert answer.logits.shape == (3, LENGTH, WORDS)
        assert [note for note in snn.report.notes if "past_key_values" in note]
    assert not [note for note in networks["bert"][0].report.notes if "left out" in note]


def test_labels_and_losses_are_left_out_and_said() -> None:
    model, batch = build("gpt2")
    labelled = {**batch, "labels": batch["input_ids"]}
    snn = spikecast.convert(model, [labelled], QUICK)
    assert snn(**batch).loss is None
    assert [note for note in snn.report.notes if "labels" in note]
    found = measure.evaluate(snn, [labelled], "language", model=model)
    assert found.energy is not None
    # given to the model on purpose, they make a loss, which is no answer
    chosen = spikecast.convert(model, [labelled], QUICK, inputs=lambda given: given)
    assert chosen(**labelled).loss is None
    assert [note for note in chosen.report.notes if "past_key_values" in note and "loss" in note.split(":")[-1]]


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", [*MODELS, *OTHERS])
def test_families(name: str, attention: str, tmp_path: Path) -> None:
    """Both kinds of attention: the captured graph is the model, most products are fed by spikes, a file holds it."""
    model, batch = build(name, attention)
    with torch.no_grad():
        expected = tensors(model(**batch))
    snn = spikecast.convert(model, [batch], Config(num_steps=16, burst=1, thresholds="quantile"))
    assert snn.report.unknown == []
    assert snn.foldable
    assert {row.why for row in snn.report.rows if row.macs and row.status != "spiking"} <= {"analog input"}
    exact, late = tensors(snn.analog(**batch)), tensors(snn(**batch))
    assert all(relative(exact[key], value) < 1e-4 for key, value in expected.items() if value.is_floating_point())
    main = "logits" if "logits" in expected else "last_hidden_state"
    assert relative(late[main], expected[main]) < 0.5
    assert measure.energy(snn, [batch]).snn[-1] > 0
    snn.save(tmp_path / "net")
    loaded = spikecast.load(tmp_path / "net")
    assert torch.equal(tensors(loaded(**batch))[main], late[main])
    first, *others = batch
    assert torch.equal(tensors(loaded(batch[first], **{key: batch[key] for key in others}))[main], late[main])


def test_classes_are_sure_early(networks: Any) -> None:
    snn, batch = networks["bert"]
    answer, used = snn.anytime(**batch, confidence=0.01, num_steps=3)
    assert used.tolist() == [2, 2, 2]
    assert torch.equal(answer.logits, snn.run(**batch, num_steps=2).logits[-1])
    found = measure.evaluate(snn, [{**batch, "labels": torch.tensor([0, 1, 2])}])
    assert len(found.steps["top1"]) == 2


def test_generation(networks: Any) -> None:
    """Each word is the network's own likeliest one, with a mask of ones as it was converted with one."""
    for name in ("gpt2", "llama"):
        snn, _ = networks[name]
        prompt = torch.tensor([[5, 9, 30]])
        found = spikecast.generate(snn, prompt, 2)
        for place in (3, 4):
            scores = snn(input_ids=found[:, :place], attention_mask=torch.ones_like(found[:, :place])).logits
            assert found[0, place] == scores[0, -1].argmax()
