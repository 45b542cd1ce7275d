"""Whole networks: the spiking network over the ANN that does the same work."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import spikecast
from benchmarks.timing import Row, in_turns, ratio, single
from spikecast import Config
from spikecast.measure import energy

T, B = 8, 4
GOALS = {"ResNet-34": 1.05, "VGG-16": 1.05, "ViT-Small": 1.3, "EVA02-Tiny": 1.4}


def build(name: str) -> tuple[nn.Module, int]:
    """A network with random weights, whose values do not count here, and the size of its images."""
    import timm
    import torchvision

    torch.manual_seed(0)
    make: dict[str, Callable[[], nn.Module]] = {
        "ResNet-34": torchvision.models.resnet34,
        "ResNet-50": torchvision.models.resnet50,
        "VGG-16": torchvision.models.vgg16_bn,
        "ViT-Small": partial(timm.create_model, "vit_small_patch16_224"),
        "ViT-Base": partial(timm.create_model, "vit_base_patch16_224"),
        "EVA02-Tiny": partial(timm.create_model, "eva02_tiny_patch14_224"),
    }
    return make[name]().eval(), 224


def ann_variants(model: nn.Module, x: Tensor) -> dict[str, Callable[[], Any]]:
    """The caller's model in inference mode, in both memory layouts, with attention fused and opened."""

    def call(network: nn.Module, images: Tensor) -> Any:
        with torch.inference_mode():
            return network(images)

    other = copy.deepcopy(model)
    attention = [m for m in other.modules() if hasattr(m, "fused_attn")]
    for m in attention:
        m.fused_attn = False
    if attention:
        return {"fused attention": partial(call, model, x), "opened attention": partial(call, other, x)}
    other.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    last = x.contiguous(memory_format=torch.channels_last)
    return {"contiguous": partial(call, model, x), "channels-last": partial(call, other, last)}


def against_the_ann(rounds: int, names: list[str] | None = None) -> Iterator[Row]:
    """SNN(T = 8, B = 4) over the ANN on a batch of T·B."""
    for name in names or GOALS:
        model, size = build(name)
        x = torch.randn(B, 3, size, size)
        work = ann_variants(model, x.repeat(T, 1, 1, 1))
        anns = list(work)
        for levels in (4, 8):
            snn = spikecast.convert(model, [x], Config(num_steps=T, burst=1, num_levels=levels, thresholds="quantile"))
            work[f"n = {levels}"] = partial(snn.run, x)
        times = in_turns(work, rounds)
        ann = min((times[a] for a in anns), key=min)
        label = next(a for a in anns if times[a] is ann)
        yield single(f"{name}, ANN, batch {T * B} ({label})", ann, "s")
        for levels in (4, 8):
            yield ratio(
                f"{name}, SNN T = {T}, n = {levels}, over ANN", times[f"n = {levels}"], ann, f"<= {GOALS[name]}"
            )


def bursts(rounds: int) -> Iterator[Row]:
    """SNN(T = 1, three spikes in it) over the ANN on the same batch."""
    for name, goal in (("ResNet-34", 1.15), ("ViT-Small", 1.3)):
        model, size = build(name)
        x = torch.randn(T * B, 3, size, size)
        snn = spikecast.convert(model, [x[:B]], Config(num_steps=1, burst=3, thresholds="quantile"))
        anns = ann_variants(model, x)
        times = in_turns({**anns, "snn": partial(snn.run, x)}, rounds)
        ann = min((times[a] for a in anns), key=min)
        yield ratio(f"{name}, SNN T = 1 with bursts of 3 over ANN, batch {T * B}", times["snn"], ann, f"<= {goal}")


def stepwise(rounds: int) -> Iterator[Row]:
    """One step at a time over layer by layer, at B = 8."""
    for name in ("ResNet-34", "ViT-Small"):
        model, size = build(name)
        x = torch.randn(8, 3, size, size)
        snn = spikecast.convert(model, [x[:2]], Config(num_steps=T, burst=1, thresholds="quantile"))
        times = in_turns({"steps": lambda s=snn, x=x: list(s.steps(x)), "run": partial(snn.run, x)}, rounds)
        yield ratio(f"{name}, one step at a time over layer by layer, B = 8", times["steps"], times["run"], "<= 1.3")


def metering(rounds: int) -> Iterator[Row]:
    """A run whose operations are counted over one whose are not."""
    for name in ("ResNet-34", "ViT-Small"):
        model, size = build(name)
        x = torch.randn(B, 3, size, size)
        snn = spikecast.convert(model, [x], Config(num_steps=T, burst=1, thresholds="quantile"))
        times = in_turns({"counted": partial(energy, snn, [x]), "run": partial(snn.run, x)}, rounds)
        yield ratio(f"{name}, run with operations counted over run", times["counted"], times["run"], "<= 1.1")


def chunks(rounds: int) -> Iterator[Row]:
    """Samples times steps that go through the network together, over what is chosen."""
    for name in GOALS:
        model, size = build(name)
        x = torch.randn(B, 3, size, size)
        snn = spikecast.convert(model, [x], Config(num_steps=T, burst=1, thresholds="quantile"))
        work: dict[str, Callable[[], Any]] = {str(k): partial(snn.run, x, max_batch=k) for k in (8, 16, 32)}
        times = in_turns({"chosen": partial(snn.run, x), **work}, rounds)
        for k in work:
            yield ratio(f"{name}, max_batch = {k} over the one chosen", times[k], times["chosen"])


def compiled(rounds: int) -> Iterator[Row]:
    """A run handed to torch.compile over a plain one, and what compiling takes."""
    for name in ("ResNet-34", "EVA02-Tiny"):
        model, size = build(name)
        x = torch.randn(B, 3, size, size)
        snn = spikecast.convert(model, [x], Config(num_steps=T, burst=1, thresholds="quantile"))
        began = time.perf_counter()
        snn.run(x, compile=True)
        yield single(f"{name}, first run with compile=True", [time.perf_counter() - began], "s")
        times = in_turns({"compiled": partial(snn.run, x, compile=True), "run": partial(snn.run, x)}, rounds)
        yield ratio(f"{name}, run with compile=True over run", times["compiled"], times["run"])
