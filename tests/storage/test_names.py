"""Names of files that are no UTF-8, as any system but Windows and macOS has them: kept, read back, and printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config
from spikecast.errors import ArtifactError


@pytest.mark.skipif(sys.platform != "linux", reason="its names of files are text")
def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path, x = tmp_path / os.fsdecode(b"n\xff.spikecast"), torch.randn(2, 4)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    snn = spikecast.convert(model, [x], Config(num_steps=2, thresholds="quantile"))
    snn.save(path)
    assert os.listdir(os.fsencode(tmp_path)) == [b"n\xff.spikecast"]
    assert torch.equal(spikecast.load(path)(x), snn(x))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=r"n\udcff\.spikecast is cut short or damaged"):
        spikecast.load(path)
    done = subprocess.run([sys.executable, "-m", "spikecast", "inspect", path], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"spikecast: ")
    assert rb"n\udcff.spikecast is cut short" in done.stderr
