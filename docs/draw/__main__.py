"""The pictures of the documentation, drawn from the package itself: python docs/draw

Each function makes one picture as SVG, docs/pictures/NAME.svg. tests/docs draws them again and compares.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import neurons
import paths

PICTURES: dict[str, Callable[[], str]] = {
    "neuron": neurons.neuron,
    "burst": neurons.burst,
    "codings": neurons.codings,
    "pipeline": paths.pipeline,
    "network": paths.network,
    "chip": paths.chip,
    "energy": paths.energy,
    "report": paths.report,
}

if __name__ == "__main__":
    folder = Path(__file__).resolve().parents[1] / "pictures"
    folder.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")
    print(f"wrote {', '.join(PICTURES)} to {folder}")
