"""Data sets in their publishers' forms, written here in small: what is read, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from PIL import Image

from spikecast.errors import ConfigError, DataError
from spikecast.sources import Preparation, open_data, samples
from spikecast.sources.data import Data
from spikecast.sources.limit import Limited, spread

PLAIN = Preparation(size=8, crop=1.0, mean=(0, 0, 0), std=(1, 1, 1))
RAW = Preparation(size=None, mean=(0, 0, 0), std=(1, 1, 1))


def opened(spec: str, *args: Any, **settings: Any) -> Data:
    data = open_data(spec, *args, **settings)
    assert isinstance(data, Data)
    return data


def paint(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (8, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for label, name in enumerate(("ant", "bee", "cat")):
        for i in range(2):
            paint(tmp_path / "val" / name / f"{i}.png", (50 * label, 10 * i, 0))
    (tmp_path / "val" / "ant" / "notes.txt").write_text("no image")
    return tmp_path


def test_image_folder(folder: Path) -> None:
    data = opened(f"imagefolder:{folder}", PLAIN, batch_size=4)
    assert (data.task, len(data), data.classes) == ("classification", 6, ["ant", "bee", "cat"])
    batches = list(data)
    assert [len(x) for x, _ in batches] == [4, 2]
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert (images[:, 0, 0, 0] * 255).round().tolist() == [0, 0, 50, 50, 100, 100]
    assert (images[:, 1, 3, 3] * 255).round().tolist() == [0, 10] * 3
    assert torch.equal(torch.cat([x for x, _ in data]), images)  # a second time
    assert len(opened(f"imagefolder:{folder / 'val'}", PLAIN, limit=5)) == 5


def test_a_limit_is_spread_over_the_classes(folder: Path) -> None:
    assert [y.tolist() for _, y in open_data(f"imagefolder:{folder}", PLAIN, limit=3)] == [[0, 1, 2]]
    assert spread(range(10), 4) == [0, 2, 5, 7]
    assert list(spread(range(3), 5)) == [0, 1, 2]


def test_splits(folder: Path) -> None:
    with pytest.raises(DataError, match="has the splits val, and not 'train'"):
        open_data(f"imagefolder:{folder}", PLAIN, split="train")
    paint(folder / "train" / "ant" / "0.png", (1, 2, 3))
    assert len(opened(f"imagefolder:{folder}", PLAIN, split="train")) == 1
    assert len(opened(f"imagefolder:{folder / 'val'}", PLAIN, split="train")) == 6  # no splits: all there is


def test_batches_that_are_yielded_can_be_gone_through_again(tmp_path: Path) -> None:
    """Commands that try several settings need the same batches for each."""
    (tmp_path / "mine.py").write_text("def batches(split):\n    yield from ([n] for n in range(len(split)))\n")
    for limit, wanted in ((None, [[0], [1], [2], [3], [4]]), (2, [[0], [1]])):
        data = open_data(f"{tmp_path / 'mine.py'}:batches", split="train", limit=limit, trust=True)
        assert [list(data), list(data)] == [wanted, wanted]


class Pair(NamedTuple):
    x: Any
    y: Any


@pytest.mark.parametrize("form", ["pair", "dict", "tensor", "detection", "together", "named"])
def test_somebody_elses_batches_are_cut(form: str) -> None:
    x, y = torch.arange(12.0).reshape(4, 3), torch.arange(4)
    made: dict[str, Any] = {
        "pair": (x, y),
        "dict": {"x": x, "y": y},
        "tensor": x,
        "detection": (list(x), [{"n": n} for n in y]),
    }
    made |= {"together": ([x, -x], y), "named": Pair((x, -x), y)}
    batches = [made[form]] * 3
    assert [samples(b) for b in Limited(batches, 9)] == [4, 4, 1]
    assert [samples(b) for b in Limited(batches, 8)] == [4, 4]
    last = list(Limited(batches, 2))[-1]
    if form in ("together", "named"):
        assert type(last) is type(made[form])
        (a, b), label = last
        assert torch.equal(a, x[:2])
        assert torch.equal(b, -x[:2])
        assert torch.equal(label, y[:2])
    elif form == "detection":
        assert [len(part) for part in last] == [2, 2]
    elif form != "tensor":
        assert [len(v) for v in (last.values() if form == "dict" else last)] == [2, 2]


def test_corrupt_images_are_refused_or_skipped_and_named(folder: Path) -> None:
    bad = folder / "val" / "bee" / "1.png"
    bad.write_bytes(bad.read_bytes()[:40])
    with pytest.raises(DataError, match=r"bee/1.png cannot be read as an image"):
        list(open_data(f"imagefolder:{folder}", PLAIN))
    data = opened(f"imagefolder:{folder}", PLAIN, batch_size=2, skip_corrupt=True)
    assert [labels.tolist() for _, labels in data] == [[0, 0], [1], [2, 2]]
    assert len(data.skipped) == 1
    assert "bee/1.png" in data.skipped[0]


def test_preparation() -> None:
    pixels = torch.zeros(3, 20, 40, dtype=torch.uint8)
    pixels[:, :, 20:] = 255
    out = Preparation(size=8, crop=0.8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.25, 0.5))(pixels)
    assert out.shape == (3, 8, 8)
    assert out[0, 4, 0] == -1
    assert out[1, 4, -1] == pytest.approx(2)
    small = PLAIN(torch.full((3, 4, 6), 255, dtype=torch.uint8))
    assert small.shape == (3, 8, 8)
    whole = Preparation(size=8, crop=1.0, mean=(0, 0, 0), std=(1, 1, 1), squash=True)
    assert torch.equal(whole(pixels[:, :, :20]), PLAIN(pixels[:, :, :20]))  # a square is as it was
    sides = torch.zeros(3, 20, 40, dtype=torch.uint8)
    sides[:, :, :5] = 255
    assert whole(sides)[0, :, 0].min() > 0.8  # the outermost column, which a square out of the middle leaves away
    assert PLAIN(sides).max() == 0
    assert Preparation.from_json(json.loads(json.dumps(PLAIN.to_json()))) == PLAIN
    for wrong in ({"size": 0}, {"crop": 0.0}, {"std": (1, 0, 1)}, {"interpolation": "cubic"}):
        with pytest.raises(ConfigError):
            Preparation(**wrong)


@pytest.mark.parametrize(("kind", "labels"), [("cifar10", 1), ("cifar100", 2)])
def test_cifar(kind: str, labels: int, tmp_path: Path) -> None:
    rows = torch.randint(0, 256, (5, labels + 3072), dtype=torch.uint8)
    rows[:, :labels] = torch.arange(5).reshape(-1, 1)
    path = tmp_path / ("cifar-10-batches-bin/test_batch.bin" if labels == 1 else "cifar-100-binary/test.bin")
    path.parent.mkdir()
    path.write_bytes(rows.numpy().tobytes())
    prepare = Preparation(size=32, crop=1.0, mean=(0, 0, 0), std=(1, 1, 1))
    ((images, found),) = open_data(f"{kind}:{tmp_path}", prepare)
    assert found.tolist() == [0, 1, 2, 3, 4]
    assert torch.equal((images * 255).round().byte(), rows[:, labels:].reshape(-1, 3, 32, 32))
    opened = open_data(f"{kind}:{tmp_path}", prepare)
    assert isinstance(opened, Data)
    assert opened.classes == []
    names = [f"kind_{i}" for i in range(10 if labels == 1 else 100)]
    listed = path.parent / ("batches.meta.txt" if labels == 1 else "fine_label_names.txt")
    for said, known in (("\n".join(names) + "\n\n", names), ("a\nb\n", [])):  # as published; of something else
        listed.write_text(said)
        opened = open_data(f"{kind}:{tmp_path}", prepare)
        assert isinstance(opened, Data)
        assert opened.classes == known
    path.write_bytes(rows.numpy().tobytes()[:-1])
    with pytest.raises(DataError, match="not a multiple"):
        open_data(f"{kind}:{tmp_path}", prepare)
    path.unlink()
    with pytest.raises(DataError, match="binary version"):
        open_data(f"{kind}:{tmp_path}", prepare)


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    images = [{"id": 7, "file_name": "b.png"}, {"id": 3, "file_name": "a.png"}]
    paint(tmp_path / "val2017" / "a.png", (255, 0, 0), (12, 9))
    paint(tmp_path / "val2017" / "b.png", (0, 255, 0), (6, 7))
    annotations = [
        {"id": 1, "image_id": 3, "category_id": 18, "bbox": [1, 2, 3, 4], "iscrowd": 0, "area": 12},
        {"id": 2, "image_id": 3, "category_id": 1, "bbox": [0, 0, 5, 5], "iscrowd": 1, "area": 25},
    ]
    categories = [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}]
    path = tmp_path / "annotations" / "instances_val2017.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return tmp_path


def test_coco(coco: Path) -> None:
    data = opened(f"coco:{coco}", RAW, batch_size=8)
    ((images, targets),) = data
    assert data.task == "detection"
    assert [tuple(x.shape) for x in images] == [(3, 9, 12), (3, 7, 6)]
    assert targets[0]["boxes"].tolist() == [[1, 2, 4, 6], [0, 0, 5, 5]]
    assert targets[0]["labels"].tolist() == [18, 1]
    assert targets[0]["iscrowd"].tolist() == [0, 1]
    assert targets[1]["boxes"].shape == (0, 4)
    path = coco / "annotations" / "instances_val2017.json"
    path.write_text(path.read_text()[:-30])
    with pytest.raises(DataError, match="cannot be read as JSON"):
        open_data(f"coco:{coco}", RAW)
    path.unlink()
    with pytest.raises(DataError, match=r"instances_val2017.json"):
        open_data(f"coco:{coco}", RAW)


def test_voc(tmp_path: Path) -> None:
    root = tmp_path / "VOCdevkit" / "VOC2012"
    paint(root / "JPEGImages" / "x.jpg", (9, 9, 9), (16, 8))
    (root / "SegmentationClass").mkdir()
    classes = Image.new("P", (16, 8), 0)
    classes.putpalette([0, 0, 0, 128, 0, 0] + [1] * 750)
    classes.paste(1, (8, 0, 16, 8))
    classes.paste(255, (0, 0, 16, 1))
    classes.save(root / "SegmentationClass" / "x.png")
    names = root / "ImageSets" / "Segmentation" / "val.txt"
    names.parent.mkdir(parents=True)
    names.write_text("x\n")
    data = opened(f"voc:{tmp_path}", PLAIN)
    ((images, labels),) = data
    assert data.task == "segmentation"
    assert images.shape == (1, 3, 8, 8)
    assert labels.tolist() == [[[255] * 8] + [[0] * 4 + [1] * 4] * 7]
    with pytest.raises(DataError, match=r"train.txt"):
        open_data(f"voc:{tmp_path}", PLAIN, split="train")


def test_functions_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def data():\n    return [1, 2]\nvalue = 3\n")
    with pytest.raises(ConfigError, match="--trust"):
        open_data(f"{file}:data")
    assert open_data(f"{file}:data", trust=True) == [1, 2]
    file.write_text("def data(split):\n    return [split]\ndef bad():\n    return 1 / 0\nvalue = 3\n")
    assert open_data(f"{file}:data", trust=True, split="train") == ["train"]
    with pytest.raises(DataError, match=r"ZeroDivisionError: division by zero, line 4 of .*mine.py"):
        open_data(f"{file}:bad", trust=True)
    with pytest.raises(ConfigError, match="no function 'value'"):
        open_data(f"{file}:value", trust=True)
    with pytest.raises(DataError, match="no file"):
        open_data(f"{tmp_path / 'other.py'}:data", trust=True)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("imagefolder:/nowhere/at/all", "there is no folder /nowhere/at/all"),
        ("imagenets:/tmp", "give KIND:DIR with KIND one of imagefolder, imagenet"),
        ("imagefolder", "give KIND:DIR"),
    ],
)
def test_specs_that_name_nothing(spec: str, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        open_data(spec)


def test_folders_without_classes_or_images(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no folders"):
        open_data(f"imagefolder:{tmp_path / 'empty'}")
    (tmp_path / "empty" / "ant").mkdir()
    with pytest.raises(DataError, match="no images"):
        open_data(f"imagefolder:{tmp_path / 'empty'}")
    with pytest.raises(DataError, match="has 3 classes, ImageNet 1000"):
        open_data(f"imagenet:{folder}")
    with pytest.raises(ConfigError, match="at least 1"):
        open_data(f"imagefolder:{folder}", batch_size=0)
