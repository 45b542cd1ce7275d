"""Encoders with masks: nn.TransformerEncoder in all its layouts, and a text encoder written by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spikecast import Config, convert
from tests.nets import encoder

WIDTH, LENGTH = 32, 7
SIZE = (WIDTH, 4, 64, 2)  # heads, hidden, layers


def padding(batch: int) -> Tensor:
    """True where a sentence has ended; every sentence has two words at least."""
    lengths = torch.randint(2, LENGTH + 1, (batch, 1))
    return torch.arange(LENGTH) >= lengths


def sentences(batch: int, batch_first: bool) -> Tensor:
    return torch.randn(batch, LENGTH, WIDTH) if batch_first else torch.randn(LENGTH, batch, WIDTH)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("batch_first", [True, False], ids=["batch_first", "batch_second"])
def test_transformer_encoder(batch_first: bool, activation: str, examine) -> None:
    batches = [sentences(8, batch_first) for _ in range(2)]
    snn = examine(
        encoder(*SIZE, batch_first=batch_first, activation=activation),
        batches,
        sentences(5, batch_first),
        first_layers=1,
        batch_axis=0 if batch_first else 1,
    )
    assert any("matmul" in row.target for row in snn.report.rows if row.status == "spiking")


def test_norm_first(examine) -> None:
    examine(
        encoder(*SIZE, batch_first=True, activation="gelu", norm_first=True),
        [sentences(8, True)],
        sentences(5, True),
        first_layers=0,
    )


@pytest.mark.parametrize("batch_first", [True, False], ids=["batch_first", "batch_second"])
def test_key_padding_mask_by_name(batch_first: bool, examine) -> None:
    def batch(count: int) -> dict[str, Tensor]:
        return {"src": sentences(count, batch_first), "src_key_padding_mask": padding(count)}

    examine(
        encoder(*SIZE, batch_first=batch_first, activation="gelu"),
        [batch(8), batch(8)],
        first_layers=1,
        named=batch(5),
        batch_axis=0 if batch_first else 1,
        foldable=True if batch_first else None,  # the mask has its batch in another place than the sentences
    )


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        b, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(b, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) / (width // self.heads) ** 0.5
        weights = scores.masked_fill(hidden[:, None, None, :], float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, length, width))
        return x + self.down(F.gelu(self.up(self.after(x))))


class TextEncoder(nn.Module):
    """Tokens and a padding mask in; each word, and their mean over what is no padding, out."""

    def __init__(self, vocabulary: int = 50) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, WIDTH, padding_idx=0)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH))
        self.blocks = nn.ModuleList([Block(WIDTH, 4) for _ in range(2)])
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, tokens: Tensor, hidden: Tensor) -> dict[str, Tensor]:
        x = self.words(tokens) + self.places
        for block in self.blocks:
            x = block(x, hidden)
        shown = (~hidden).to(x.dtype).unsqueeze(-1)
        pooled = (x * shown).sum(1) / shown.sum(1)
        return {"logits": self.head(pooled), "words": x}


def text(count: int) -> dict[str, Tensor]:
    hidden = padding(count)
    return {"tokens": torch.randint(1, 50, (count, LENGTH)).masked_fill(hidden, 0), "hidden": hidden}


def test_text_encoder(examine) -> None:
    snn = examine(TextEncoder().eval(), [text(8), text(8)], first_layers=0, named=text(5))
    assert snn.report.spiking_share == 1


def test_text_encoder_by_position_with_a_label(examine) -> None:
    batches = [(*text(8).values(), torch.zeros(8)) for _ in range(2)]
    examine(TextEncoder().eval(), batches, *text(5).values(), first_layers=0)


def test_keys_that_forward_does_not_take_are_reported() -> None:
    batch = {**text(4), "label": torch.zeros(4)}
    snn = convert(TextEncoder().eval(), [batch], Config(num_steps=2, burst=1, thresholds="quantile"))
    assert any("label" in note for note in snn.report.notes)


def test_padding_does_not_leak() -> None:
    """What stands behind the end of a sentence changes nothing, at any step."""
    model = TextEncoder().eval()
    snn = convert(model, [text(8)], Config(num_steps=4, burst=1, thresholds="quantile"))
    given: dict[str, Any] = text(5)
    other = {**given, "tokens": torch.where(given["hidden"], 17, given["tokens"])}
    assert torch.equal(snn.run(**given)["logits"], snn.run(**other)["logits"])
