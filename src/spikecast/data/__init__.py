"""Data by name: imagefolder:DIR, imagenet:DIR, cifar10:DIR, coco:DIR, voc:DIR, demo:digits, FILE.py:FUNCTION."""

from __future__ import annotations

from spikecast.data.images import Preparation
from spikecast.data.limit import samples
from spikecast.data.sources import SOURCES, Data, open_data

__all__ = ["SOURCES", "Data", "Preparation", "open_data", "samples"]
