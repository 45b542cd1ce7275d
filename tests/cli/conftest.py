"""Commands as a user would type them, at a home with a small model and twelve images."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

MODEL = """
import torch
from torch import nn

def net(num_classes=3):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(96, num_classes)
    )

def sick():
    model = net()
    model[0].weight.data[0, 0, 0, 0] = float("nan")
    return model

def clumsy():
    raise ValueError("no such thing")

def batches(split="val"):
    torch.manual_seed(len(split))
    return [(torch.rand(4, 3, 16, 16), torch.randint(0, 3, (4,))) for _ in range(3)]
"""


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line that a mistake is told in."""
        assert "Traceback" not in self.err
        assert self.out == ""
        return self.err.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of one's own and twelve images."""
    from PIL import Image

    home = tmp_path_factory.mktemp("a home")
    (home / "net.py").write_text(MODEL)
    for label, name in enumerate(("ant", "bee", "cat")):
        (home / "images" / name).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (20, 20), (80 * label, 60 * i, 99)).save(home / "images" / name / f"{i}.png")
    return home


@pytest.fixture
def cli(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """A command in this process, as if typed at home."""
    from spikecast.cli import main

    monkeypatch.chdir(home)

    def run(*words: str) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(words)
        return Done(int(end.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def start_cli(home: Path) -> Callable[..., subprocess.Popen[str]]:
    """A command in a process of its own."""

    def start(*words: str, launch: Sequence[str] = (), covered: bool = True, **options: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        if not covered:
            environment = {name: value for name, value in environment.items() if not name.startswith("COV")}
        command = [sys.executable, "-m", *launch, "spikecast", *words]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(command, cwd=home, text=True, env=environment, **streams)

    return start
