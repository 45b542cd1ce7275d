"""Which class of a model a folder of images is: a file says so, or its number, its order, its WordNet number."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spikecast.errors import DataError, MissingExtraError
from spikecast.sources.documents import read_json


def class_numbers(names: Sequence[str], outputs: int, class_map: Path | None = None) -> list[int]:
    """The class of each folder for a model with so many outputs.

    Folders that are all named by numbers are those classes. Others go by their order if there are as many as outputs;
    a part of ImageNet goes by its WordNet numbers.
    """
    known: Mapping[str, int] | None = None
    if class_map is not None:
        known = read_class_map(class_map)
    elif all(name.isdecimal() for name in names):
        known = {name: int(name) for name in names}
    elif len(names) == outputs:
        known = {name: i for i, name in enumerate(names)}
    elif outputs == 1000 and _are_wordnet(names):
        known = {name: i for i, name in enumerate(_wordnet())}
    if known is None:
        raise DataError(
            f"{len(names)} folders of classes for a model with {outputs} outputs; say which is which with "
            '--class-map FILE.json, as in {"cat": 281}, or name the folders by their class numbers'
        )
    missing = [name for name in names if name not in known]
    if missing:
        raise DataError(f"the folder {missing[0]!r} has no class in {class_map or 'ImageNet'}; add it, or remove it")
    large = [name for name in names if not 0 <= known[name] < outputs]
    if large:
        raise DataError(
            f"the folder {large[0]!r} is class {known[large[0]]} and the model has {outputs} outputs; "
            "classes are numbered from 0"
        )
    return [known[name] for name in names]


def class_names(folders: Sequence[str], numbers: Sequence[int], outputs: int) -> list[str]:
    """A name for each output: that of its folder, else its number. WordNet numbers become the words of ImageNet."""
    said = imagenet_words() if _are_wordnet(folders) else []
    words = dict(zip(_wordnet(), said, strict=True)) if said else {}
    names = said if outputs == len(said) else [str(i) for i in range(outputs)]
    for number, folder in zip(numbers, folders, strict=True):
        names[number] = words.get(folder, folder)
    return names


def imagenet_words() -> list[str]:
    """What ImageNet's classes are called, in their order; none where timm, which knows them, is not installed."""
    try:
        from timm.data.imagenet_info import ImageNetInfo
    except ImportError:
        return []
    known: Any = ImageNetInfo("imagenet-1k")
    return [str(words).partition(",")[0] for words in known.label_descriptions()]


def _are_wordnet(names: Sequence[str]) -> bool:
    return bool(names) and all(re.fullmatch(r"n\d{8}", name) for name in names)


def read_class_map(path: Path) -> dict[str, int]:
    """The class number of each folder, as a JSON file says it."""
    found = read_json(path, 'give --class-map a file such as {"cat": 281}')
    if not isinstance(found, dict) or not all(type(number) is int for number in found.values()):
        raise DataError(f'--class-map {path} is not of the form {{"cat": 281, ...}}: a class number for each folder')
    return found


def _wordnet() -> list[str]:
    """The WordNet numbers of ImageNet's classes, in their order."""
    try:
        from timm.data.imagenet_info import ImageNetInfo
    except ImportError as error:
        raise MissingExtraError(
            'WordNet numbers are looked up in timm; pip install "spikecast[vision]", or give --class-map FILE.json'
        ) from error
    known: Any = ImageNetInfo("imagenet-1k")
    return list(known.label_names())
