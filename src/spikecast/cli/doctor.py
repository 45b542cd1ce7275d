"""spikecast doctor: versions, threads, the kernels in use, and what is missing and how to install it."""

from __future__ import annotations

import importlib
import os
import platform
import sys
import warnings
from contextlib import redirect_stdout
from importlib import metadata
from typing import Any

import torch

from spikecast import kernels
from spikecast._version import __version__
from spikecast.cli import common
from spikecast.cli.options import JsonOption, grouped
from spikecast.errors import first_line
from spikecast.text import columns
from spikecast.theory.neuron import Neuron

MODULES = {"pillow": "PIL", "scikit-learn": "sklearn", "huggingface-hub": "huggingface_hub"}  # where named otherwise
CORE = ("torch", "numpy", "numba", "safetensors", "typer", "rich")
EXTRAS = {
    "vision": ("pillow", "pycocotools", "timm", "torchvision"),
    "report": ("matplotlib",),
    "demo": ("scikit-learn",),
    "nir": ("h5py", "nir"),
    "transformers": ("transformers",),
    "hub": ("huggingface-hub",),
    "onnx": ("onnx", "onnxscript"),
}
USES = {
    "vision": "timm:, torchvision:, and images from files",
    "report": "--plot",
    "demo": "demo:digits, and with it spikecast demo",
    "nir": "spikecast export",
    "transformers": "hf:",
    "hub": "hub://",
    "onnx": "onnx:FILE, and spikecast export --out FILE.onnx",
}
MEND = "install it again, with a version that fits the others; torch and torchvision come from the same index"


@grouped
def command(output: JsonOption) -> None:
    """Say what spikecast runs on here, and how to install what is missing.

    \b
    spikecast doctor
    spikecast doctor --json
    """
    data = {
        "spikecast": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in CORE},
        "extras": {extra: {name: _version(name) for name in names} for extra, names in EXTRAS.items()},
        "broken": {name: why for names in EXTRAS.values() for name in names if (why := _broken(name)) is not None},
        "threads": {"torch": torch.get_num_threads(), "cores": os.cpu_count()},
        "kernels": {"cpu": _kernel("cpu"), "cuda": _kernel("cuda") if torch.cuda.is_available() else "no CUDA device"},
    }
    common.show(_text(data), data, as_json=output.as_json)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _broken(package: str) -> str | None:
    """Why a package that is there cannot be imported; None where it can, or is not there."""
    if _version(package) is None:
        return None
    try:
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            importlib.import_module(MODULES.get(package, package))
    except Exception as error:  # whatever a package that fits no other may raise
        return f"{type(error).__name__}: {first_line(error)}"
    return None


def _kernel(device: str) -> str:
    """Which form of the neuron runs: the fused one is tried, since a compiler can be there and not work."""
    try:
        kernels.encode(torch.ones(2, 3, device=device), torch.ones(1, device=device), Neuron(), backend="fused")
    except Exception as error:  # whatever a compiler that is not right may raise
        return f"eager, and slow: the fused kernel does not run ({first_line(error)})"
    return f"fused ({'Numba' if device == 'cpu' else 'Triton'})"


def _text(data: dict[str, Any]) -> str:
    rows = [("spikecast", data["spikecast"], ""), ("Python", data["python"], data["system"])]
    rows += [(name, version or "missing", "") for name, version in data["packages"].items()]
    threads = data["threads"]
    rows.append(("threads", str(threads["torch"]), f"of {threads['cores']} cores; OMP_NUM_THREADS changes it"))
    rows += [(f"neurons on {device}", kernel, "") for device, kernel in data["kernels"].items()]
    for extra, packages in data["extras"].items():
        missing = [name for name, version in packages.items() if version is None]
        has = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
        remedy = f'pip install "spikecast[{extra}]" (lacks {", ".join(missing)}; for {USES[extra]})'
        state, said = ("missing", remedy) if missing else ("there", has)
        why = [f"{name} cannot be imported ({data['broken'][name]})" for name in packages if name in data["broken"]]
        if why:
            state, said = "broken", f"{'; '.join(why)}; {MEND}" + (f"; {remedy}" if missing else "")
        rows.append((f"extra {extra}", state, said))
    return columns(rows)
