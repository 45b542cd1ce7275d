"""What cannot be a model, data or a preparation is refused in one line that says what to do instead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from spikecast.errors import ConfigError, DataError, MissingExtraError, ModelError, SpikecastError
from spikecast.sources import Preparation, open_data
from spikecast.sources.images import read_classes, read_pixels
from spikecast.sources.limit import Limited, samples
from spikecast.sources.models import open_model
from spikecast.sources.plugin import function_in


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "size=0 must be from 1 to 8192"),
        ({"size": 8193}, "size=8193 must be"),
        ({"crop": 0.0}, r"crop=0.0 must be above 0"),
        ({"crop": 1.5}, r"crop=1.5 must be"),
        ({"mean": (0.0, 0.0)}, "give one number each, or three"),
        ({"mean": (0.0,)}, "give one number each, or three"),
        ({"std": (1.0, 0.0, 1.0)}, "std above 0"),
        ({"squash": 1}, "squash=1 is not a bool"),
        ({"interpolation": "lanczos"}, "must be nearest, bilinear or bicubic"),
    ],
)
def test_preparations_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Preparation(**settings)


def test_a_preparation_is_written_and_read() -> None:
    grey = Preparation(size=8, crop=1.0, mean=(0.5,), std=(0.25,), interpolation="nearest")
    assert Preparation.from_json(grey.to_json()) == grey
    assert str(grey) == "images of 8 pixels, crop 1, nearest, mean 0.5, std 0.25"
    assert "bilinear, squashed, mean" in str(Preparation(squash=True))
    assert str(Preparation(size=None)).startswith("images of any size, mean 0.485, 0.456, 0.406")
    for broken in ({}, {"mean": 3, "std": [1]}, {**grey.to_json(), "colour": 1}, {"mean": ["x"], "std": [1]}):
        with pytest.raises(ConfigError, match="does not say how images are made ready"):
            Preparation.from_json(broken)


def test_small_images_and_their_classes_are_padded_alike() -> None:
    prepare = Preparation(size=4, crop=1.0, mean=(0.0,), std=(1.0,), interpolation="nearest")
    image, classes = torch.full((1, 1, 4), 255, dtype=torch.uint8), torch.arange(4).reshape(1, 4)
    assert prepare(image).shape == (1, 4, 4)
    assert prepare.labels(classes).shape == (4, 4)
    assert Preparation(size=None).labels(classes) is classes


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("timm", lambda: open_model("timm:vit_tiny_patch16_224")),
        ("torchvision", lambda: open_model("torchvision:resnet18")),
        ("sklearn.datasets", lambda: open_data("demo:digits")),
        ("PIL", lambda: read_pixels("x.png")),
        ("PIL", lambda: read_classes("x.png")),
    ],
    ids=["timm", "torchvision", "digits", "images", "classes"],
)
def test_what_is_not_installed_is_named(
    package: str, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pip install \"spikecast\[(vision|demo)\]\""):
        call()


@pytest.mark.parametrize("read", [read_pixels, read_classes])
def test_images_that_are_too_large_or_none(
    read: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("P", (40, 40)).save(tmp_path / "bomb.png")
    (tmp_path / "text.png").write_text("no image")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    for name in ("bomb.png", "text.png", "none.png"):
        with pytest.raises(DataError, match=rf"{name} cannot be read as .*; repair or remove it"):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("spec", "settings", "message"),
    [
        ("torchvision:resnet18", {"weights": "w.pt", "pretrained": True}, "take one of them"),
        ("torchvision:resnet18", {"options": {"depht": 3}}, r"torchvision:resnet18 could not be made .*depht"),
        (
            "timm:vit_tiny_patch16_224",
            {"options": {"depht": 3}},
            r"timm:vit_tiny.* could not be made .*depht",
        ),
        ("demo:cnn", {"options": {"width": 3}}, "is as it is; leave width out"),
        ("demo:rnn", {}, "no demo network 'rnn'; take one of cnn, vit, llm, tones"),
        ("none.pt2", {}, "there is no program none.pt2"),
    ],
)
def test_models_that_cannot_be_made(spec: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpikecastError, match=message) as error:
        open_model(spec, **settings)
    assert "\n" not in str(error.value)


def test_a_finished_program_takes_no_options(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(b"whatever: it is not read")
    with pytest.raises(ConfigError, match="say --trust"):
        open_model(str(path))
    with pytest.raises(ConfigError, match="is a finished program; leave width out"):
        open_model(str(path), trust=True, options={"width": 3})
    with pytest.raises(DataError, match="cannot be read as a program"):
        open_model(str(path), trust=True)


def test_files_of_ones_own_that_are_none(tmp_path: Path) -> None:
    broken, text = tmp_path / "broken.py", tmp_path / "text.txt"
    broken.write_text("def f(:\n")
    text.write_text("x")
    with pytest.raises(DataError, match=r"broken.py cannot be run \(SyntaxError"):
        function_in(f"{broken}:f", "data", trust=True)
    with pytest.raises(DataError, match="is not a Python file"):
        function_in(f"{text}:f", "data", trust=True)
    for spec in ("f", f"{broken}:"):
        with pytest.raises(ConfigError, match=r"give FILE.py:FUNCTION"):
            function_in(spec, "data", trust=True)


def test_errors_of_ours_pass_through_functions_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from spikecast.errors import ModelError\ndef f():\n    raise ModelError('as it is')\n")
    with pytest.raises(ModelError, match=r"^as it is$"):
        function_in(f"{file}:f", "model", trust=True)()


def test_cifar_of_the_wrong_kind(tmp_path: Path) -> None:
    row = bytearray(1 + 3 * 32 * 32)
    row[0] = 10
    (tmp_path / "test_batch.bin").write_bytes(row)
    with pytest.raises(DataError, match="has a label above 9; it is not CIFAR-10"):
        open_data(f"cifar10:{tmp_path}")
    (tmp_path / "test_batch.bin").write_bytes(b"")
    with pytest.raises(DataError, match="has 0 bytes"):
        open_data(f"cifar10:{tmp_path}")


def test_samples_of_batches_of_any_form() -> None:
    assert samples(torch.tensor(3.0)) == samples([]) == samples("text") == 1
    assert samples({"a": torch.zeros(3, 2)}) == samples(([1, 2, 3], "x")) == 3
    cut = next(iter(Limited([{"a": torch.zeros(3, 2), "scale": 2.0}], 2)))
    assert (len(cut["a"]), cut["scale"]) == (2, 2.0)
