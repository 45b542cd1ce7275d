"""eval --resume: a folder of records goes with one job, down to the weights and the images."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

WORDS = ["eval", "net.py:net", "--trust", "-T", "2", "--size", "16", "--batch-size", "4", "--data"]


def test_what_was_replaced_is_noticed(home: Path, cli) -> None:
    """The names of all files stay as they are."""
    model = nn.Sequential(nn.Conv2d(3, 6, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(96, 3))
    words = [*WORDS, "imagefolder:images", "--weights", "w.pt", "--resume", "records"]
    torch.save(model.state_dict(), home / "w.pt")
    done = cli(*words)
    assert done.code == 0, done.err
    assert cli(*words).out == done.out

    good = (home / "w.pt").read_bytes()
    torch.save({name: value + 1 for name, value in model.state_dict().items()}, home / "w.pt")
    assert "(weights of the model was " in cli(*words).complaint
    (home / "w.pt").write_bytes(good)

    image = home / "images" / "ant" / "0.png"
    old = image.read_bytes()
    Image.effect_noise((20, 20), 50).save(image)
    complaint = cli(*words).complaint
    assert "list of data was " in complaint
    assert "list of calibration was " in complaint
    image.write_bytes(old)

    code = (home / "net.py").read_text()
    (home / "net.py").write_text(code.replace("nn.ReLU()", "nn.ReLU6()"))
    assert "another job (files was " in cli(*words).complaint
    (home / "net.py").write_text(code)
    assert cli(*words).out == done.out


@pytest.mark.parametrize("torn", ["torn", '{"job": {"mo'])
def test_torn_records_are_said(home: Path, cli, torn: str) -> None:
    words = [*WORDS, "net.py:batches", "--resume", f"torn {len(torn)}"]
    done = cli(*words)
    path = home / f"torn {len(torn)}" / "records-0.jsonl"
    whole = path.read_text()
    path.write_text(whole + torn)
    again = cli(*words)
    assert again.out == done.out
    assert "had 1 lines that were torn, damaged or repeated; they do not count" in again.err
    assert path.read_text() == whole
