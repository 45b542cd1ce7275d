"""Sounds of half a second that code makes, tones and chords, and a convolutional network that tells which is which.

A sound has a random key, overtones, loudness of each note, tuning and noise. The network sees how loud each semitone is
over time, and has to find the intervals between them.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

INTERVALS = {  # semitones above the lowest note
    "tone": (0,),
    "fifth": (0, 7),
    "major": (0, 4, 7),
    "minor": (0, 3, 7),
    "diminished": (0, 3, 6),
    "augmented": (0, 4, 8),
    "suspended": (0, 5, 7),
    "seventh": (0, 4, 7, 10),
}
CHORDS = tuple(INTERVALS)
RATE, LENGTH, WINDOW, HOP = 8000, 4096, 2048, 512  # samples a second, of a sound, of a frame, from frame to frame
LOWEST, BANDS = 220.0, 48  # Hz of the first band, and semitones from there
FRAMES = (LENGTH - WINDOW) // HOP + 1
ROOTS, OVERTONES = 20, 4
SPLITS = {"train": (2048, 1)}  # sounds, and the seed of what is random about them
HELD_OUT = (512, 2)


@cache  # a second's work, which several readers share
def tones(split: str) -> tuple[Tensor, Tensor]:
    """Spectra [N, frames, semitones] and class numbers [N]: the 2048 sounds of "train", or 512 others."""
    waves, labels = sounds(*SPLITS.get(split, HELD_OUT))
    return spectrum(waves), labels


def sounds(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Waves [N, samples] and class numbers [N], the classes in turn; the same seed makes the same sounds."""
    draw = torch.Generator().manual_seed(seed)
    time = torch.arange(LENGTH) / RATE
    labels = torch.arange(count) % len(CHORDS)
    return torch.stack([_sound(INTERVALS[CHORDS[label]], time, draw) for label in labels]), labels


def _sound(notes: tuple[int, ...], time: Tensor, draw: torch.Generator) -> Tensor:
    """One chord, in noise that is from a tenth as loud to three times as loud."""
    root = int(torch.randint(ROOTS, (), generator=draw))
    tuning, fading, noise = torch.rand(3, generator=draw).tolist()
    wave = torch.zeros_like(time)
    for note in notes:
        pitch = LOWEST * 2 ** ((root + note + 0.4 * (tuning - 0.5)) / 12)
        loud, falling, *phases = torch.rand(2 + OVERTONES, generator=draw).tolist()
        for k, phase in enumerate(phases):
            strength = (0.5 + 0.5 * loud) * (0.2 + 0.5 * falling) ** k
            if pitch * (k + 1) < RATE / 2:
                wave += strength * torch.sin(2 * math.pi * (pitch * (k + 1) * time + phase))
    wave *= torch.exp(-4 * fading * time)
    louder = 30**noise / 10
    hiss: Tensor = wave.std() * louder * torch.randn(LENGTH, generator=draw)
    return wave + hiss


def spectrum(waves: Tensor) -> Tensor:
    """How loud each semitone is in each frame, as a logarithm: [N, frames, semitones] in about 0..1."""
    frames = waves.unfold(-1, WINDOW, HOP) * torch.hann_window(WINDOW)
    power = torch.fft.rfft(frames).abs().square()
    pitches = LOWEST * 2 ** (torch.arange(BANDS) / 12)
    bins = torch.fft.rfftfreq(WINDOW, 1 / RATE)
    bands = torch.exp(-((12 * torch.log2(bins.clamp_min(1.0) / pitches.unsqueeze(1))) ** 2) / 0.18)
    found = F.linear(power, bands)
    return (found / found.amax((-2, -1), keepdim=True) * 1e3).log1p() / math.log1p(1e3)


class ToneNetwork(nn.Module):
    """Convolutions along the semitones, the first as wide as an octave; then the mean over all keys."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.octave = nn.Sequential(nn.Conv1d(FRAMES, width, 13, padding=6, bias=False), nn.BatchNorm1d(width))
        self.chord = nn.Sequential(nn.Conv1d(width, width, 13, padding=6, bias=False), nn.BatchNorm1d(width))
        self.detail = nn.Sequential(nn.Conv1d(width, 2 * width, 3, padding=1, bias=False), nn.BatchNorm1d(2 * width))
        self.relu1, self.relu2, self.relu3 = nn.ReLU(), nn.ReLU(), nn.ReLU()
        self.head = nn.Linear(2 * width, len(CHORDS))

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu2(self.chord(self.relu1(self.octave(x))))
        out: Tensor = self.head(self.relu3(self.detail(x)).mean(-1))
        return out
