"""Files of few events in layers that are larger than memory."""

from __future__ import annotations

import numpy as np

from spikecast.hardware.events.stream import Sender


def test_values_of_a_layer_larger_than_memory() -> None:
    """192 GiB of thresholds, were they laid out: found by fuzzing."""
    sender = Sender("conv", (3, 2**31 - 1, 4), 0, 4, 3, np.array([0.5, 1.0, 2.0]).reshape(3, 1, 1))
    flat = np.array([0, 4 * (2**31 - 1), 12 * (2**31 - 1) - 1])
    assert sender.values(flat, np.array([1, -2, 3], np.int8)).tolist() == [0.5, -0.5, 0.5]
