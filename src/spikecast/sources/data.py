"""Where inputs and targets come from: folders and archives in the forms their publishers use, and the demo's own."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spikecast.errors import ConfigError, DataError, first_line
from spikecast.sources.classes import class_names, class_numbers
from spikecast.sources.demo import DATA as DEMO
from spikecast.sources.documents import inside, read_json
from spikecast.sources.images import Preparation, read_classes, read_pixels
from spikecast.sources.limit import Again, Limited, spread
from spikecast.sources.plugin import check_file, function_in

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"}
Item = tuple[Tensor, Any]


@dataclass(frozen=True)
class Entry:
    """An image and its target, which is made ready when it is called for; a path is the file that holds it.

    Without a preparation it is an input as the network takes it.
    """

    prepare: Preparation | None
    image: Path | Tensor
    target: Any

    def __call__(self) -> Item:
        image = read_pixels(self.image) if isinstance(self.image, Path) else self.image
        if self.prepare is None:
            return image, self.target
        is_map = isinstance(self.target, Path)
        return self.prepare(image), self.prepare.labels(read_classes(self.target)) if is_map else self.target


def _described(part: Any) -> Any:
    """What tells one part of an entry from another: names and sizes of files, numbers themselves."""
    if isinstance(part, Path):
        return [str(part), part.stat().st_size if part.is_file() else None]
    if isinstance(part, Tensor):
        return _identity(part)
    return {key: _described(value) for key, value in part.items()} if isinstance(part, dict) else part


def _identity(image: Path | Tensor) -> Path | str:
    return image if isinstance(image, Path) else hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest()


@dataclass
class Data:
    """Batches of (images, targets) in a fixed order. What cannot be read is refused, or skipped and noted.

    `numbers` are the model's class numbers of the targets, where they are not the same.
    """

    task: str
    items: Sequence[Entry]
    batch_size: int = 32
    skip_corrupt: bool = False
    classes: Sequence[str] = ()
    skipped: list[str] = field(default_factory=list)
    numbers: Sequence[int] | None = None

    def __len__(self) -> int:
        """Images, those that will turn out to be corrupt included."""
        return len(self.items)

    def digest(self) -> str:
        """A checksum of the list: files by name and size, targets, and how many make up a batch."""
        found = hashlib.sha256(repr((self.task, self.batch_size, self.skip_corrupt, self.numbers)).encode())
        for item in self.items:
            found.update(json.dumps([_described(item.image), _described(item.target)]).encode())
        return found.hexdigest()

    def shared_with(self, other: Data) -> int:
        """How many of these images the other data has too: files by name, others by their pixels."""
        theirs = {_identity(item.image) for item in other.items}
        return sum(_identity(item.image) in theirs for item in self.items)

    def __iter__(self) -> Iterator[Any]:
        self.skipped.clear()
        for first in range(0, len(self.items), self.batch_size):
            found = []
            for make in self.items[first : first + self.batch_size]:
                try:
                    found.append(make())
                except DataError as error:
                    if not self.skip_corrupt:
                        raise
                    self.skipped.append(str(error))
            if found:
                yield self._batch(found)

    def _batch(self, found: list[Item]) -> Any:
        images, targets = [image for image, _ in found], [target for _, target in found]
        if self.task == "detection":  # images of different sizes
            return images, targets
        if self.numbers is not None:
            targets = [self.numbers[target] for target in targets]
        return torch.stack(images), torch.stack(targets) if isinstance(targets[0], Tensor) else torch.tensor(targets)

    def for_outputs(self, outputs: int, class_map: Path | None = None) -> Data:
        """The same with targets that are classes of a model with so many outputs."""
        numbers = class_numbers(self.classes, outputs, class_map)
        return replace(self, numbers=numbers, classes=class_names(self.classes, numbers, outputs))


def check_data(spec: str) -> None:
    """Refuse a text that names no data, or a file or folder that is not there; nothing of it is read."""
    kind, _, place = spec.partition(":")
    if kind == "demo" and place in DEMO:
        return
    if kind.endswith(".py"):
        check_file(spec, "data")
        return
    if kind not in SOURCES or not place:
        raise ConfigError(
            f"data {spec!r}: give KIND:DIR with KIND one of {', '.join(SOURCES)}, or one of "
            f"{', '.join(f'demo:{name}' for name in DEMO)}, or FILE.py:FUNCTION for data of your own: "
            "a function that yields batches (input, target)"
        )
    folder = Path(place).expanduser()
    if not folder.is_dir():
        raise DataError(f"data {spec!r}: there is no folder {folder}; give the folder that holds the images")


def open_data(
    spec: str,
    preparation: Preparation | None = None,
    *,
    split: str = "val",
    batch_size: int = 32,
    limit: int | None = None,
    skip_corrupt: bool = False,
    trust: bool = False,
) -> Iterable[Any]:
    """The batches of the data that a text names. A FILE.py runs code and needs `trust`.

    With a `limit`, images are taken at even distances over the set, which lies in the order of its classes. A function
    of one's own is given the `split` if it has a parameter of that name.
    """
    kind, _, place = spec.partition(":")
    check_data(spec)
    if batch_size < 1 or (limit is not None and limit < 1):
        raise ConfigError(f"batch_size={batch_size}, limit={limit}: both must be at least 1")
    if kind.endswith(".py"):
        make = function_in(spec, "data", trust=trust)
        if "split" in inspect.signature(make).parameters:
            make = partial(make, split=split)
        batches: Iterable[Any] = make()
        if isinstance(batches, Iterator):  # gone through once, it is empty
            batches = Again(make)
        return batches if limit is None else Limited(batches, limit)
    prepare = preparation or Preparation()
    if kind == "demo":
        task, items, classes = demo_data(place, prepare, split)
    else:
        task, items, classes = SOURCES[kind](Path(place).expanduser(), prepare, split)
    if not items:
        raise DataError(f"data {spec!r}: no images for split {split!r}")
    return Data(task, spread(items, limit), batch_size, skip_corrupt, classes)


def are_images(spec: str) -> bool:
    """Whether the data that a text names are images, which are made ready; others are taken as they are."""
    kind, _, name = spec.partition(":")
    return not kind.endswith(".py") and not (kind == "demo" and name in DEMO and DEMO[name].is_ready)


Source = tuple[str, Sequence[Entry], list[str]]


def demo_data(name: str, prepare: Preparation, split: str) -> Source:
    """What comes with the package."""
    data = DEMO[name]
    inputs, targets = data.make(split)
    numbers = targets.tolist() if data.task == "classification" else list(targets)
    how = None if data.is_ready else prepare
    return data.task, [Entry(how, *pair) for pair in zip(inputs, numbers, strict=True)], list(data.classes)


def image_folder(folder: Path, prepare: Preparation, split: str) -> Source:
    """DIR/split/CLASS/image, or DIR/CLASS/image; classes are numbered by name."""
    splits = [p.name for p in folder.iterdir() if p.name in ("train", "val", "test") and p.is_dir()]
    if splits and split not in splits:
        raise DataError(f"{folder} has the splits {', '.join(sorted(splits))}, and not {split!r}")
    root = folder / split if splits else folder
    classes = sorted(p.name for p in root.iterdir() if p.is_dir())
    if not classes:
        raise DataError(f"{root} has no folders; there must be one for each class, with its images")
    items = [
        Entry(prepare, path, label)
        for label, name in enumerate(classes)
        for path in sorted((root / name).rglob("*"))
        if path.suffix.lower() in SUFFIXES
    ]
    return "classification", items, classes


def imagenet(folder: Path, prepare: Preparation, split: str) -> Source:
    """An image folder of ImageNet's 1000 classes, named by their WordNet numbers."""
    task, items, classes = image_folder(folder, prepare, split)
    if len(classes) != 1000:
        raise DataError(
            f"{folder} has {len(classes)} classes, ImageNet 1000; take imagefolder:DIR for a part of it or your own"
        )
    return task, items, classes


def cifar(folder: Path, prepare: Preparation, split: str, *, classes: int) -> Source:
    """The binary version: rows of label bytes and 3 x 32 x 32 pixels. (The Python version is pickled, and not read.)"""
    forms = {  # and how many bytes the labels take: coarse, then fine
        10: ("cifar-10-batches-bin", "data_batch_*.bin", "test_batch.bin", 1),
        100: ("cifar-100-binary", "train.bin", "test.bin", 2),
    }
    inner, train, test, labels = forms[classes]
    root = folder / inner if (folder / inner).is_dir() else folder
    files = sorted(root.glob(train if split == "train" else test))
    if not files:
        raise DataError(
            f"{root} has no {test}; get the binary version of CIFAR-{classes} (the Python version runs code)"
        )
    width = labels + 3 * 32 * 32
    rows: list[Entry] = []
    for path in files:
        size = path.stat().st_size if path.is_file() else 0
        if not 0 < size <= 50_000 * width or size % width:
            raise DataError(f"{path} has {size} bytes, not a multiple of {width}, up to 50000; get it again")
        table = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).reshape(-1, width)
        if int(table[:, labels - 1].max()) >= classes:
            raise DataError(f"{path} has a label above {classes - 1}; it is not CIFAR-{classes}")
        pairs = zip(table[:, labels:].reshape(-1, 3, 32, 32), table[:, labels - 1].tolist(), strict=True)
        rows += [Entry(prepare, *pair) for pair in pairs]
    named = root / ("batches.meta.txt" if classes == 10 else "fine_label_names.txt")
    names = named.read_text(encoding="utf-8", errors="replace").split() if named.is_file() else []
    return "classification", rows, names if len(names) == classes else []


def coco(folder: Path, prepare: Preparation, split: str) -> Source:
    """DIR/val2017 and DIR/annotations/instances_val2017.json."""
    name = split if split[-4:].isdigit() else f"{split}2017"
    path = folder / "annotations" / f"instances_{name}.json"
    if not path.is_file():
        raise DataError(f"there is no {path}; a COCO folder has annotations/instances_{name}.json and {name}/")
    document = read_json(path, "get it again")
    try:
        images = sorted(document["images"], key=lambda image: int(image["id"]))
        by_image: dict[int, list[dict[str, Any]]] = {}
        for annotation in document["annotations"]:
            by_image.setdefault(int(annotation["image_id"]), []).append(annotation)
        classes = [str(c["name"]) for c in document["categories"]]
        targets = [_boxes(by_image.get(int(image["id"]), [])) for image in images]
        files = [inside(folder / name, str(image["file_name"])) for image in images]
    except DataError:
        raise
    except Exception as error:  # whatever wrong types, and numbers that are too large, make Python and torch raise
        said = f"{type(error).__name__}: {first_line(error)}"
        raise DataError(f"{path} is not a COCO annotation file ({said}); get it again") from error
    return "detection", [Entry(prepare, *pair) for pair in zip(files, targets, strict=True)], classes


def _boxes(annotations: list[dict[str, Any]]) -> dict[str, Tensor]:
    corners = [[x, y, x + w, y + h] for x, y, w, h in (a["bbox"] for a in annotations)]
    boxes = torch.tensor(corners, dtype=torch.float32).reshape(-1, 4)
    if not bool(boxes.isfinite().all()):
        raise ValueError("a box is not finite")
    return {
        "boxes": boxes,
        "labels": torch.tensor([int(a["category_id"]) for a in annotations], dtype=torch.int64),
        "iscrowd": torch.tensor([int(a.get("iscrowd", 0)) for a in annotations], dtype=torch.int64),
    }


def voc(folder: Path, prepare: Preparation, split: str) -> Source:
    """Pascal VOC's segmentation: DIR or DIR/VOCdevkit/VOC2012, by ImageSets/Segmentation/val.txt."""
    roots = [folder, folder / "VOC2012", folder / "VOCdevkit" / "VOC2012"]
    lists = [root / "ImageSets" / "Segmentation" / f"{split}.txt" for root in roots]
    found = next((path for path in lists if path.is_file()), None)
    if found is None:
        raise DataError(f"there is no {lists[0]}; give the folder VOC2012, or the one that holds VOCdevkit")
    root = found.parents[2]
    names = found.read_text(encoding="utf-8").split()
    files = [
        (inside(root / "JPEGImages", f"{name}.jpg"), inside(root / "SegmentationClass", f"{name}.png"))
        for name in names
    ]
    return "segmentation", [Entry(prepare, *pair) for pair in files], []


SOURCES: dict[str, Callable[[Path, Preparation, str], Source]] = {
    "imagefolder": image_folder,
    "imagenet": imagenet,
    "cifar10": lambda *args: cifar(*args, classes=10),
    "cifar100": lambda *args: cifar(*args, classes=100),
    "coco": coco,
    "voc": voc,
}
