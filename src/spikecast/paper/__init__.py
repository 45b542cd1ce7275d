"""The tables of the paper as data (paper.json): the model, the settings and the figures behind every row."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeVar

from spikecast.config import Coding, Config, Method
from spikecast.errors import ConfigError

Task = Literal["classification", "detection", "segmentation"]
_T = TypeVar("_T")
MEASURED = {"classification": ("top1", "imagenet"), "detection": ("map", "coco"), "segmentation": ("miou", "voc")}


@dataclass(frozen=True)
class Model:
    """A network of the paper, as "library:name".

    `regions` are the submodules that become spiking, () for all of it; `encode_input`: the image is sent as spikes too;
    `size` is the side of the input, for detection and segmentation the shorter one.
    """

    spec: str
    task: Task = "classification"
    regions: tuple[str, ...] = ()
    encode_input: bool = False
    size: int = 224


def _transformer(name: str, size: int = 224) -> Model:
    # ViT-S has an energy ratio of 0.001 (n = 1, T = 4); patches of an analog image would cost 0.0025 by themselves.
    return Model(f"timm:{name}", encode_input=True, size=size)


# Weights are named where they are not the publisher's default: the ANN accuracies of the paper tell them. Its ResNets
# (71.49, 76.42) are timm's a1_in1k; torchvision's have 69.76 and 73.31.
MODELS: dict[str, Model] = {
    "resnet18": Model("timm:resnet18.a1_in1k"),
    "resnet34": Model("timm:resnet34.a1_in1k"),
    "vgg16": Model("torchvision:vgg16_bn"),  # the ANN's 73.25 % is out of reach of vgg16 (71.59 %)
    "vit_small": _transformer("vit_small_patch16_224"),
    "vit_base": _transformer("vit_base_patch16_224.augreg_in21k_ft_in1k"),
    "vit_large": _transformer("vit_large_patch16_224"),
    "eva02_tiny": _transformer("eva02_tiny_patch14_336", 336),
    "eva02_small": _transformer("eva02_small_patch14_336", 336),
    "eva02_base": _transformer("eva02_base_patch14_448", 448),
    "eva02_large": _transformer("eva02_large_patch14_448.mim_m38m_ft_in22k_in1k", 448),
    "fcos_resnet50": Model("torchvision:fcos_resnet50_fpn", "detection", ("backbone", "head"), size=800),
    "retinanet_resnet50": Model("torchvision:retinanet_resnet50_fpn", "detection", ("backbone", "head"), size=800),
    "retinanet_resnet50_v2": Model(
        "torchvision:retinanet_resnet50_fpn_v2", "detection", ("backbone", "head"), size=800
    ),
    "fcn_resnet50": Model("torchvision:fcn_resnet50", "segmentation", size=520),
    "deeplabv3_resnet50": Model("torchvision:deeplabv3_resnet50", "segmentation", size=520),
}


@dataclass(frozen=True)
class Row:
    """One conversion, and after each of `steps` its `metric` in percent and its `energy` ratio; None is a dash."""

    model: str
    ann: float
    num_levels: int
    coding: Coding
    thresholds: Method
    threshold_scale: float
    steps: tuple[int, ...]
    metric: tuple[float | None, ...]
    energy: tuple[float | None, ...]
    note: str = ""

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ConfigError(f"model={self.model!r} is not one of {', '.join(MODELS)}")
        _check(self.ann, self.steps, metric=self.metric, energy=self.energy)
        self.config()

    def config(self, num_steps: int | None = None) -> Config:
        """The row's settings; num_steps is by default the longest T that has a result: other columns are prefixes."""
        if num_steps is None:
            num_steps = max(t for t, value in zip(self.steps, self.metric, strict=True) if value is not None)
        return Config(
            num_steps=num_steps,
            num_levels=self.num_levels,
            burst=1,
            coding=self.coding,
            thresholds=self.thresholds,
            threshold_scale=self.threshold_scale,
            granularity="channel",
            encode_input=MODELS[self.model].encode_input,
            quantile=0.999,
        )


@dataclass(frozen=True)
class Published:
    """A line of the comparison with other methods: no settings, only what was published. `params` in millions."""

    method: str
    type: str
    arch: str
    params: float
    ann: float
    steps: tuple[int, ...]
    metric: tuple[float | None, ...]

    def __post_init__(self) -> None:
        _check(self.ann, self.steps, metric=self.metric)


@dataclass(frozen=True)
class Table:
    """A table of the paper; `published` holds the lines of "comparison", `rows` those of all others."""

    caption: str
    task: Task
    metric: str
    dataset: str
    rows: tuple[Row, ...] = ()
    published: tuple[Published, ...] = ()

    def __post_init__(self) -> None:
        if MEASURED.get(self.task) != (self.metric, self.dataset):
            raise ConfigError(f"task, metric, dataset = {self.task}, {self.metric}, {self.dataset} do not go together")
        for row in self.rows:
            if MODELS[row.model].task != self.task:
                raise ConfigError(f"model={row.model!r} is for {MODELS[row.model].task}, the table for {self.task}")


def tables() -> dict[str, Table]:
    """All tables of the paper by name."""
    return dict(_read())


def table(name: str) -> Table:
    """One table of the paper, as data.

    Args:
        name: One of `tables()`.

    Example:
        >>> paper.table("cnn").dataset
        'imagenet'
    """
    if name in _read():
        return _read()[name]
    raise ConfigError(f"table {name!r} is not one of {', '.join(_read())}")


@cache
def _read() -> dict[str, Table]:
    return parse(json.loads(resources.files("spikecast.paper").joinpath("paper.json").read_text(encoding="utf-8")))


def parse(values: Mapping[str, Any]) -> dict[str, Table]:
    """The tables in what json has read; a mistake is reported with its table and row."""
    read = {}
    for name, given in values["tables"].items():
        rows = tuple(_make(Row, row, f"{name}[{i}]") for i, row in enumerate(given.get("rows", ())))
        lines = tuple(_make(Published, line, f"{name}[{i}]") for i, line in enumerate(given.get("published", ())))
        read[name] = _make(Table, {**given, "rows": rows, "published": lines}, name)
    return read


def _make(kind: type[_T], values: Mapping[str, Any], where: str) -> _T:
    try:
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
    except (TypeError, ConfigError) as error:
        raise ConfigError(f"paper.json, {where}: {error}") from error


def _check(ann: float, steps: Sequence[int], **figures: Sequence[float | None]) -> None:
    if not all(type(t) is int and t > 0 for t in steps) or list(steps) != sorted(set(steps)):
        raise ConfigError(f"steps={steps} must be whole numbers from 1, and increasing")
    for name, values in figures.items():
        if len(values) != len(steps):
            raise ConfigError(f"{name} has {len(values)} values for {len(steps)} steps")
    if all(value is None for value in figures["metric"]):
        raise ConfigError("metric has no value at all")
    for value in [ann, *(value for values in figures.values() for value in values if value is not None)]:
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise ConfigError(f"{value!r} must be a number from 0")
