"""Draw docs/report.png: the top of a real report of demo:cnn, as a desktop browser shows it.

    python docs/draw_report.py              makes the report (a minute or two) and takes the picture
    python docs/draw_report.py page.html    takes the picture of a page that is there

It needs Chromium (Debian: apt install chromium; SPIKECAST_CHROMIUM names another).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).resolve().parent
# Two levels and one spike a step: a network that needs a few steps, so that there is a curve to see.
REPORT = (
    "report", "demo:cnn", "--data", "demo:digits", "--steps", "8", "--levels", "2", "--burst", "1",
    "--calibrate", "256",
)  # fmt: skip
SIZE = (1280, 1700)  # the head of the page and its curves
FLAGS = (
    "--headless", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--force-color-profile=srgb", "--virtual-time-budget=5000",
)  # fmt: skip


def main() -> None:
    """Make the page, unless it is given, and its picture."""
    browser = os.environ.get("SPIKECAST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("draw_report: no Chromium; install it (Debian: apt install chromium), or set SPIKECAST_CHROMIUM")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "page.html"
        page = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else made
        if page == made:
            subprocess.run([sys.executable, "-m", "spikecast", *REPORT, "--out", str(made)], check=True)
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # refused to root otherwise
        own = [f"--user-data-dir={folder}/profile", f"--window-size={SIZE[0]},{SIZE[1]}"]
        target = DOCS / "report.png"
        words = [browser, *FLAGS, *root, *own, f"--screenshot={target}", page.as_uri()]
        subprocess.run(words, check=True, stderr=subprocess.DEVNULL, timeout=300)
        with Image.open(target) as picture:  # flat colours: a palette is enough, and a third of the size
            small = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
        small.save(target, optimize=True)
        print(f"{target}: {target.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
