"""Every recipe of the paper, on its own network with random weights: it converts, runs a small batch, and is counted.

The first recipe of each network takes it as it is; the others of a Transformer take two of its blocks, all alike.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
import torch

import spikecast
from spikecast.graph.structure import flatten
from spikecast.measure import energy
from spikecast.paper import MODELS, Row, tables
from spikecast.sources.models import Loaded, open_model

QUICK = ("resnet18",)  # the others take long, or much memory
SMALL = {"classification": None, "detection": 96, "segmentation": 64}  # None: the size that the network is made for


def rows() -> list[Row]:
    """Each conversion once, though several tables have it; those of one network together, so that it is made once."""
    found = {}
    for table in tables().values():
        for row in table.rows:
            found[row.model, row.num_levels, row.coding, row.thresholds, row.threshold_scale] = row
    return sorted(found.values(), key=lambda row: list(MODELS).index(row.model))


ROWS = rows()
FIRST = [next(row for row in ROWS if row.model == name) for name in MODELS]


def recipes() -> list[Any]:
    return [
        pytest.param(
            row,
            id=f"{row.model}-n{row.num_levels}-{row.coding}-{row.thresholds}-c{row.threshold_scale:g}",
            marks=[] if row.model in QUICK else [pytest.mark.slow, pytest.mark.xdist_group(row.model)],
        )
        for row in ROWS
    ]


@lru_cache(maxsize=1)
def network(name: str, whole: bool) -> Loaded:
    torch.manual_seed(0)
    options: dict[str, Any] = {"weights_backbone": None} if MODELS[name].task != "classification" else {}
    if MODELS[name].encode_input and not whole:
        options["depth"] = 2
    if MODELS[name].task == "detection":  # whose model scales images itself
        options |= {"min_size": SMALL["detection"], "max_size": SMALL["detection"]}
    return open_model(MODELS[name].spec, options=options)


@pytest.mark.parametrize("row", recipes())
def test_recipe_converts_and_runs(row: Row) -> None:
    recipe, made = MODELS[row.model], network(row.model, whole=row in FIRST)
    size = SMALL[recipe.task] or recipe.size
    image = torch.rand(3, size, size)
    x = [image] if recipe.task == "detection" else image.unsqueeze(0)
    config = row.config(num_steps=2)
    batches = [(x,)] if recipe.task == "detection" else [x]
    snn = spikecast.convert(made.model, batches, config, regions=list(made.regions) if made.regions else None)
    assert made.regions == (recipe.regions or None)
    leaves = flatten(snn.run(x))[0]
    assert leaves
    assert all(len(leaf) == 2 for leaf in leaves)  # time is in front, in a tensor or a list of steps
    assert all(step.isfinite().all() for leaf in leaves for step in leaf)
    counted = energy(snn, batches)
    assert 0 < counted.snn[0] < counted.snn[1]
    assert counted.macs > 0
