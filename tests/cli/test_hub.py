"""A language model of Hugging Face from its folder: inspected, converted and measured by commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

DATA = """
import torch


def tokens():
    torch.manual_seed(0)
    words = torch.randint(3, 50, (4, 9))
    yield words[:, :-1], words[:, 1:]
"""
MANY: dict[str, Any] = {"vocab_size": 50, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 1}


@pytest.fixture(scope="module")
def folder(home: Path) -> str:
    torch.manual_seed(0)
    config = transformers.GPT2Config(**MANY, eos_token_id=2)
    transformers.GPT2LMHeadModel(config).save_pretrained(home / "gpt2")
    (home / "texts.py").write_text(DATA)
    return "hf:gpt2"


def test_inspect(cli, folder: str) -> None:
    """Without any data: a model that reads text is shown some tokens."""
    found = json.loads(cli("inspect", folder, "--json").out)
    assert (found["task"], found["num_sites"] > 4) == ("language", True)
    assert [note for note in found["notes"] if "past_key_values" in note]


def test_convert_and_evaluate(cli, folder: str) -> None:
    data = ["--data", "texts.py:tokens", "--trust"]
    assert cli("convert", folder, *data, "--thresholds", "quantile", "-T", "3", "--out", "gpt2.spikecast").code == 0
    found = json.loads(cli("eval", "gpt2.spikecast", *data, "--json").out)
    assert (found["task"], len(found["steps"]["perplexity"])) == ("language", 3)
    assert found["steps"]["perplexity"][-1] == pytest.approx(found["ann"]["perplexity"], rel=0.1)


def test_a_name_of_the_hub_is_not_downloaded_by_itself(cli) -> None:
    assert "say --pretrained" in cli("inspect", "hf:someone/tiny").complaint


def test_images(cli, home: Path) -> None:
    """Pairs of an image and its class, though no argument of the model is required."""
    size: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 24,
    }
    config = transformers.ViTConfig(**size, image_size=16, patch_size=8)
    config.num_labels = 3
    torch.manual_seed(0)
    transformers.ViTForImageClassification(config).save_pretrained(home / "vit")
    done = cli("eval", "hf:vit", "--data", "imagefolder:images", "-T", "2", "--thresholds", "quantile", "--json")
    found = json.loads(done.out)
    assert (found["task"], found["samples"], len(found["steps"]["top1"])) == ("classification", 12, 2)
