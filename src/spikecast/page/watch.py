"""The samples that a spiking network and the ANN see differently, noticed while the network is measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from spikecast.measure.tasks.classify import Classification, scores
from spikecast.page.data import Example, Sample

MOST_EXAMPLES = 12


class Watched(Classification):
    """Classification that remembers every answer of the batch at hand: no sample is run a second time to look at it."""

    def __init__(self) -> None:
        self.answers: list[Tensor] = []  # of each step, [B]
        self.reference: Tensor
        self.labels: Tensor

    def notes(self, answer: Any, target: Any) -> list[Any]:
        self.labels = torch.as_tensor(target)
        return super().notes(answer, target)

    def same(self, answer: Any, reference: Any) -> list[tuple[float, float]]:
        self.answers.append(scores(answer).argmax(1))
        self.reference = scores(reference).argmax(1)
        return super().same(answer, reference)


class Disagreements:
    """The samples that took longest to agree with the ANN, or never did."""

    def __init__(self) -> None:
        self.disagree = 0  # after the last step
        self.found: list[tuple[int, Example]] = []

    def add(self, watched: Watched, first: int, image: Callable[[int], str | None]) -> None:
        """Look through a batch; `first` is the number of its first sample, `image` draws one of them."""
        differ = torch.stack(watched.answers) != watched.reference  # [T, B]
        steps = torch.arange(1, len(differ) + 1, device=differ.device).unsqueeze(1)
        last = (differ * steps).amax(0).tolist()  # the last step at which they differ
        self.disagree += int(differ[-1].sum())
        bar = self.found[-1][0] if len(self.found) == MOST_EXAMPLES else 0
        for i in sorted(range(len(last)), key=lambda i: -last[i])[:MOST_EXAMPLES]:
            if last[i] > bar:
                sample = Sample(first + i, image(i), int(watched.labels[i]), int(watched.reference[i]))
                self.found.append((last[i], Example(sample, [int(a[i]) for a in watched.answers])))
        self.found.sort(key=lambda entry: (-entry[0], entry[1].sample.number))
        del self.found[MOST_EXAMPLES:]

    @property
    def examples(self) -> list[Example]:
        return [example for _, example in self.found]
