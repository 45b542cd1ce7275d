"""The public names: one more or one less is a decision, not an accident."""

from __future__ import annotations

import re
from importlib.metadata import version

import spikecast

PUBLIC = {"Config", "SpikecastError", "SpikingNetwork", "__version__", "convert", "load", "measure", "register_op"}


def test_public_names() -> None:
    assert set(spikecast.__all__) == PUBLIC
    assert len(spikecast.__all__) == len(PUBLIC)


def test_every_public_name_is_there_and_documented() -> None:
    for name in PUBLIC - {"__version__"}:
        assert getattr(spikecast, name).__doc__, name


def test_dir_shows_the_public_names() -> None:
    assert set(dir(spikecast)) >= PUBLIC


def test_version_comes_from_one_place() -> None:
    assert re.match(r"\d+\.\d+\.\d+", spikecast.__version__)
    assert version("spikecast") == spikecast.__version__
