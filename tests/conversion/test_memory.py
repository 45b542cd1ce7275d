"""Converting, running, saving and loading in a loop keeps nothing but what torch.export itself keeps."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config

X = torch.randn(4, 3, 8, 8)
TIMES = 3
MODEL = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()


def kept(job: Callable[[], None]) -> Counter[str]:
    """How many objects of each type are there after each further time."""
    counts = []
    for times in (2, TIMES):  # the first fill caches that stay as they are
        for _ in range(times):
            job()
        gc.collect()
        counts.append(Counter(f"{type(one).__module__}.{type(one).__name__}" for one in gc.get_objects()))
    return counts[1] - counts[0]


def test_nothing_is_kept(tmp_path: Path) -> None:
    def exported() -> None:
        with torch.no_grad():
            free: dict[int, object] = dict.fromkeys(range(4), torch.export.Dim.AUTO)
            torch.export.export(MODEL, (X,), dynamic_shapes=(({**free}),), strict=False)

    def whole() -> None:
        snn = spikecast.convert(MODEL, [X], Config(num_steps=2, thresholds="quantile"))
        snn.run(X)
        snn.save(tmp_path / "net")
        answer: Tensor = spikecast.load(tmp_path / "net").run(X)
        assert answer.shape == (2, 4, 3)

    theirs, ours = kept(exported), kept(whole)
    assert not [name for name in ours if name.startswith("spikecast.")]
    assert (ours - theirs).total() <= 40 * TIMES, ours - theirs  # torch keeps where a size came from: some 20
