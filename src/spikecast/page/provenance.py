"""What made a report: the command, and the versions of what took part."""

from __future__ import annotations

import platform
import shlex
import sys
from pathlib import Path

import numpy
import torch

from spikecast._version import __version__


def own_command() -> str:
    """What this process was started with; `spikecast` by its name, wherever it is installed."""
    start = Path(sys.argv[0])
    is_ours = start.name == "spikecast" or start.parts[-2:] == ("spikecast", "__main__.py")
    return shlex.join(["spikecast" if is_ours else sys.argv[0], *sys.argv[1:]])


def versions() -> dict[str, str]:
    """Of what took part."""
    return {
        "spikecast": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
