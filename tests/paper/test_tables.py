"""The paper's tables as data: every row is a valid conversion of a known model, and says what the paper prints."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any

import pytest
import timm
import torchvision

from spikecast import Config
from spikecast.errors import ConfigError
from spikecast.paper import MODELS, Model, Row, parse, table, tables

NAMES = {
    "main": 3,
    "comparison": 28,
    "cnn": 9,
    "transformer": 20,
    "coding": 18,
    "thresholds": 12,
    "detection": 5,
    "detection_ablation": 3,
    "segmentation": 4,
    "segmentation_ablation": 3,
}
ROWS = [pytest.param(row, id=f"{name}-{i}") for name, t in tables().items() for i, row in enumerate(t.rows)]

# Read once more from the paper: table, model, n, coding, thresholds, scale, T, metric, energy.
DIFF, RATE, ITER, Q = "differential", "rate", "iteration_paper", "quantile"
SPOTS = [
    ("main", "resnet34", 4, DIFF, ITER, 1, 12, 76.26, 0.46),
    ("main", "vgg16", 4, DIFF, ITER, 1, 16, 73.26, 0.29),
    ("main", "vit_small", 8, DIFF, Q, 4, 12, 81.39, 1.39),
    ("cnn", "resnet18", 1, DIFF, ITER, 1, 16, 51.89, 0.31),
    ("cnn", "resnet18", 8, DIFF, ITER, 1, 32, None, None),
    ("cnn", "resnet34", 1, DIFF, ITER, 1, 64, 74.11, 0.97),
    ("cnn", "resnet34", 4, DIFF, ITER, 1, 8, 76.04, 0.37),
    ("cnn", "vgg16", 4, DIFF, ITER, 1, 32, 73.24, 0.38),
    ("cnn", "vgg16", 8, DIFF, ITER, 1, 2, 72.26, 0.15),
    ("transformer", "vit_small", 1, DIFF, Q, 4, 8, 0.1, 0.008),
    ("transformer", "vit_small", 6, DIFF, Q, 4, 2, 44.59, 0.20),
    ("transformer", "vit_base", 4, DIFF, Q, 4, 64, None, 1.44),
    ("transformer", "vit_base", 6, DIFF, Q, 4, 16, 84.69, 1.04),
    ("transformer", "vit_large", 4, DIFF, Q, 4, 32, 85.00, 0.92),
    ("transformer", "eva02_tiny", 8, DIFF, Q, 4, 16, 80.578, 2.28),
    ("transformer", "eva02_small", 4, DIFF, Q, 4, 16, 34.86, 0.67),
    ("transformer", "eva02_base", 6, DIFF, Q, 4, 2, 3.25, 0.11),
    ("transformer", "eva02_large", 8, DIFF, Q, 4, 4, 89.72, 0.64),
    ("coding", "resnet34", 4, DIFF, ITER, 2, 8, 75.77, 0.32),
    ("coding", "resnet34", 1, RATE, ITER, 1, 64, 71.04, 2.22),
    ("coding", "resnet34", 8, RATE, ITER, 2, 4, 74.24, 0.46),
    ("coding", "vit_small", 1, RATE, Q, 4, 64, 54.26, 1.17),
    ("coding", "vit_small", 8, RATE, Q, 4, 16, 81.36, 2.81),
    ("thresholds", "resnet34", 4, DIFF, ITER, 2, 8, 75.78, 0.32),
    ("thresholds", "resnet34", 1, DIFF, Q, 1, 8, 0.74, 0.19),
    ("thresholds", "resnet34", 4, DIFF, Q, 2, 2, 15.74, 0.11),
    ("detection", "fcos_resnet50", 2, DIFF, ITER, 1, 8, 6.3, 0.47),
    ("detection", "retinanet_resnet50", 8, DIFF, ITER, 1, 2, 25.6, 0.23),
    ("detection", "retinanet_resnet50_v2", 8, DIFF, ITER, 1, 6, 37.9, 0.64),
    ("detection_ablation", "fcos_resnet50", 8, RATE, ITER, 1, 8, 35.5, 0.88),
    ("detection_ablation", "fcos_resnet50", 8, DIFF, Q, 1, 4, 36.2, 0.43),
    ("segmentation", "fcn_resnet50", 2, DIFF, ITER, 1, 8, 36.0, 0.22),
    ("segmentation", "deeplabv3_resnet50", 8, DIFF, ITER, 1, 2, 66.6, 0.08),
    ("segmentation_ablation", "fcn_resnet50", 8, RATE, ITER, 1, 6, 63.7, 0.54),
    ("segmentation_ablation", "fcn_resnet50", 8, DIFF, Q, 1, 2, 61.2, 0.18),
]
PUBLISHED = [
    ("TS", "VGG-16", 138, 72.40, {64: 70.97}),
    ("SRP", "ResNet-34", 21.8, 74.32, {4: 66.71, 64: 68.61}),
    ("STA", "ViT-B/32", 86, 83.60, {32: 78.72, 256: 82.79}),
    ("SpikeZIP-TF", "SViT-L-32Level", 304.33, 83.86, {64: 83.82}),
    ("ECMT", "EVA-G", 1074, 89.62, {4: 88.60, 8: 89.40}),
    ("DCGS", "EVA02-L-8/4", 305.1, 90.05, {2: 88.25, 4: 89.72}),
]
# The paper prints two figures for one run: model, n, coding, thresholds, scale, T, both metrics.
UNEQUAL = {("resnet34", 4, DIFF, ITER, 2.0, 8): {75.77, 75.78}}


def settings(row: Row) -> tuple[str, int, str, str, float]:
    return row.model, row.num_levels, row.coding, row.thresholds, row.threshold_scale


def test_tables_and_their_lengths() -> None:
    assert {name: len(t.rows) + len(t.published) for name, t in tables().items()} == NAMES
    assert [name for name, t in tables().items() if t.published] == ["comparison"]
    assert all(t.caption and "\n" not in t.caption for t in tables().values())


def test_a_caller_cannot_change_the_tables() -> None:
    tables().clear()
    assert set(tables()) == set(NAMES)


@pytest.mark.parametrize("row", ROWS)
def test_row_makes_a_config(row: Row) -> None:
    config = row.config()
    longest = max(t for t, value in zip(row.steps, row.metric, strict=True) if value is not None)
    assert (config.num_steps, config.num_levels, config.coding) == (longest, row.num_levels, row.coding)
    assert config.burst == 1
    assert (config.thresholds, config.threshold_scale) == (row.thresholds, row.threshold_scale)
    assert (config.granularity, config.quantile, config.signed, config.overrides) == ("channel", 0.999, True, {})
    assert config.encode_input == ("vit" in row.model or "eva" in row.model)
    assert (row.thresholds, row.threshold_scale) == (Q, 4.0) or not config.encode_input
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert row.config(3).num_steps == 3


@pytest.mark.parametrize("row", ROWS)
def test_row_is_whole(row: Row) -> None:
    assert len(row.steps) == len(row.metric) == len(row.energy)
    assert list(row.steps) == sorted(set(row.steps))
    assert all(0 <= value <= 100 for value in row.metric if value is not None)
    energies = [value for value in row.energy if value is not None]
    assert energies == sorted(set(energies))
    dashes = [t for t, m, e in zip(row.steps, row.metric, row.energy, strict=True) if (m is None) != (e is None)]
    assert dashes == ([64] if (row.model, row.num_levels) == ("vit_base", 4) else [])
    assert row.note or not dashes


@pytest.mark.parametrize("spot", SPOTS, ids=lambda spot: "-".join(map(str, spot[:7])))
def test_figures_are_those_of_the_paper(spot) -> None:
    name, *which, t, metric, energy = spot
    [row] = [row for row in table(name).rows if settings(row) == tuple(which)]
    at = row.steps.index(t)
    assert (row.metric[at], row.energy[at]) == (metric, energy)


@pytest.mark.parametrize(("method", "arch", "params", "ann", "figures"), PUBLISHED)
def test_figures_of_other_methods(method, arch, params, ann, figures) -> None:
    [line] = [line for line in table("comparison").published if (line.method, line.arch) == (method, arch)]
    assert (line.params, line.ann, dict(zip(line.steps, line.metric, strict=True))) == (params, ann, figures)


def test_one_run_has_one_figure_in_all_tables() -> None:
    seen: dict[tuple[Any, ...], tuple[set[Any], set[Any]]] = {}
    for t in tables().values():
        for row in t.rows:
            for step, metric, energy in zip(row.steps, row.metric, row.energy, strict=True):
                metrics, energies = seen.setdefault((*settings(row), step), (set(), set()))
                metrics.add(metric)
                energies.add(energy)
    assert {run: metrics for run, (metrics, _) in seen.items() if len(metrics) > 1} == UNEQUAL
    assert [run for run, (_, energies) in seen.items() if len(energies) > 1] == []


def test_the_comparison_repeats_the_other_tables() -> None:
    names = {"VGG": "vgg16", "ViT-S": "vit_small", "ViT-B": "vit_base", "ViT-L": "vit_large"}
    names |= {f"EVA02-{size[0].upper()}": f"eva02_{size}" for size in ("tiny", "small", "base", "large")}
    ours = [line for line in table("comparison").published if line.method == "DCGS"]
    assert len(ours) == 13
    for line in ours:
        arch, n, scale = re.fullmatch(r"(.*)-(\d)/(\d)", line.arch).groups()
        model = names.get(arch, arch.lower())
        rows = table("cnn" if line.type.startswith("CNN") else "transformer").rows
        [row] = [r for r in rows if (r.model, r.num_levels, r.threshold_scale) == (model, int(n), float(scale))]
        figures = dict(zip(row.steps, row.metric, strict=True))
        assert (line.ann, line.metric) == (row.ann, tuple(figures[t] for t in line.steps)), line.arch


def test_models_are_those_of_the_rows() -> None:
    anns: dict[str, set[float]] = {name: set() for name in MODELS}
    for t in tables().values():
        for row in t.rows:
            assert MODELS[row.model].task == t.task
            anns[row.model].add(row.ann)
    assert {name: len(found) for name, found in anns.items()} == dict.fromkeys(MODELS, 1)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_spec_exists(model: Model) -> None:
    library, _, name = model.spec.partition(":")
    if library == "timm":
        assert timm.is_model(name)
        assert timm.get_pretrained_cfg(name).input_size == (3, model.size, model.size)
    else:
        assert library == "torchvision"
        home = torchvision.models if model.task == "classification" else getattr(torchvision.models, model.task)
        assert hasattr(home, name)
    assert model.regions == (("backbone", "head") if model.task == "detection" else ())


def test_unknown_table() -> None:
    with pytest.raises(ConfigError, match=r"table 'tabel' is not one of main, comparison, cnn, transformer, coding, "):
        table("tabel")


def broken(**changes: Any) -> dict[str, Any]:
    values = json.loads(resources.files("spikecast.paper").joinpath("paper.json").read_text(encoding="utf-8"))
    values["tables"]["cnn"]["rows"][4].update(changes)
    return values


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model": "resnet43"}, "model='resnet43' is not one of resnet18"),
        ({"model": "fcn_resnet50"}, "is for segmentation, the table for classification"),
        ({"steps": [2, 4, 8, 16, 64, 32]}, "increasing"),
        ({"steps": [2, 4, 8, 16, 32]}, "metric has 6 values for 5 steps"),
        ({"energy": [0.1]}, "energy has 1 values for 6 steps"),
        ({"metric": [None] * 6}, "no value"),
        ({"metric": ["-"] * 6}, "'-' must be a number"),
        ({"ann": None}, "None must be a number"),
        ({"num_levels": 0}, "num_levels=0 must be"),
        ({"coding": "phase"}, "coding='phase' must be one of"),
        ({"threshold": 1}, "unexpected keyword argument 'threshold'"),
    ],
)
def test_a_wrong_row_is_named(changes, complaint) -> None:
    with pytest.raises(ConfigError, match=r"^paper\.json, cnn(\[4\])?: .*" + re.escape(complaint)):
        parse(broken(**changes))


def test_a_wrong_table_is_named() -> None:
    values = broken()
    values["tables"]["coding"]["metric"] = "map"
    with pytest.raises(ConfigError, match=r"^paper\.json, coding: .* classification, map, imagenet do not go together"):
        parse(values)
