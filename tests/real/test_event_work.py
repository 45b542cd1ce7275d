"""Real ResNet-20, event by event: work falls as spikes fall, every count is the meter's, and so is the answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

import spikecast
from spikecast import Config
from spikecast.hardware import record_events
from spikecast.hardware.events.simulator import Simulator, totals
from spikecast.network.counting.meter import metered_run
from spikecast.network.counting.tally import Tally
from tests.nets import relative

T = 8


def test_work_follows_spikes(case: Callable[..., Any], noted: Callable[[str], None]) -> None:
    given = case("ResNet-20", 64, 4)
    snn = spikecast.convert(given.model, given.calibration.split(32), Config(num_steps=T, num_levels=4, burst=1))
    simulator, tally = Simulator(snn), Tally(T)
    expected = metered_run(snn, ((given.images,), {}), tally)
    simulator.run(given.images[:1], num_steps=1)  # compiles
    simulator.start(given.images)
    seconds, differing = [], 0
    events = record_events(snn, given.images)
    for t in range(1, T + 1):
        start = time.process_time()  # of this process alone, whatever else the machine does
        fired = simulator.step()
        seconds.append(time.process_time() - start)
        ours, theirs = (Counter(found.records().tolist()) for found in (fired, events.at(t)))
        differing += ((ours - theirs) + (theirs - ours)).total()
    own = [sum(x) for x in zip(*(totals(simulator.counts, c) + [0] * T for c in ("events", "analog")), strict=False)][
        :T
    ]
    answers = simulator.outputs()[0]
    same = int((answers.argmax(1) == expected[-1].argmax(1)).sum())
    replayed = simulator.run(given.images, events=events)
    error = relative(replayed, expected)
    noted(f"ResNet-20, events: accumulates at t = 1..{T} of 4 images {own}")
    noted(f"ResNet-20, events: CPU seconds at t = 1..{T} {[round(s, 3) for s in seconds]}")
    noted(
        f"ResNet-20, events: t = {T} against t = 1: {own[-1] / own[0]:.1%} of the accumulates, "
        f"{seconds[-1] / seconds[0]:.1%} of the time; {differing} of {len(events)} events differ from float32, "
        f"{same} of 4 answers agree; replay {error:.1e} off"
    )
    for op, line in tally.lines.items():
        for column in ("events", "spikes", "analog", "fired"):
            if column in line.columns:
                found = simulator.counts[op][column]
                assert found + [0] * (T - len(found)) == line.columns[column], (op, column)
    assert error < 1e-5
    assert own[-1] < 0.5 * own[0]
    assert seconds[-1] < 0.8 * seconds[0]
    assert differing < 0.05 * len(events)  # sums in another order: a tie that falls the other way spreads from there on
    assert torch.allclose(answers, expected[-1], atol=0.05 * float(expected.abs().max()))
