"""hf:DIR and hf:NAME: weights of safetensors only, no code of others, and no download that was not asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from spikecast.errors import ConfigError, DataError, ModelError
from spikecast.sources.hub import _preparation
from spikecast.sources.models import Loaded, open_model

tr: Any = transformers  # its configurations take more than their types say
VISION = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}


@pytest.fixture
def gpt2() -> nn.Module:
    config = tr.GPT2Config(
        vocab_size=50, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2
    )
    return tr.GPT2LMHeadModel(config).eval()


@pytest.fixture
def folder(gpt2: Any, tmp_path: Path) -> Path:
    gpt2.save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2"


def changed(folder: Path, **entries: Any) -> str:
    """The folder with other entries in its config.json, as a spec."""
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))
    return f"hf:{folder}"


def test_a_folder_has_its_own_weights(folder: Path, gpt2: nn.Module) -> None:
    found = open_model(f"hf:{folder}")
    assert type(found.model) is type(gpt2)
    assert not found.model.training
    assert (found.task, found.is_random, found.regions) == ("language", False, None)
    assert torch.allclose(found.model(*found.example).logits, gpt2(*found.example).logits, atol=1e-6)


def test_images_are_made_ready_as_the_folder_says(tmp_path: Path) -> None:
    config = tr.ViTConfig(**VISION, image_size=32, patch_size=8, num_labels=3)
    tr.ViTForImageClassification(config).save_pretrained(tmp_path)
    plain = open_model(f"hf:{tmp_path}")
    assert (plain.preparation.size, plain.task, plain.example) == (32, "classification", None)
    said = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "resample": 3}
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({**said, "size": {"height": 32, "width": 32}}))
    p = open_model(f"hf:{tmp_path}").preparation
    assert (p.size, p.crop, p.squash, p.mean, p.std, p.interpolation) == (
        *(32, 1.0, True, (0.5,) * 3, (0.25,) * 3),
        "bicubic",
    )
    crop = {"do_center_crop": True, "crop_size": {"height": 32, "width": 32}, "do_normalize": False}
    file.write_text(json.dumps({**said, **crop, "size": {"shortest_edge": 40}}))
    p = open_model(f"hf:{tmp_path}").preparation
    assert (p.size, p.crop, p.squash, p.mean, p.std) == (32, 0.8, False, (0.0,) * 3, (1.0,) * 3)


def test_names_of_classes_are_those_of_the_folder(tmp_path: Path) -> None:
    names = {0: "cat", 1: "dog", 2: "eel"}
    config = tr.ViTConfig(
        **VISION, image_size=32, patch_size=8, id2label=names, label2id={n: i for i, n in names.items()}
    )
    tr.ViTForImageClassification(config).save_pretrained(tmp_path)
    assert open_model(f"hf:{tmp_path}").classes == ("cat", "dog", "eel")
    assert open_model(changed(tmp_path, id2label={"0": "cat", "1": "dog", "7": "eel"})).classes == ()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, (224, 0.875, False)),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.9}, (224, 224 / 248, False)),  # whole pixels, rounded down
        ({"size": {"shortest_edge": 384}, "crop_pct": 0.875}, (384, 1.0, True)),
        ({"size": {"shortest_edge": 224}, "crop_pct": None}, (224, 1.0, False)),
        ({"size": {"longest_edge": 640}}, (640, 1.0, False)),
        ({"size": {"shortest_edge": 480, "longest_edge": 640}}, (480, 1.0, False)),
    ],
)
def test_sizes_of_images(tmp_path: Path, said: dict[str, Any], expected: tuple[int, float, bool]) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said))
    found = _preparation(str(tmp_path), {}, local=True)
    assert (found.size, found.crop, found.squash) == expected


def test_a_size_that_says_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": {"max_pixels": 9}}))
    with pytest.raises(DataError, match=r"images of size \{'max_pixels': 9\} are not understood; give height"):
        _preparation(str(tmp_path), {}, local=True)


def test_code_of_others_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    own = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    with pytest.raises(ModelError, match=r"brings code of its own \(auto_map\), which is never run") as error:
        open_model(changed(folder, auto_map=own, model_type="evil", architectures=["Evil"]))
    assert "\n" not in str(error.value)
    with pytest.raises(ModelError, match="has no model Evil of type gpt2"):
        open_model(changed(folder, auto_map=own, model_type="gpt2", architectures=["Evil"]))
    # where transformers has the class, that one is taken; a config cannot name an implementation to be fetched
    spec = changed(
        folder, architectures=["GPT2LMHeadModel"], attn_implementation="evil/a", experts_implementation="evil/b"
    )
    assert type(open_model(spec).model) is tr.GPT2LMHeadModel
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["pipeline", "GPT2Config", "logging"])
def test_only_models_are_models(folder: Path, name: str) -> None:
    with pytest.raises(ModelError, match=f"has no model {name}"):
        open_model(changed(folder, architectures=[name]))


def test_pickles_are_never_read(folder: Path, gpt2: nn.Module) -> None:
    torch.save(gpt2.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataError, match="has no safetensors"):
        open_model(f"hf:{folder}")


def test_a_pickle_beside_safetensors_is_not_read(folder: Path, gpt2: nn.Module, tmp_path: Path) -> None:
    """Whether the configuration names it, or an index of parts."""
    torch.save({name: value + 1 for name, value in gpt2.state_dict().items()}, folder / "adapter_model.bin")
    found = open_model(changed(folder, transformers_weights="adapter_model.bin"))
    assert torch.equal(found.model.get_parameter("lm_head.weight"), gpt2.get_parameter("lm_head.weight"))
    parts = {"metadata": {}, "weight_map": dict.fromkeys(gpt2.state_dict(), "adapter_model.bin")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(parts))
    with pytest.raises(DataError, match=r"has weights in adapter_model\.bin"):
        open_model(f"hf:{folder}")


@pytest.mark.parametrize("where", ["../other.safetensors", "{}/other.safetensors", "..\\other.safetensors"])
def test_parts_lie_in_the_folder(folder: Path, gpt2: nn.Module, where: str) -> None:
    (folder / "model.safetensors").rename(folder.parent / "other.safetensors")
    (folder / "unused.safetensors").touch()
    parts = {"metadata": {}, "weight_map": dict.fromkeys(gpt2.state_dict(), where.format(folder.parent))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(parts))
    with pytest.raises(DataError, match=r"has weights in .*other\.safetensors, and none but safetensors beside"):
        open_model(f"hf:{folder}")


def test_weights_that_are_missing_are_not_drawn(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"lacks weights of GPT2ForSequenceClassification, score\.weight"):
        open_model(changed(folder, architectures=["GPT2ForSequenceClassification"]))


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "could not be made"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"12345678{"), "could not be made"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "holds an adapter"),
        (lambda folder: changed(folder, quantization_config={"quant_method": "gptq"}), "is quantized"),
        (lambda folder: changed(folder, n_embd=8), "could not be made"),
    ],
)
def test_broken_folders(folder: Path, break_it: Any, message: str) -> None:
    break_it(folder)
    with pytest.raises((DataError, ModelError), match=message):
        open_model(f"hf:{folder}")


def test_settings_that_are_the_folders_own(folder: Path) -> None:
    with pytest.raises(ConfigError, match="leave num_classes out"):
        open_model(f"hf:{folder}", options={"num_classes": 3})
    with pytest.raises(ConfigError, match="leave weights out"):
        open_model(f"hf:{folder}", weights="w.safetensors")


@pytest.fixture
def asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """A stand-in for the hub: files of a name come out of the folder, and every question is noted."""
    noted: list[tuple[str, bool]] = []

    def files(path_or_repo_id: Any, filenames: list[str], **options: Any) -> list[str] | None:
        if Path(path_or_repo_id).is_dir():
            return original(path_or_repo_id, filenames, **options)
        noted.append((str(path_or_repo_id), bool(options.get("local_files_only"))))
        if (folder / "gated").exists() and filenames == ["model.safetensors.index.json"]:
            raise OSError("You are trying to access a gated repo.")
        found = [str(folder / file) for file in filenames if (folder / file).is_file()]
        if not found and options.get("_raise_exceptions_for_missing_entries", True):
            raise OSError(f"no {filenames}")
        return found or None

    def no_network() -> Any:
        raise OSError("tests download nothing")

    hub = tr.utils.hub
    original = hub.cached_files
    monkeypatch.setattr(hub, "cached_files", files)
    monkeypatch.setattr(hub, "hf_api", no_network)
    return noted


def test_the_hub_is_asked_only_when_told_to(folder: Path, asked: list[tuple[str, bool]]) -> None:
    with pytest.raises(ConfigError, match="say --pretrained"):
        open_model("hf:someone/tiny")
    assert asked == []
    found: Loaded = open_model("hf:someone/tiny", pretrained=True)
    assert type(found.model) is tr.GPT2LMHeadModel
    ours, theirs = (made.model.get_parameter("lm_head.weight") for made in (found, open_model(f"hf:{folder}")))
    assert torch.equal(ours, theirs)
    assert set(asked) == {("someone/tiny", False)}


@pytest.mark.usefixtures("asked")
def test_adapters_and_closed_models_of_the_hub_are_refused(folder: Path) -> None:
    (folder / "gated").touch()
    with pytest.raises(ModelError, match=r"could not be made .*gated repo"):
        open_model("hf:someone/tiny", pretrained=True)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "other/model"}))
    with pytest.raises(DataError, match="hf:someone/tiny holds an adapter"):
        open_model("hf:someone/tiny", pretrained=True)


def test_a_broken_preparation_is_an_error(folder: Path) -> None:
    (folder / "preprocessor_config.json").write_text("{")
    with pytest.raises(ModelError, match="could not be made"):
        open_model(f"hf:{folder}")
