"""Detectors are converted by region: their forward sorts, filters and counts boxes, which no graph can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torchvision.models.detection import FCOS, FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.ops import MultiScaleRoIAlign

import spikecast
from spikecast import Config, convert, measure
from spikecast.graph.structure import flatten
from spikecast.network.answers import at_step
from tests.nets import undecided

EARLY, LATE = 2, 16
REGIONS = ["backbone", "head"]
Images = list[Tensor]


def whole(name: str, size: int) -> nn.Module:
    """A detector that shows its best boxes however unsure it is."""
    settings: dict[str, Any] = {"num_classes": 3, "min_size": size, "max_size": 2 * size}
    return torchvision.models.get_model(
        name, weights=None, weights_backbone=None, score_thresh=0.0, detections_per_img=20, **settings
    )


def small(size: int) -> nn.Module:
    """The same with fewer layers."""
    backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None, norm_layer=nn.BatchNorm2d)
    return FCOS(backbone, 3, min_size=size, max_size=2 * size, score_thresh=0.0, detections_per_img=20)


def pictures(*sizes: tuple[int, int]) -> Images:
    return [torch.rand(3, *size) for size in sizes]


def heard(model: nn.Module, name: str, run: Callable[[], Any]) -> list[Tensor]:
    """What a submodule answers while `run` runs: for each call one row per image."""
    found: list[Tensor] = []
    note = model.get_submodule(name).register_forward_hook(
        lambda module, args, out: found.append(torch.cat([t.flatten(1) for t in flatten(out)[0]], 1).double())
    )
    try:
        run()
    finally:
        note.remove()
    return found


def examine(made: nn.Module, size: int, settled: Callable[..., nn.Module], before: Callable[[nn.Module], Any]) -> None:
    """Convert a detector and hold what its head says, and what it answers, against the model."""
    batches = [pictures((size, size), (size, size + 16)) for _ in range(2)]
    undecided(made.get_submodule("head"))
    model = settled(made, *batches)
    fingerprint = before(model)
    other = pictures((size + 8, size), (size, size))
    # Some seventy layers deep, range counts for more than resolution.
    config = Config(num_steps=LATE, burst=1, thresholds="quantile", threshold_scale=2.0)
    snn = convert(model, [(batch,) for batch in batches], config, regions=REGIONS, strict=True)
    assert before(model) == fingerprint
    assert snn.report.unknown == []
    weighted = [row for row in snn.report.rows if row.macs]
    assert [row.why for row in weighted if row.status != "spiking"] == ["analog input"]
    assert {row.scope.split(".")[0] for row in weighted} == set(REGIONS)

    with torch.no_grad():
        expected, exact = model(other), snn.analog(other)
        raw = heard(model, "head", lambda: model(other))[0]
    assert all(len(answer["boxes"]) > 0 for answer in expected)
    for ours, theirs in zip(exact, expected, strict=True):
        assert ours.keys() == theirs.keys()
        torch.testing.assert_close(ours["scores"], theirs["scores"], rtol=1e-3, atol=1e-4)

    answers: list[Any] = []
    steps = heard(snn.model, "head", lambda: answers.append(snn.run(other)))
    assert len(steps) == LATE
    last = at_step(answers[0], LATE - 1)
    assert all(answer.keys() == theirs.keys() for answer, theirs in zip(last, expected, strict=True))
    early, late = (((steps[t - 1] - raw).norm(dim=1) / raw.norm(dim=1)).median() for t in (EARLY, LATE))
    print(f"relative L2 error {early:.4f} at T={EARLY}, {late:.4f} at T={LATE}")
    assert late < early / 2
    # one call after the other gives the same, as does asking for fewer steps
    again = heard(snn.model, "head", lambda: list(snn.steps(other, num_steps=2)))
    assert len(again) == 2
    assert torch.equal(again[1], steps[1])


@pytest.mark.slow
def test_small(settled, snapshot) -> None:
    examine(small(64), 64, settled, snapshot)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fcos_resnet50_fpn", "retinanet_resnet50_fpn", "retinanet_resnet50_fpn_v2"])
def test_whole(name: str, settled, snapshot) -> None:
    examine(whole(name, 128), 128, settled, snapshot)


def two_stages(most: int) -> nn.Module:
    """A Faster R-CNN of a few layers, with at most so many proposals."""
    body = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU())
    body.out_channels = 8  # type: ignore[assignment]
    return FasterRCNN(
        body,
        rpn_anchor_generator=AnchorGenerator(((16,),), ((1.0,),)),
        rpn_post_nms_top_n_test=most,
        box_roi_pool=MultiScaleRoIAlign(["0"], 3, 0),
        box_head=TwoMLPHead(8 * 9, 16),
        box_predictor=FastRCNNPredictor(16, 3),
        box_score_thresh=0.0,
        box_detections_per_img=5,
        min_size=32,
        max_size=64,
    )


def measured(model: nn.Module, batches: list[Images], config: Config, path: Any) -> tuple[Any, Any]:
    """A detector whose regions are found, measured on what it answers itself, and the same out of a file."""
    snn = convert(model, [(batch,) for batch in batches], config, regions="auto")
    with torch.no_grad():
        data = [(batch, [{k: one[k] for k in ("boxes", "labels")} for one in model(batch)]) for batch in batches]
    found = measure.evaluate(snn, data, task="detection", model=model)
    assert found.energy is not None
    assert found.energy.ratio is not None
    assert found.energy.ratio[-1] > 0
    snn.save(path)
    loaded = spikecast.load(path, model=model)
    assert loaded.report.notes == snn.report.notes
    pairs = zip(flatten(loaded.run(batches[0]))[0], flatten(snn.run(batches[0]))[0], strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    return snn, found.ann


@pytest.mark.parametrize("steps", [1, 3])
def test_regions_are_found(steps: int, settled, tmp_path) -> None:
    """Proposals change in number with every step: what looks at them can be spiking in one step only."""
    torch.manual_seed(0)
    model = settled(two_stages(1000), pictures((32, 32)))
    batches = [pictures((32, 32), (32, 48))]
    snn, ann = measured(model, batches, Config(num_steps=steps, thresholds="quantile"), tmp_path / "net.spikecast")
    assert ann["map"] > 0.9  # of its own boxes
    second = ["roi_heads.box_head", "roi_heads.box_predictor"]
    assert list(snn.networks) == ["backbone", "rpn.head", *(second if steps == 1 else [])]
    said = "one step only" if steps == 1 else "left out"
    assert [note.split(",")[0] for note in snn.report.notes if "size of its input" in note] == [
        f"{name}: {said}" for name in second
    ]


BOXES = ["backbone", "rpn.head", "roi_heads.box_head", "roi_heads.box_predictor"]
FOUND = {
    "fcos_resnet50_fpn": REGIONS,
    "retinanet_resnet50_fpn": REGIONS,
    "ssdlite320_mobilenet_v3_large": REGIONS,
    "fasterrcnn_mobilenet_v3_large_320_fpn": BOXES,
    "maskrcnn_resnet50_fpn": [*BOXES, "roi_heads.mask_head", "roi_heads.mask_predictor"],
    "keypointrcnn_resnet50_fpn": [*BOXES, "roi_heads.keypoint_head", "roi_heads.keypoint_predictor"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_regions_of_torchvision_are_found(name: str, settled, tmp_path) -> None:
    """All that torchvision has, in one step."""
    torch.manual_seed(0)
    first = "box_" if "rcnn" in name else ""
    settings = {f"{first}score_thresh": 0.0, f"{first}detections_per_img": 8}
    sizes = {} if "ssd" in name else {"min_size": 96, "max_size": 128}  # SSDlite has one size of its own
    made = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=3, **settings, **sizes)
    batches = [pictures((96, 96), (96, 112))]
    model = settled(made, *batches)
    snn, _ = measured(model, batches, Config(thresholds="quantile"), tmp_path / "net.spikecast")
    assert list(snn.networks) == FOUND[name]
    assert any("100.0% of the multiply-accumulates" in note for note in snn.report.notes)
