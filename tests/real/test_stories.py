"""A real language model of 260 thousand weights: its own words, and how surprised it is by texts, as a spiking one."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config, SpikingNetwork, measure

PROMPT, WORDS = 24, 100  # tokens that are given, and tokens that follow
