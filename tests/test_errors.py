"""What an exception says, in one line."""

from __future__ import annotations

import pytest

from spikecast.errors import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one"), "one"),
        (ValueError("\n  one\ntwo\n"), "one"),
        (ValueError(), "ValueError"),
        (RuntimeError(" \n"), "RuntimeError"),
        (KeyError("key"), "'key'"),
        (ValueError("x" * 1000), "x" * 300),
    ],
)
def test_first_line(error: Exception, line: str) -> None:
    assert first_line(error) == line
