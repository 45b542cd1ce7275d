"""--task on the command line: the tasks by name, and those of a file of one's own; and inputs that hold frames."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config, measure
from spikecast.cli.source import Source
from spikecast.sources.images import Preparation
from spikecast.sources.plugin import function_in

MINE = """
import torch
from torch import nn
from spikecast.measure import Detection, Metric, OwnTask, Segmentation
from spikecast.measure.tasks.classify import Classification

def net(inputs=2, outputs=6):
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(inputs, 6, 3, 1, 1), nn.ReLU(), nn.Conv2d(6, outputs, 1))

def raw_boxes():
    return nn.Sequential(net(3, 5), nn.AdaptiveAvgPool2d(1), nn.Flatten())

def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))

def pixels(split="val"):
    x = drawn(4, 2, 8, 8)
    yield from ((part, part[:, 0].gt(0).long() + 4) for part in x.split(2))

def photos():
    truth = {"boxes": torch.tensor([[0.0, 0.0, 9.0, 9.0]]), "labels": torch.tensor([1])}
    return [(drawn(3, 3, 8, 8), [truth] * 3)]

def frames(split="val"):
    return [(drawn(4, 5, 2, 8, 8), torch.tensor([0, 1, 2, 3]))]

def classifier():
    return nn.Sequential(net(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = classifier()
    def forward(self, left, right):
        return self.net(left - right)

def named_frames(split="val"):
    return [{"left": x, "right": x.flip(0) / 2, "label": y} for x, y in frames()]

def paired_frames(split="val"):
    return [((x, x.flip(0) / 2), y) for x, y in frames()]

def masks():
    return Segmentation(decode=lambda scores: scores.argmax(1), classes=6)

def boxes():
    def decode(raw):
        return [{"boxes": 9 * row[None, :4].sigmoid(), "scores": row[4:].sigmoid(), "labels": [1]} for row in raw]
    return Detection(decode=decode)

def largest():
    return OwnTask(lambda a, y: a.flatten(1).amax(1).tolist(), max, name="largest", metric=Metric(""))

def clumsy():
    return Segmentation(decode=lambda scores: scores["no such thing"])

def classes():
    return Classification()

def no_task():
    return "segmentation"
"""
QUICK = ["--trust", "--thresholds", "quantile", "-T", "2", "--burst", "1"]


@pytest.fixture(scope="module")
def mine(home: Path) -> Path:
    (home / "mine.py").write_text(MINE)
    return home


def in_python(mine: Path, model: str, data: str, task: str, **settings: Any) -> measure.Evaluation:
    """The same by the functions of the package."""
    made, batches, scored = (function_in(f"mine.py:{name}", "it", trust=True) for name in (model, data, task))
    torch.manual_seed(0)
    ann = made().eval()
    inputs = [x if settings.get("time_axis") is None else x.mean(1) for x, _ in batches()]
    steps = 2 if settings.get("time_axis") is None else 5
    snn = spikecast.convert(ann, inputs, Config(num_steps=steps, burst=1, thresholds="quantile"))
    return measure.evaluate(snn, batches(), scored(), model=ann, **settings)


@pytest.mark.parametrize(
    ("model", "data", "task"),
    [("net", "pixels", "masks"), ("raw_boxes", "photos", "boxes"), ("net", "pixels", "largest")],
)
def test_a_task_of_ones_own_gives_pythons_figures(cli, mine: Path, model: str, data: str, task: str) -> None:
    done = cli("eval", f"mine.py:{model}", "--data", f"mine.py:{data}", "--task", f"mine.py:{task}", "--json", *QUICK)
    assert done.code == 0, done.err
    assert json.loads(done.out) == json.loads(json.dumps(in_python(mine, model, data, task).to_json()))


def test_frames_give_pythons_figures(cli, mine: Path) -> None:
    words = ("eval", "mine.py:classifier", "--data", "mine.py:frames", "--time-axis", "1", "--json", *QUICK, "-T", "5")
    done = cli(*words, "--task", "classification")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    wanted = in_python(mine, "classifier", "frames", "classes", time_axis=1).to_json()
    assert {**found, "task": ""} == {**json.loads(json.dumps(wanted)), "task": ""}
    assert "time_axis=9: every floating-point input needs that axis" in cli(*words, "--time-axis", "9").complaint
    assert "num_steps=6 exceeds the 5 frames given" in cli(*words, "-T", "6").complaint
    assert "num_steps=2 for 5 frames" in cli(*words, "-T", "2").complaint


@pytest.mark.parametrize("data", ["named_frames", "paired_frames"])
def test_frames_of_two_inputs(cli, mine: Path, data: str) -> None:
    """Thresholds come from the mean of the frames, whatever the loader's batches look like."""
    words = ("--data", f"mine.py:{data}", "--time-axis", "1", "--json", *QUICK, "-T", "5")
    done = cli("eval", "mine.py:Two", *words)
    assert done.code == 0, done.err
    made, batches = (function_in(f"mine.py:{name}", "it", trust=True) for name in ("Two", "paired_frames"))
    torch.manual_seed(0)
    ann = made().eval()
    still = [(left.mean(1), right.mean(1)) for (left, right), _ in batches()]
    snn = spikecast.convert(ann, still, Config(num_steps=5, burst=1, thresholds="quantile"))
    wanted = measure.evaluate(snn, batches(), model=ann, time_axis=1).to_json()
    assert json.loads(done.out) == json.loads(json.dumps(wanted))


def test_several_settings_are_measured_on_the_same_batches(cli, mine: Path) -> None:
    words = ("mine.py:net", "--data", "mine.py:pixels", "--task", "mine.py:masks", "--trust", "-T", "2")
    done = cli("compare", *words, "--presets", "dcgs,ours", "--levels", "4", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["metric"], found["unmet"]) == ("miou", {})
    entries = found["entries"]
    assert [entry["samples"] for entry in entries.values()] == [4, 4]
    assert entries["dcgs n=4"]["ann"] == entries["ours n=4"]["ann"]
    (beside,) = found["verdicts"]
    assert (beside["first"], beside["second"]) == ("ours", "dcgs")
    energies = sorted({x for entry in entries.values() for x in entry["energy"]["ratio"]})
    assert [at["energy"] for at in beside["energies"]] == energies
    assert {"better", "worse", "undecided"} >= {beside["overall"]}
    assert all(at["interval"] is not None or at["verdict"].startswith("only") for at in beside["energies"])
    done = cli("report", *words, "--out", "page.html")
    assert done.code == 0, done.err
    assert "ANN: miou" in done.out
    words = (*words[:4], "mine.py:largest", *words[5:])
    done = cli("report", *words, "--out", "page.html")
    assert done.code == 0, done.err
    assert "ANN: largest" in done.out  # no share of samples, and shown all the same


def test_a_saved_network_names_no_code(cli, mine: Path) -> None:
    words = ("--data", "mine.py:pixels", "--task", "mine.py:masks", *QUICK)
    assert cli("convert", "mine.py:net", *words, "--out", "own.spikecast").code == 0
    assert spikecast.load(mine / "own.spikecast").about["task"] == "mine.py:masks"
    measured = ("eval", "own.spikecast", "--data", "mine.py:pixels", "--trust")
    complaint = cli(*measured).complaint
    assert "own.spikecast is for the task 'mine.py:masks'" in complaint
    assert complaint.endswith("say --task FILE.py:FUNCTION --trust")
    assert cli(*measured, "--task", "mine.py:masks").code == 0


@pytest.mark.parametrize(
    ("task", "trust", "complaint"),
    [
        ("mine.py:masks", [], "task 'mine.py:masks' would run the code in mine.py; say --trust"),
        ("mine.py:no_task", ["--trust"], "task 'mine.py:no_task' made a str; the function must return a task"),
        ("mine.py:nothing", ["--trust"], "mine.py has no function 'nothing'"),
        ("none.py:masks", ["--trust"], "there is no file none.py"),
        ("guessing", ["--trust"], "--task 'guessing': give one of classification, segmentation, detection"),
        ("mine.py:clumsy", ["--trust"], "decode fails on an answer (IndexError: "),
    ],
)
def test_tasks_that_are_refused(cli: Callable[..., Any], mine: Path, task: str, trust: list[str], complaint) -> None:
    model = ["mine.py:net", "--data", "mine.py:pixels"] if trust else ["demo:cnn", "--data", "demo:digits"]
    assert complaint in cli("eval", *model, "--task", task, *trust, "--thresholds", "quantile").complaint


def test_a_task_that_needs_to_be_told_how_to_read_answers(cli: Callable[..., Any], mine: Path) -> None:
    words = ("eval", "mine.py:raw_boxes", "--data", "mine.py:photos", *QUICK)
    assert "one per image; Detection(decode=...) makes it" in cli(*words, "--task", "detection").complaint
    assert "targets of class numbers [B, H, W]" in cli(*words, "--task", "segmentation").complaint
    words = ("eval", "mine.py:net", "--data", "mine.py:pixels", *QUICK)
    assert "classification needs one, or give another task" in cli(*words).complaint


def test_records_of_another_task_are_refused(cli, mine: Path) -> None:
    words = ("eval", "mine.py:net", "--data", "mine.py:pixels", *QUICK, "--resume", "of-masks", "--task")
    assert cli(*words, "mine.py:masks").code == 0
    assert "task was 'mine.py:masks' and is 'segmentation'" in cli(*words, "segmentation").complaint


def test_labels_of_pixels_do_not_say_that_answers_are_scores(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spikecast.cli.job import open_job
    from spikecast.cli.options import JobOptions

    monkeypatch.chdir(mine)
    given: dict[str, Any] = {"model": "mine.py:net", "data": "mine.py:pixels", "trust": True}
    for task, parts in (("mine.py:masks", 1), ("mine.py:largest", 2)):
        assert [len(b) for b in open_job(JobOptions(**given, task=task)).calibration()] == [parts] * 2


@pytest.mark.parametrize(
    ("data", "task", "size"), [("coco:d", "mine.py:boxes", None), ("coco:d", "", None), ("imagefolder:d", "", 224)]
)
def test_images_of_detection_keep_their_size_whatever_the_task(data, task, size) -> None:
    """Their boxes are in pixels of the images as they are."""
    source = Source(
        model=nn.Identity(), preparation=Preparation(), spec="mine.py:net", device=torch.device("cpu")
    ).reading(data, task)
    assert source.preparation.size == size
