"""--regions: parts of a model that cannot be captured whole, by their names or found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FACTORY = """
import torch
from torch import nn

class Sorted(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU())
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3))

    def forward(self, x):
        hidden = self.body(x)
        return self.head(hidden if float(hidden.sum()) > 0 else -hidden)

def net():
    torch.manual_seed(0)
    return Sorted()
"""
WORDS = ["sorted.py:net", "--trust", "--json"]


@pytest.fixture(autouse=True)
def written(home: Path) -> None:
    (home / "sorted.py").write_text(FACTORY)


@pytest.mark.parametrize("regions", ["auto", "body, head"])
def test_by_region(regions: str, cli: Callable[..., Any]) -> None:
    assert "regions='auto'" in cli("inspect", *WORDS, "--shape", "3,16,16").complaint
    done = cli("inspect", *WORDS, "--shape", "3,16,16", "--regions", regions)
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert {row["scope"].split(".")[0] for row in said["rows"]} == {"body", "head"}
    assert any("regions found: body, head; 100.0%" in note for note in said["notes"]) is (regions == "auto")


def test_converted_saved_and_measured(cli: Callable[..., Any]) -> None:
    data = ["--data", "imagefolder:images", "--size", "16"]
    done = cli("convert", *WORDS, *data, "--regions", "auto", "--out", "sorted.spikecast")
    assert done.code == 0, done.err
    done = cli("eval", "sorted.spikecast", "--of", *WORDS, *data)
    assert done.code == 0, done.err
    assert json.loads(done.out)["samples"] == 12
    complaint = cli("eval", "sorted.spikecast", *data).complaint
    assert complaint.endswith(
        "sorted.spikecast holds regions of a model; give that model: spikecast.load(path, model=...), or --of MODEL"
    )
    saved = ["inspect", "sorted.spikecast", "--of", *WORDS]
    assert "regions found: body, head" in cli(*saved).out
    assert "--regions auto: sorted.spikecast is converted already" in cli(*saved, "--regions", "auto").complaint
    assert "has no submodule 'tail'" in cli("inspect", *WORDS, "--shape", "3,16,16", "--regions", "tail").complaint
