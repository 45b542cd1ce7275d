"""English text of this project's own, letter by letter, and a small language model of Llama's kind that spells it.

text.txt is prose of the README, the docs and the docstrings as they were in November 2026, one paragraph a line,
without Markdown and without sentences that come twice. Each tenth paragraph is held out.
"""

from __future__ import annotations

from importlib.resources import files

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spikecast.errors import DataError

LETTERS = "\n" + "".join(map(chr, range(32, 127)))  # token 0 ends a paragraph
LENGTH = 64  # letters that the network reads at once, in training and in demo:text
LONGEST = 256  # of what may be given to it
EVERY = 10


def encode(words: str) -> Tensor:
    """The tokens [L] of a text: a number for each letter."""
    unknown = sorted(set(words) - set(LETTERS))
    if unknown:
        raise DataError(f"the demo's language model knows the letters of ASCII only, and not {''.join(unknown)[:20]!r}")
    return torch.tensor([LETTERS.index(letter) for letter in words])


def decode(tokens: Tensor) -> str:
    """The text of tokens [L]."""
    return "".join(LETTERS[token] for token in tokens.tolist())


def paragraphs(split: str) -> list[str]:
    """The lines of one part of the text."""
    lines = files(__package__).joinpath("text.txt").read_text(encoding="ascii").splitlines()
    return [line for i, line in enumerate(lines) if (i % EVERY == EVERY - 1) != (split == "train")]


def text(split: str) -> tuple[Tensor, Tensor]:
    """Windows [N, 64] of the text one after the other, and for each letter in them the one that comes next."""
    tokens = encode("\n" + "\n".join(paragraphs(split)))
    count = (len(tokens) - 1) // LENGTH
    inputs, following = (tokens[i : i + count * LENGTH].reshape(count, LENGTH) for i in (0, 1))
    return inputs, following


class Attention(nn.Module):
    """Causal attention with rotary positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs of features [B, H, L, D] turned by an angle that grows with the place, as Llama does."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Layer(nn.Module):
    """Attention and a gated feed-forward net, each with a way around it."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.drop(self.attention(self.norm1(x), cos, sin))
        y = self.norm2(x)
        out: Tensor = self.drop(self.down(F.silu(self.gate(y)) * self.up(y)))
        return x + out


class TextModel(nn.Module):
    """Scores [B, L, 96] of the letter that comes next, for tokens [B, L]."""

    cos: Tensor
    sin: Tensor

    def __init__(self, width: int = 48, depth: int = 2, heads: int = 4, inner: int = 128) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS), width)
        self.layers = nn.ModuleList(Layer(width, heads, inner) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, len(LETTERS), bias=False)
        half = width // heads // 2
        angles = torch.arange(LONGEST).unsqueeze(1) * 1000.0 ** -(torch.arange(half) / half)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        out: Tensor = self.head(self.norm(x))
        return out
