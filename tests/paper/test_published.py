"""Rows as the authors' code has them; docs/errata.md says where in that code each is to be seen."""

from __future__ import annotations

import pytest
import torch

from spikecast import convert
from spikecast.errors import ConfigError
from spikecast.paper import MODELS, Row, table, tables
from spikecast.paper.published import ANALOG, PREPARED, deviations, published_config
from spikecast.sources.models import open_model


def row(name: str, model: str, n: int, **others) -> Row:
    wanted = {"model": model, "num_levels": n, **others}
    return next(r for r in table(name).rows if all(getattr(r, key) == value for key, value in wanted.items()))


def test_every_row_but_those_of_segmentation_has_settings() -> None:
    for each in tables().values():
        for one in each.rows:
            if each.task == "segmentation":
                with pytest.raises(ConfigError, match=f"the authors' code has no segmentation, so '{one.model}'"):
                    published_config(one)
                continue
            made, said = published_config(one), one.config()
            assert made.thresholds in ("iteration_published", "quantile_published")
            assert (made.num_levels, made.coding, made.burst) == (said.num_levels, said.coding, 1)
            assert (made.encode_input, made.quantile) == (said.encode_input, said.quantile)
            assert made.granularity == "dim1"
            assert made.num_steps >= said.num_steps


def test_settings_by_hand() -> None:
    resnet = published_config(row("thresholds", "resnet34", 4, thresholds="quantile", threshold_scale=2.0))
    assert (resnet.thresholds, resnet.threshold_scale, resnet.overrides) == ("quantile_published", 2.0, {})
    vit = published_config(row("coding", "vit_small", 4, coding="rate"))
    assert (vit.thresholds, vit.threshold_scale, vit.coding) == ("quantile_published", 8.0, "rate")
    fcos = published_config(row("detection", "fcos_resnet50", 8))
    assert (fcos.thresholds, fcos.overrides) == ("iteration_published", ANALOG)


def test_cells_of_one_run_have_one_number_of_quanta() -> None:
    """`main` ends at T = 16 with the figures of `cnn`, which goes on to T = 32."""
    short, long = row("main", "resnet34", 4), row("cnn", "resnet34", 4)
    assert (short.metric[0], short.config().num_steps, long.config().num_steps) == (long.metric[0], 16, 32)
    assert published_config(short) == published_config(long)
    assert published_config(short).num_steps == 32
    scaled = row("coding", "resnet34", 4, threshold_scale=2.0, coding="rate")
    assert published_config(scaled).num_steps == scaled.config().num_steps  # another run


def test_deviations_are_those_of_the_rows() -> None:
    def words(*rows: Row) -> list[str]:
        return [line.split()[0] for line in deviations(rows)]

    resnet, vgg = row("cnn", "resnet18", 4), row("cnn", "vgg16", 4)
    assert words(resnet) == ["thresholds"]
    assert words(resnet, vgg) == ["thresholds", "images"]
    assert words(row("cnn", "resnet18", 1)) == ["thresholds", "N"]
    assert words(row("main", "resnet34", 4)) == ["thresholds", "N"]
    assert words(row("coding", "vit_small", 1)) == ["thresholds", "quantiles", "a", "thresholds"]
    assert words(row("thresholds", "resnet34", 1, thresholds="quantile")) == ["thresholds", "quantiles"]
    assert words(row("detection", "fcos_resnet50", 8)) == ["thresholds", "detectors"]


def test_images_of_vgg() -> None:
    (name,) = PREPARED
    assert MODELS[name].spec == "torchvision:vgg16_bn"
    assert round(224 / PREPARED[name]["crop"]) == 235


@pytest.mark.slow
def test_a_detector_has_neurons_in_place_of_relus_only() -> None:
    torch.manual_seed(0)
    fcos = row("detection", "fcos_resnet50", 8)
    size = {"min_size": 96, "max_size": 96, "weights_backbone": None}
    made = open_model(MODELS[fcos.model].spec, options=size)
    snn = convert(made.model, [([torch.rand(3, 96, 96)],)], published_config(fcos), regions=list(made.regions))
    assert len(snn.sites) > 90
    assert all(site.is_rectifier for site in snn.sites.values())
