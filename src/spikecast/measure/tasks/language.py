"""Language modelling: how surprised a network is by the next token, and how often it would have said it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from spikecast.errors import DataError
from spikecast.measure.tasks import Metric
from spikecast.network.answers import named_part

IGNORED = -100  # places without a token to predict, as PyTorch marks them


class Language:
    """Scores [B, S, V] (or what holds them as "logits") against the tokens that come next, [B, S]."""

    metrics: ClassVar = {"perplexity": Metric("", more=False, logarithmic=True), "next": Metric()}
    draws = 400

    def notes(self, answer: Any, target: Any) -> list[Any]:
        """Of each text: the surprise in nats of all its tokens, how many were said, and their number."""
        found, wanted = _scores(answer), torch.as_tensor(target)
        if wanted.shape != found.shape[:2] or wanted.is_floating_point():
            raise DataError(
                f"targets of shape {tuple(wanted.shape)} do not fit scores {tuple(found.shape)}; give the number of "
                "the next token for each place, -100 where there is none"
            )
        if wanted.numel() and int(wanted.max()) >= found.shape[2]:
            raise DataError(f"a token {int(wanted.max())} does not fit {found.shape[2]} scores; give targets below it")
        wanted = wanted.to(found.device).long()
        losses = functional.cross_entropy(
            found.double().flatten(0, 1), wanted.flatten(), reduction="none", ignore_index=IGNORED
        )
        kept = wanted != IGNORED
        said = (found.argmax(-1) == wanted) & kept
        rows: list[list[float]] = torch.stack(
            [losses.view_as(wanted).sum(1), said.sum(1).double(), kept.sum(1).double()], 1
        ).tolist()
        return rows

    def same(self, answer: Any, reference: Any) -> list[tuple[float, float]]:
        """Places at which the same token comes first."""
        equal = _scores(answer).argmax(-1) == _scores(reference).argmax(-1)
        return [(float(row.sum()), float(len(row))) for row in equal]

    def result(self, notes: Sequence[Any]) -> dict[str, float]:
        loss, said, tokens = (math.fsum(note[i] for note in notes) for i in range(3))
        return {"perplexity": math.exp(min(loss / max(tokens, 1.0), 700.0)), "next": said / max(tokens, 1.0)}


def _scores(answer: Any) -> Tensor:
    found = named_part(answer, "logits")
    if not isinstance(found, Tensor) or found.dim() != 3:
        raise DataError('language modelling needs scores [B, S, V], as a tensor or called "logits"')
    return found
