"""The bar on a real terminal: what is done, how fast, how long it will take; nothing where there is no terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys

PROGRAM = """
import time
from spikecast.cli.common import progress
with progress(40, "outer") as done:
    for k in range(4):
        with progress(5, f"stage {k}") as inner:
            for _ in range(5):
                time.sleep(0.05)
                inner(1)
        done(10)
print("result")
"""


def shown(master: int) -> str:
    """What came to a terminal, without its control codes."""
    parts = []
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not part:
            break
        parts.append(part)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(parts).decode())


def test_on_a_terminal() -> None:
    master, slave = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=slave, env=environment, text=True
    ) as process:
        os.close(slave)
        text = shown(master)
        assert process.stdout is not None
        result = process.stdout.read()
        assert process.wait(60) == 0, text
    os.close(master)
    assert result == "result\n"
    for words in (r"outer\W+20/40", r"stage 1\W+[1-5]/5", r"\d+\.\d images/s", r"left \d+:\d\d:\d\d"):
        assert re.search(words, text), (words, text[-2000:])


def test_without_a_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("result\n", "")
