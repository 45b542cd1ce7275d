"""The wheel and the sdist: what is in them, and that the core works from the wheel without any extra."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import spikecast

ROOT = Path(__file__).parents[2]
MODEL = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))

def images():
    return [(torch.rand(4, 1, 8, 8), torch.arange(4))]
"""
# In place of a machine where only the core is installed: the packages of all extras cannot be found.
WITHOUT_EXTRAS = """
import sys
from importlib.machinery import PathFinder

class Core:
    missing = {"PIL", "pycocotools", "timm", "torchvision", "matplotlib", "sklearn", "nir", "h5py"}
    missing |= {"onnx", "onnxscript"}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in cls.missing else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Core
from spikecast.cli import main
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both; built with what is installed, so that no network is needed."""
    out = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def unpacked(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip would lay it out."""
    (wheel,) = dist.glob("*.whl")
    place = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(place)
    return place


def test_wheel_holds_the_package_and_nothing_else(unpacked: Path) -> None:
    info = f"spikecast-{spikecast.__version__}.dist-info"
    assert {p.name for p in unpacked.iterdir()} == {"spikecast", info}
    sources = {p.relative_to(ROOT / "src") for p in (ROOT / "src").rglob("*") if p.is_file() and p.suffix != ".pyc"}
    ignored = {".nbi", ".nbc"}  # what numba keeps beside the kernels
    found = {p.relative_to(unpacked) for p in (unpacked / "spikecast").rglob("*") if p.is_file()}
    assert found == {p for p in sources if p.suffix not in ignored}
    demo = [f"sources/demo/{name}" for name in ("cnn.safetensors", "llm.safetensors", "text.txt")]
    for name in ("py.typed", "paper/paper.json", *demo):
        assert (unpacked / "spikecast" / name).is_file()
    assert sum(p.stat().st_size for p in (unpacked / "spikecast" / "sources" / "demo").iterdir()) < 800_000


def test_metadata(unpacked: Path) -> None:
    (info,) = unpacked.glob("*.dist-info")
    said = email.message_from_string((info / "METADATA").read_text(encoding="utf-8"))
    assert (said["Name"], said["Version"]) == ("spikecast", spikecast.__version__)
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in said.get_all("Classifier", [])
    assert {line.split(",")[0] for line in said.get_all("Project-URL", [])} >= {"Homepage", "Issues", "Changelog"}
    extras = {"vision", "report", "demo", "nir", "onnx", "transformers", "hub", "dev"}
    assert set(said.get_all("Provides-Extra", [])) == extras
    assert (info / "licenses" / "LICENSE").is_file()
    assert "spikecast = spikecast.cli:main" in (info / "entry_points.txt").read_text()


def test_sdist_can_be_tested_and_built_again(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    wanted = {"pyproject.toml", "Makefile", "README.md", "LICENSE", "CHANGELOG.md", "src/spikecast/py.typed"}
    wanted |= {"CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", ".pre-commit-config.yaml", ".github/workflows/ci.yml"}
    wanted |= {
        "tests/conftest.py",
        "examples/train_demo.py",
        "docs/cli.md",
        "src/spikecast/sources/demo/cnn.safetensors",
    }
    assert wanted <= names
    assert not [name for name in names if name.endswith((".pyc", ".nbi", ".nbc")) or ".venv" in name]


@pytest.fixture
def core(unpacked: Path, tmp_path: Path):
    """A command of the wheel on a machine without extras."""
    (tmp_path / "net.py").write_text(MODEL)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(unpacked), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", WITHOUT_EXTRAS, *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)

    return run


@pytest.mark.slow  # `make dist` runs it
def test_the_core_alone(core, tmp_path: Path) -> None:
    done = core("inspect", "net.py:net", "--trust", "--shape", "1,8,8")
    assert done.returncode == 0, done.stderr
    assert "fed by spikes" in done.stdout
    assert core("doctor").returncode == 0
    done = core("report", "net.py:net", "--trust", "--data", "net.py:images", "--out", "page.html")
    assert done.returncode == 0, done.stderr
    assert "data:image/png;base64," in (tmp_path / "page.html").read_text()  # pictures need no Pillow
    done = core("demo")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].endswith('pip install "spikecast[demo]"')
    done = core("demo", "--model", "tones", "--limit", "16", "--steps", "2")  # its sounds are made by code
    assert done.returncode == 0, done.stderr
    assert "of 16 sounds, at " in done.stdout
