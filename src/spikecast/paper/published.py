"""A row of a table as the authors' code computes it, where that differs from the paper (docs/errata.md).

Which of its settings the printed tables rest on is not said anywhere; it is inferred from the figures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spikecast.config import Config
from spikecast.errors import ConfigError
from spikecast.paper import MODELS, Row, tables
from spikecast.presets import preset

# How images are made ready, where that is not the publisher's way.
PREPARED: Mapping[str, Mapping[str, Any]] = {"vgg16": {"crop": 224 / 235, "interpolation": "bicubic"}}
# Detectors get neurons in place of ReLUs only: what else feeds a convolution (FPN, p6, heads) stays analog.
ANALOG = {"*.input*": None}


def published_config(row: Row) -> Config:
    """The row's settings in the authors' code, by the preset `dcgs_published`."""
    model = MODELS[row.model]
    if model.task == "segmentation":
        raise ConfigError(f"the authors' code has no segmentation, so {row.model!r} has no such settings; leave it out")
    made = preset(
        "dcgs_published", num_steps=_longest(row), num_levels=row.num_levels, rectifiers=not model.encode_input
    )
    changed: dict[str, Any] = {"coding": row.coding}
    if not model.encode_input:  # no setting of theirs holds c: it was edited in, as the tables have it
        changed["threshold_scale"] = row.threshold_scale
    if row.thresholds == "quantile":
        changed["thresholds"] = "quantile_published"
    if model.task == "detection":
        changed["overrides"] = ANALOG
    return dataclasses.replace(made, **changed)


def deviations(rows: Iterable[Row]) -> list[str]:
    """What is done otherwise than in the paper for some of these rows, each in a line."""
    rows = list(rows)
    return [text for text, applies in DEVIATIONS.items() if any(applies(row) for row in rows)]


def _longest(row: Row) -> int:
    """The longest T of any table with a cell of the same run: all cells of a run have one N."""
    same = [other.config().num_steps for table in tables().values() for other in table.rows if _run(other) == _run(row)]
    return max(same)


def _run(row: Row) -> tuple[Any, ...]:
    return row.model, row.num_levels, row.coding, row.thresholds, row.threshold_scale


def _is_transformer(row: Row) -> bool:
    return MODELS[row.model].encode_input


def _is_detector(row: Row) -> bool:
    return MODELS[row.model].task == "detection"


def _takes_quantile(row: Row) -> bool:
    return published_config(row).thresholds == "quantile_published"


DEVIATIONS: Mapping[str, Callable[[Row], bool]] = {
    "thresholds come from the images that are measured, all of them": lambda row: True,
    "quantiles are signed and averaged over batches; neurons with a negative one stay silent": _takes_quantile,
    'a "channel" is an index of dim 1: a token of a Transformer, not a feature': _is_transformer,
    "thresholds of Transformers are scaled by 8, not by 4": _is_transformer,
    "N is 2T for n = 1, not T": lambda row: row.num_levels == 1 and not _takes_quantile(row),
    "N is that of the longest T of any table with the same run": lambda row: (
        not _takes_quantile(row) and _longest(row) != row.config().num_steps
    ),
    "images of VGG-16 are scaled to 235 pixels, bicubic, not to 256, bilinear": lambda row: row.model in PREPARED,
    "detectors have neurons in place of ReLUs only; FPN, p6 and the inputs of heads stay analog": _is_detector,
}
