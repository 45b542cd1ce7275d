"""Every option is checked before there is any work: the model is never opened, and nothing is written."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import typer.main

from spikecast.cli.app import COMMANDS, app

MODEL = ["demo:cnn", "--data", "demo:digits"]
COMMANDS_OF_JOBS = {
    "convert": ["convert", *MODEL, "--out", "made/net.spikecast"],
    "eval": ["eval", *MODEL],
    "explain": ["explain", *MODEL],
    "compare": ["compare", *MODEL],
    "sweep": ["sweep", *MODEL],
    "report": ["report", *MODEL, "--out", "made/page.html"],
    "export": ["export", *MODEL, "--out", "made/net.onnx"],
    "figure": ["figure", "coding", *MODEL],
    "reproduce": ["reproduce", "cnn", "--data", "images", "--random-weights"],
    "bench": ["bench", "demo:cnn"],
    "inspect": ["inspect", "demo:cnn"],
    "demo": ["demo"],
}
# Bad values of options that several commands have, and what is said of them.
SHARED = [
    ("--limit", "0", "--limit 0: no image would be left; give 1 or more"),
    ("--batch-size", "-1", "--batch-size -1: a batch has at least one image; give 1 or more"),
    ("--calibrate", "0", "--calibrate 0: thresholds need at least one image; give 1 or more"),
    ("--size", "0", "--size 0: images have 1 to 8192 pixels a side; give such a number"),
    ("--mean", "0.5,0.5", "--mean 0.5,0.5: give one number, or three"),
    ("--std", "0", "--std 0: pixels are divided by it; give numbers above 0"),
    ("--classes", "0", "--classes 0: a model has at least one class; give 1 or more"),
    ("--weights", "folder", "--weights folder: there is no such file; check the name"),
    ("--class-map", "file", "file cannot be read as JSON"),
    ("--device", "tpu", "--device tpu: it is not a device; give cpu, cuda or cuda:N"),
    ("--seed", "-1", "--seed -1: a seed is a whole number from 0 to"),
    ("--seed", str(2**70), f"--seed {2**70}: a seed is a whole number from 0 to"),
    ("--costs", "cheap", "--costs cheap: give one of paper, honest, full"),
    ("--resume", "file", "--resume file: it is a file; give the name of a folder"),
    ("--resume", "file/x", "file is a file, not a folder; give a name in another folder"),
    ("--plot", "x.gif", "x.gif ends in none of .svg, .pdf, .png; give such a name"),
    ("--plot", "file/x.svg", "file is a file, not a folder; give a name in another folder"),
    ("--csv", "folder", "--csv folder: it is a folder; give the name of a file"),
    ("--csv", "file/x.csv", "file is a file, not a folder; give a name in another folder"),
    ("--csv", "x" * 300, "no file can have this name (File name too long); give another"),
    ("--raster", "x.gif", "x.gif ends in none of .svg, .pdf, .png; give such a name"),
    ("--shape", "1,-3", "--shape 1,-3: give whole numbers above 0"),
    ("--steps", "0", "num_steps=0 must be a whole number from 1 to 4096"),
    ("--levels", "0", "num_levels=0 must be a whole number from 1 to 14"),
    ("--scale", "0", "threshold_scale=0.0 must be a number above 0"),
    ("--set", "budget_costs=cheap", "costs='cheap' is not one of paper, honest, full"),
    ("--set", "leak=2", "leak=2 must be a number from 0 to below 1"),
]
OWN = [
    (["convert", *MODEL, "--out", "net.txt"], "--out net.txt: the name must end in .spikecast; give such a name"),
    (["report", *MODEL, "--out", "page.pdf"], "--out page.pdf: the name must end in one of .html, .htm"),
    (["report", *MODEL, "--out", "file/x.html"], "file is a file, not a folder; give a name in another folder"),
    (["demo", "--out", "file"], "--out file: it is a file; give the name of a folder"),
    (["eval", *MODEL, "--out", "/dev/stdout"], "--out /dev/stdout: it is a device, a pipe or a socket"),
    (["eval", *MODEL, "--time-axis", "0"], "--time-axis 0: axis 0 is the batch; give 1 or more"),
    (["explain", *MODEL, "--most", "0"], "--most 0: there would be nothing to say; give 1 or more"),
    (["bench", "demo:cnn", "--rounds", "0"], "--rounds 0: there would be nothing to time; give 1 or more"),
    (["compare", *MODEL, "--presets", ""], "--presets '': it names nothing; give at least one, or leave it out"),
    (["sweep", *MODEL, "--thresholds", ","], "--thresholds ',': it names nothing; give at least one, or leave it out"),
    (["sweep", *MODEL, "--budget", "energy=-1"], "--budget energy=-1: nothing stays within it; give a share above 0"),
    (["sweep", *MODEL, "--budget", "steps=0"], "--budget steps=0: nothing stays within it; give 1 or more"),
    (["export", *MODEL, "--out", "x.nir", "--profile", "best"], "--profile best: give one of portable, composite"),
    (["export", *MODEL, "--out", "x.onnx", "--split"], "--split is for a NIR graph, and --out x.onnx is none"),
    (
        ["export", *MODEL, "--out", "x.nir"],
        "--profile portable is for plain neurons; convert with --coding rate --burst 1 --set leak=0.0 --levels 1 "
        "--set signed=false --set firing_boundary=1.0, or say --profile extended",
    ),
    (["export", *MODEL, "--out", "x.nir", "--profile", "composite", "--coding", "rate"], "--coding rate --burst 1"),
    (["eval", "demo:cnn", "--data", ""], "give KIND:DIR"),
    (["eval", "demo:cnn", "--data", "imagefolder:nowhere"], "there is no folder nowhere"),
    (["eval", "demo:cnn", "--data", "no.py:f", "--trust"], "there is no file no.py; check the name"),
]
WRONG_USAGE = [
    (["eval"], "Missing argument 'MODEL'; spikecast eval --help says what can be given"),
    (["evaluate"], "No such command 'evaluate'"),
    (["eval", *MODEL, "--stps", "3"], "No such option: --stps"),
    (["eval", *MODEL, "--steps", "many"], "Invalid value for '--steps'"),
]


def options(name: str) -> set[str]:
    """The long options of a command."""
    command: Any = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    return {word for param in command.params for word in param.opts if word.startswith("--")}


CASES = [
    pytest.param([*words, option, value], says, id=f"{name} {option} {value[:20]}")
    for (name, words), (option, value, says) in itertools.product(COMMANDS_OF_JOBS.items(), SHARED)
    if option in options(name) and (name, option) != ("reproduce", "--levels")  # of rows of the table
]


@pytest.fixture
def at_work(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a model fails."""

    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the model is opened")

    monkeypatch.setattr("spikecast.cli.source.open_model", never)
    (home / "file").write_text("no JSON")
    (home / "folder").mkdir(exist_ok=True)


@pytest.mark.usefixtures("at_work")
@pytest.mark.parametrize(("words", "says"), [*CASES, *OWN])
def test_before_the_model_is_opened(home: Path, cli, words: list[str], says: str) -> None:
    before = sorted(home.rglob("*"))
    done = cli(*words)
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert done.complaint.startswith("spikecast: ")
    assert says in done.complaint
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize(("words", "says"), WRONG_USAGE)
def test_wrong_usage_is_one_line(cli, words: list[str], says: str) -> None:
    done = cli(*words)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert says in done.complaint


def test_options_that_a_saved_network_has_no_use_for(cli, home: Path) -> None:
    quick = ["--thresholds", "quantile", "--limit", "8"]
    assert cli("convert", *MODEL, "--out", "made.spikecast", *quick).code == 0
    (home / "w.pt").write_text("")
    for words in (["--pretrained"], ["--weights", "w.pt"], ["--classes", "3"]):
        complaint = cli("inspect", "made.spikecast", *words).complaint
        assert f"{words[0]} is for a model, and made.spikecast has its weights; leave it out" in complaint
    for words in (["--strict"], ["--shape", "1,8,8"]):
        assert "is converted already; leave it out" in cli("inspect", "made.spikecast", *words).complaint
    complaint = cli(
        "explain", "made.spikecast", "--data", "demo:digits", "--raster", "x.svg", "--sample", "449"
    ).complaint
    assert "--sample 449: there are 449 images, counted from 0; give a lower one" in complaint


@pytest.mark.parametrize("width", ["80", "120"])
def test_help_is_not_cut(cli, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    """Every sentence about a command and its options is there as a whole, within the width but for examples."""
    monkeypatch.setenv("COLUMNS", width)
    for name, module in COMMANDS.items():
        text = cli(name, "--help").out
        prose = [line for line in text.splitlines() if not line.startswith(("  spikecast ", "      --"))]
        assert all(len(line) <= int(width) for line in prose)
        joined = "".join(text.split())  # lines break at spaces and behind hyphens
        command: Any = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
        for param in command.params:
            assert "".join((getattr(param, "help", None) or "").split()) in joined, param.name
        (first, *_) = module.command.__doc__.split("\n\n")
        assert "".join(first.split()) in joined
    assert len(max(cli("--help").out.splitlines(), key=len)) > int(width) - 20  # the width is used
