"""What `make coverage` tries, what it keeps, and the page it writes."""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import timm

from benchmarks.coverage import __main__ as program
from benchmarks.coverage import examine, process
from benchmarks.coverage.models import Case, cases
from benchmarks.coverage.page import write_page
from benchmarks.coverage.process import tried
from benchmarks.coverage.records import RESULTS, commit_of, read_records, write_records

GOOD: dict[str, Any] = {"failed": "", "parameters": 5_200_000, "capture": 2.6, "early": 0.4, "late": 0.1, "same": True}
GOOD["commit"] = "1234567"


def test_every_family_of_timm_is_tried() -> None:
    families = {family for family in timm.list_modules() if timm.list_models(module=family)}
    own = [case for case in cases() if case.library == "timm"]
    tried = {case.family for case in own}
    assert tried <= families
    assert len(families - tried) <= 5, "timm has new families: python -m benchmarks.coverage.find"
    assert len(own) == len(tried)
    assert all(case.name in timm.list_models(module=case.family) for case in own)


def test_every_kind_of_torchvision_is_tried() -> None:
    own = [case for case in cases() if case.library == "torchvision"]
    assert {case.family for case in own} == {"classification", "segmentation", "detection", "video"}
    assert len({case.key for case in own}) == len(own) > 100
    assert all(bool(case.regions) == (case.family == "detection") for case in own)


def test_page(tmp_path) -> None:
    page = tmp_path / "supported.md"
    page.write_text("before\n<!-- coverage -->\nold\n<!-- /coverage -->\nafter\n", encoding="utf-8")
    own = [
        Case("timm", family, name, (3, 96, 96)) for family, name in (("a", "a1"), ("b", "b1"), ("c", "c1"), ("d", "d1"))
    ]
    found: dict[str, dict[str, Any]] = {
        "timm:a1": GOOD,
        "timm:b1": GOOD | {"late": 0.3},
        "timm:c1": {"failed": "SomeError: no | such op", "commit": "before 1234567"},
    }
    write_page(page, own, found)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "3 of 4 were tried. 2 convert and come back from a file with the same bits; 1 of them halve" in text
    assert "at once. Measured at commit: 1234567 (2), before 1234567 (1).\n" in text
    assert "| a | a1 | 5.2 | 96×96 | 3 s | 0.400 | 0.100 |  |" in text
    assert "| b | b1 | 5.2 | 96×96 | 3 s | 0.400 | 0.300 | its error does not halve |" in text
    assert "| c | c1 | | 96×96 | | | | SomeError: no / such op |" in text


def test_what_was_found_is_not_tried_again(tmp_path, monkeypatch, capsys) -> None:
    asked = []

    def note(case, seconds, gigabytes):
        asked.append(case.key)
        return {"key": case.key, "failed": "CaptureError: why not"}

    monkeypatch.setattr(program, "tried", note)
    path, old = tmp_path / "results.jsonl", {"key": "torchvision:vgg13", "failed": "old", "commit": "before 1234567"}
    write_records(path, {old["key"]: old})
    for names in (["vgg11"], ["vgg11", "vgg13"]):
        only = [f"torchvision:{name}" for name in names]
        monkeypatch.setattr(sys, "argv", ["coverage", "--results", str(path), "--only", *only])
        assert program.main() == 0
    assert asked == ["torchvision:vgg11", "torchvision:vgg13"]
    assert [*read_records(path)] == asked
    assert {record["commit"] for record in read_records(path).values()} == {commit_of()}
    assert "why not" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--again"])
    assert program.main() == 0
    assert asked == ["torchvision:vgg11", "torchvision:vgg13"] * 2


def test_the_page_is_made_of_the_records(tmp_path) -> None:
    """Whoever measured a network again must also write the page."""
    page = Path("docs/supported.md")
    (tmp_path / page.name).write_bytes(page.read_bytes())
    write_page(tmp_path / page.name, cases(), read_records(RESULTS))
    assert (tmp_path / page.name).read_text(encoding="utf-8") == page.read_text(encoding="utf-8"), (
        "python -m benchmarks.coverage --page docs"
    )


@pytest.mark.slow
def test_a_process_of_its_own_says_what_went_wrong() -> None:
    unknown = tried(Case("timm", "none", "no_such_network", (3, 32, 32)), 60, 8)
    assert unknown["failed"] == "RuntimeError: Unknown model (no_such_network)"
    slow = tried(Case("torchvision", "classification", "resnet18", (3, 32, 32)), 1, 8)
    assert "stopped after 1 s" in slow["failed"]


@pytest.mark.parametrize("end", [MemoryError, SystemExit])
def test_a_second_try_that_fails_leaves_what_the_first_one_found(end, monkeypatch) -> None:
    def second_fails(case):
        yield {"late": 1.0}
        raise end

    class Inline(multiprocessing.Process):
        def start(self):
            with contextlib.suppress(SystemExit):
                self.run()

        def join(self, timeout=None):
            pass

    monkeypatch.setattr(examine, "examine", second_fails)
    monkeypatch.setattr(resource, "setrlimit", lambda *limits: None)
    monkeypatch.setattr(process, "PROCESSES", mock.Mock(Pipe=multiprocessing.Pipe, Process=Inline))
    case = Case("timm", "none", "any", (3, 32, 32))
    assert tried(case, 600, 8) == {"key": "timm:any", "failed": "", "late": 1.0}
