"""Data and weights of strangers: what would hang, fill the memory or lead elsewhere is refused in one line."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

from spikecast.cli.options import SettingOptions
from spikecast.errors import ConfigError, DataError, SpikecastError
from spikecast.sources import Preparation, open_data
from spikecast.sources.classes import class_numbers
from spikecast.sources.hub import _check_folder
from spikecast.sources.images import read_classes, read_pixels
from spikecast.sources.models import load_weights

RAW = Preparation(size=None, mean=(0, 0, 0), std=(1, 1, 1))
DEEP, DIGITS = "[" * 100_000, "9" * 5000


@contextmanager
def refused(message: str, kind: type[SpikecastError] = DataError) -> Iterator[None]:
    """In one line, and without taking memory."""
    tracemalloc.start()
    try:
        with pytest.raises(kind, match=message) as caught:
            yield
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int) -> bytes:
    """A picture that declares its size and holds hardly anything."""
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"PLTE", bytes(3)), chunk(b"IDAT", zlib.compress(bytes(1000)))]
    return b"\x89PNG\r\n\x1a\n" + b"".join([*parts, chunk(b"IEND", b"")])


@pytest.mark.parametrize("read", [read_pixels, read_classes])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_images_that_are_no_files_or_too_large(read: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(png(10_001, 10_000))
    with refused(r"large.png cannot be read as .*\(it has 10001 x 10000 pixels, the bound is 100000000\); repair or"):
        read(tmp_path / "large.png")
    (tmp_path / "huge.png").write_bytes(png(2**31 - 1, 2**31 - 1))
    with refused("huge.png cannot be read as"):
        read(tmp_path / "huge.png")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    for name in ("pipe.png", "zero.png"):
        with refused(rf"{name} cannot be read as .*there is no such file"):
            read(tmp_path / name)


def test_pictures_that_start_programs_are_not_read(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "page.eps")
    os.rename(tmp_path / "page.eps", tmp_path / "page.png")  # for which Pillow would call Ghostscript
    with refused("page.png cannot be read as an image"):
        read_pixels(tmp_path / "page.png")


@pytest.mark.parametrize("kind", ["pipe", "sparse"])
def test_rows_of_cifar_that_are_no_file_or_without_end(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "test_batch.bin"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 3073 * 10**8)  # takes no room on the disk
    with refused("test_batch.bin has .* bytes, not a multiple of 3073, up to 50000"):
        open_data(f"cifar10:{tmp_path}")


def coco(folder: Path, text: str | None = None, **changes: Any) -> str:
    box = {"image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 4], **changes.pop("box", {})}
    document = {
        "images": [{"id": 1, "file_name": "a.png", **changes.pop("image", {})}],
        "annotations": [box],
        "categories": [{"id": 2, "name": "cat"}],
        **changes,
    }
    for name in ("annotations", "val2017"):
        (folder / name).mkdir(exist_ok=True)
    Image.new("RGB", (8, 8)).save(folder / "val2017" / "a.png")
    (folder / "annotations" / "instances_val2017.json").write_text(text or json.dumps(document))
    return f"coco:{folder}"


def test_a_sound_coco_folder_is_read(tmp_path: Path) -> None:
    ((_, (target,)),) = open_data(coco(tmp_path), RAW)
    assert target["boxes"].tolist() == [[1, 2, 4, 6]]


@pytest.mark.parametrize("text", [DEEP, f'{{"images": {DIGITS}}}', "{", "\xff"])
def test_annotations_that_are_no_json(text: str, tmp_path: Path) -> None:
    with refused(r"instances_val2017.json cannot be read as JSON \(.*\); get it again"):
        open_data(coco(tmp_path, text), RAW)


@pytest.mark.parametrize(
    "changes",
    [
        {"images": 3},
        {"images": [3]},
        {"images": {"a": 1}},
        {"image": {"id": None}},
        {"image": {"id": float("inf")}},
        {"annotations": ["text"]},
        {"annotations": None},
        {"box": {"bbox": "abcd"}},
        {"box": {"bbox": [1, 2, 3]}},
        {"box": {"bbox": [1, 2, 3, None]}},
        {"box": {"bbox": [1, 2, 3, float("nan")]}},
        {"box": {"bbox": [1, 2, 3, 10**400]}},
        {"box": {"category_id": 2**70}},
        {"box": {"category_id": [1]}},
        {"box": {"iscrowd": {}}},
        {"categories": [{"id": 1}]},
    ],
)
def test_annotations_of_wrong_types(changes: dict[str, Any], tmp_path: Path) -> None:
    with refused(r"instances_val2017.json is not a COCO annotation file \(\w+: .*\); get it again"):
        open_data(coco(tmp_path, **changes), RAW)


OUTSIDE = ["../../secret.png", "/etc/passwd", "a/../../../secret.png", ".."]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_out_of_the_folder(name: str, tmp_path: Path) -> None:
    with refused(f"the name '{name}' leads out of the folder .*val2017; get the data again"):
        open_data(coco(tmp_path, image={"file_name": name}), RAW)
    lists = tmp_path / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "val.txt").write_text(f"first\n{name}/x\n")
    with refused(f"the name '{name}/x.jpg' leads out of the folder .*JPEGImages"):
        open_data(f"voc:{tmp_path}", RAW)


def test_links_in_a_folder_are_followed(tmp_path: Path) -> None:
    spec = coco(tmp_path)
    os.rename(tmp_path / "val2017", tmp_path / "elsewhere")
    (tmp_path / "val2017").symlink_to("elsewhere")
    assert len(list(open_data(spec, RAW))) == 1


@pytest.mark.parametrize("text", [DEEP, f'{{"cat": {DIGITS}}}', None])
def test_maps_of_classes_that_cannot_be_read(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    if text is None:
        os.mkfifo(path)
    else:
        path.write_text(text)
    with refused(r"map.json cannot be read as JSON \(.*\); give --class-map"):
        class_numbers(["cat"], 3, path)


def test_a_map_of_classes_without_end(tmp_path: Path) -> None:
    (tmp_path / "map.json").touch()
    os.truncate(tmp_path / "map.json", 2**40)
    with refused("it is no file, or has more than"):
        class_numbers(["cat"], 3, tmp_path / "map.json")
    with refused("it is no file, or has more than"):
        class_numbers(["cat"], 3, Path("/dev/zero"))


def packed(path: Path, size: int) -> None:
    """A checkpoint whose weights are packed, which torch reads and never writes."""
    torch.save({"weight": torch.zeros(1000)}, path)
    with zipfile.ZipFile(path) as file:
        members = {member.filename: file.read(member) for member in file.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, bytes(size) if name.endswith("data/0") else content)


def test_a_checkpoint_that_unpacks_to_more_than_it_has(tmp_path: Path) -> None:
    packed(tmp_path / "bomb.pt", 20_000_000)
    with refused(r"bomb.pt cannot be read as weights \(its \d+ bytes unpack to 20\d+, and torch.save packs nothing\)"):
        load_weights(nn.Linear(3, 3), tmp_path / "bomb.pt")


def test_safetensors_that_lie_about_their_size(tmp_path: Path) -> None:
    for number, end in enumerate((2**40, 2**63 - 1, -4)):
        entry = {"weight": {"dtype": "F32", "shape": [end // 4], "data_offsets": [0, end]}}
        header = json.dumps(entry).encode()
        path = tmp_path / f"{number}.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
        with refused(rf"{number}.safetensors cannot be read as weights"):
            load_weights(nn.Linear(3, 3), path)
    (tmp_path / "head.safetensors").write_bytes((2**62).to_bytes(8, "little") + bytes(64))
    with refused("head.safetensors cannot be read as weights"):
        load_weights(nn.Linear(3, 3), tmp_path / "head.safetensors")


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_weights_that_are_no_file(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with refused(f"there is no weights file .*{name}"):
        load_weights(nn.Linear(3, 3), tmp_path / name)


def test_a_folder_of_the_hub_with_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    _check_folder(tmp_path)
    os.mkfifo(tmp_path / "preprocessor_config.json")
    with refused("preprocessor_config.json is no file; remove it"):
        _check_folder(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        f"num_steps={DIGITS}",
        f"overrides={DEEP}",
        f"num_steps={'9' * 400}",
        "num_steps=[1]",
        "num_steps=null",
        "quantile=NaN",
        "quantile=1e400",
        "signed=1",
        "coding={}",
        "budget_costs=[]",
        "overrides=5",
        'overrides={"a": 5}',
        'overrides={"a": {"num_levels": "x"}}',
        "x" * 1000,
    ],
)
def test_settings_of_wrong_types(text: str) -> None:
    with refused("must be|cannot be read|is not a|is neither|give NAME=VALUE", ConfigError):
        SettingOptions(others=[text]).config()
