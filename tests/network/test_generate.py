"""Greedy generation by causal language models, one of our own and one that takes a mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import spikecast
from spikecast import Config, SpikingNetwork
from spikecast.errors import ConfigError, DataError

WORDS, WIDTH, LONGEST = 11, 16, 12


class Causal(nn.Module):
    """Tokens [B, L] to scores [B, L, V]; a word sees itself and those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.qkv, self.up, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        q, k, v = self.qkv(x).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores: Tensor = self.head(x + F.relu(self.up(x)))
        return scores


class Masked(Causal):
    """The same, with the mask and the dict that language models of Hugging Face have."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        return {"logits": super().forward(input_ids) * attention_mask.unsqueeze(-1)}


def by_hand(model: nn.Module, tokens: Tensor, count: int) -> Tensor:
    with torch.no_grad():
        for _ in range(count):
            tokens = torch.cat([tokens, model(tokens)[:, -1].argmax(-1, keepdim=True)], 1)
    return tokens


@pytest.fixture(scope="module")
def model() -> Causal:
    torch.manual_seed(0)
    return Causal().eval()


@pytest.fixture(scope="module")
def snn(model: Causal) -> SpikingNetwork:
    return spikecast.convert(model, [torch.randint(0, WORDS, (8, 6))], Config(num_steps=8))


PROMPTS = torch.tensor([[1, 5, 2], [7, 7, 3]])


def test_the_words_of_the_model(model: Causal, snn: SpikingNetwork) -> None:
    found = spikecast.generate(snn, PROMPTS, 5)
    assert torch.equal(found, by_hand(model, PROMPTS, 5))
    assert len(found[:, 3:].unique()) > 1, "one word over and over says little"


def test_each_word_is_the_networks_own(snn: SpikingNetwork) -> None:
    """After one step answers are rough, and other than the model's: those are taken, not the model's."""
    found = spikecast.generate(snn, PROMPTS, 3, num_steps=1)
    for place in range(3, 6):
        assert torch.equal(found[:, place], snn.run(found[:, :place], num_steps=1)[0][:, -1].argmax(-1))


def test_stop(model: Causal, snn: SpikingNetwork) -> None:
    whole = by_hand(model, PROMPTS, 5)
    stop = int(whole[0, 4])
    found = spikecast.generate(snn, PROMPTS, 5, stop=stop)
    end = (whole[1, 3:] == stop).nonzero()
    assert torch.equal(found[0, 4:], torch.full_like(found[0, 4:], stop))
    if not len(end):
        assert torch.equal(found[1], whole[1])
    assert spikecast.generate(snn, PROMPTS[:1], 5, stop=stop).shape == (1, 5), "the only text has ended"


def test_a_mask_is_given_where_there_is_one(model: Causal) -> None:
    masked = Masked().eval()
    masked.load_state_dict(model.state_dict())
    batch = {"input_ids": torch.randint(0, WORDS, (8, 6)), "attention_mask": torch.ones(8, 6, dtype=torch.int64)}
    snn = spikecast.convert(masked, [batch], Config(num_steps=8))
    assert torch.equal(spikecast.generate(snn, PROMPTS, 4), by_hand(model, PROMPTS, 4))


def test_saved(snn: SpikingNetwork, tmp_path: Path) -> None:
    snn.save(tmp_path / "net")
    assert torch.equal(
        spikecast.generate(spikecast.load(tmp_path / "net"), PROMPTS, 3), spikecast.generate(snn, PROMPTS, 3)
    )


class Two(nn.Module):
    def forward(self, tokens: Tensor, other: Tensor) -> Tensor:
        return F.one_hot(tokens, WORDS).float() * other.unsqueeze(-1)


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        (torch.ones(3, dtype=torch.int64), {}, r"shape \(3,\)"),
        (torch.ones(1, 3), {}, "torch.float32"),
        (PROMPTS, {"max_new_tokens": 0}, "max_new_tokens=0"),
        (PROMPTS, {"num_steps": 0}, "num_steps"),
        (PROMPTS + WORDS, {}, "none beyond its vocabulary"),
        (torch.ones(1, LONGEST, dtype=torch.int64), {}, f"cannot take {LONGEST + 1} tokens"),
    ],
)
def test_mistakes(snn: SpikingNetwork, tokens: Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, ConfigError), match=message):
        spikecast.generate(snn, tokens, **options)


def test_networks_that_score_no_next_token() -> None:
    plain = spikecast.convert(nn.Sequential(nn.Embedding(WORDS, 4), nn.Flatten(), nn.Linear(12, 3)).eval(), [PROMPTS])
    with pytest.raises(DataError, match=r"scores \[B, L, V\]"):
        spikecast.generate(plain, PROMPTS)
    two = spikecast.convert(Two().eval(), [(PROMPTS, torch.rand(2, 3))])
    with pytest.raises(DataError, match="takes tokens, other"):
        spikecast.generate(two, PROMPTS)
