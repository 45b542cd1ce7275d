"""Folders of images as classes of a model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from PIL import Image

from spikecast.errors import DataError
from spikecast.sources import Data, open_data
from spikecast.sources.classes import class_names, class_numbers


def test_by_order_by_number_and_by_a_file(tmp_path: Path) -> None:
    assert class_numbers(["cat", "dog", "owl"], 3) == [0, 1, 2]
    assert class_numbers(["10", "2", "7"], 12) == [10, 2, 7]  # a part of the classes
    assert class_numbers(["0", "1", "10", *"23456789"], 11) == [0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9]  # sorted as words
    path = tmp_path / "map.json"
    path.write_text('{"cat": 281, "dog": 207, "owl": 24}')
    assert class_numbers(["cat", "owl"], 1000, path) == [281, 24]


def test_a_part_of_imagenet_by_wordnet() -> None:
    pytest.importorskip("timm")
    assert class_numbers(["n01440764", "n02123045", "n15075141"], 1000) == [0, 281, 999]
    with pytest.raises(DataError, match="'n00000001' has no class in ImageNet"):
        class_numbers(["n00000001", "n01440764"], 1000)


@pytest.mark.parametrize(
    ("names", "outputs", "text", "message"),
    [
        (["cat", "dog"], 10, None, r"2 folders of classes for a model with 10 outputs; say .* --class-map FILE\.json"),
        (["n01440764", "n02123045"], 12, None, "2 folders of classes for a model with 12 outputs"),
        (["3", "12"], 12, None, "'12' is class 12 and the model has 12 outputs"),
        (["cat"], 10, "{}", "'cat' has no class in"),
        (["cat"], 10, '{"cat": -1}', "'cat' is class -1"),
        (["cat"], 10, '{"cat": true}', "is not of the form"),
        (["cat"], 10, "[1]", "is not of the form"),
        (["cat"], 10, "{", "cannot be read"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, names, outputs, text, message) -> None:
    path = None
    if text is not None:
        path = tmp_path / "map.json"
        path.write_text(text)
    with pytest.raises(DataError, match=message):
        class_numbers(names, outputs, path)


def test_targets_and_names_follow(tmp_path: Path) -> None:
    for name in ("4", "11"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "a.png")
    opened = open_data(f"imagefolder:{tmp_path}")
    assert isinstance(opened, Data)
    data = opened.for_outputs(12)
    ((_, targets),) = list(data)
    assert targets.tolist() == [11, 4]
    assert (data.classes[4], data.classes[11], data.classes[0], len(data.classes)) == ("4", "11", "0", 12)


def test_wordnet_numbers_are_shown_in_words() -> None:
    pytest.importorskip("timm")
    names = class_names(["n01443537", "n01440764"], [1, 0], 1000)
    assert (names[:2], len(names)) == (["tench", "goldfish"], 1000)
    assert names[281] == "tabby"  # a class without a folder has a name too
    assert class_names(["n01443537", "n01440764"], [0, 1], 2) == ["goldfish", "tench"]
    assert class_names(["cat", "dog"], [2, 0], 3) == ["dog", "1", "cat"]
    assert class_names(["n01443537", "cat"], [0, 1], 2) == ["n01443537", "cat"]


def test_words_are_left_out_without_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm.data.imagenet_info", None)
    assert class_names(["n01443537", "n01440764"], [0, 1], 2) == ["n01443537", "n01440764"]
