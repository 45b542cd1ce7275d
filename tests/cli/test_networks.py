"""Commands on the networks that come with the package, on saved networks and on programs: nothing is downloaded."""

from __future__ import annotations

import dataclasses
import importlib
import json
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

import spikecast
from spikecast.cli import common
from spikecast.cli.app import COMMANDS
from spikecast.cli.doctor import EXTRAS
from spikecast.sources import Preparation
from spikecast.sources.demo import demo_network

ROOT = Path(__file__).parents[2]
QUICK = ["--thresholds", "quantile", "-T", "2", "--limit", "32"]
DEMO = ["--calibrate", "256", "--batch-size", "100", "--limit", "64"]  # what the demo calibrates and measures with
GREY = Preparation(size=8, crop=1.0, mean=(0.0,), std=(1.0,))


@pytest.fixture(scope="module")
def saved(home: Path) -> Path:
    """A network that was converted by a command."""
    from spikecast.cli import main

    path = home / "digits.spikecast"
    with pytest.raises(SystemExit) as end:
        main(["convert", "demo:cnn", "--data", "demo:digits", "--out", str(path), *QUICK])
    assert end.value.code == 0
    return path


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_has_examples(cli, name: str) -> None:
    done = cli(name, "--help")
    assert done.code == 0
    assert f"  spikecast {name}" in done.out
    assert "--json" in done.out


def test_version(cli) -> None:
    assert cli("--version").out == f"spikecast {spikecast.__version__}\n"


def test_demo_says_what_eval_measures(cli, home: Path) -> None:
    done = cli("demo", "--model", "cnn,tones", "-T", "2", "--limit", "64", "--out", "shown")
    assert done.code == 0, done.err
    assert "What to try next" in done.out
    assert {p.name for p in (home / "shown").iterdir()} == {
        f"{name}.{ending}" for name in ("cnn", "tones") for ending in ("html", "spikecast")
    }
    for name, data, things in (("cnn", "digits", "digits"), ("tones", "tones", "sounds")):
        page = (home / "shown" / f"{name}.html").resolve()
        assert f"The page: {page.as_uri()}" in done.out.splitlines()
        assert "<html" in page.read_text()
        plain = json.loads(cli("eval", f"demo:{name}", "--data", f"demo:{data}", *DEMO, "--json").out)
        (same,), (energy,), (right,) = plain["agreement"], plain["energy"]["ratio"], plain["steps"]["top1"]
        said = f"One step answers as the network does for {same:.1%} of 64 {things}, at {energy:.0%} of its energy."
        assert said in done.out.splitlines()
        assert f"It is right for {right:.1%} of them; the network itself, for {plain['ann']['top1']:.1%}." in done.out
        again = json.loads(cli("eval", f"shown/{name}.spikecast", "--data", f"demo:{data}", *DEMO, "--json").out)
        assert again["steps"] == plain["steps"]


def test_demo_of_the_language_model(cli) -> None:
    words = ("demo", "--model", "llm", "-T", "2", "--limit", "8", "--out", "spoken")
    done = cli(*words)
    assert done.code == 0, done.err
    (said,) = [line for line in done.out.splitlines() if line.startswith("One step answers")]
    assert " of 512 letters, at " in said  # eight texts of 64
    assert "Its perplexity is " in done.out
    assert 'From "The network " on it writes: "' in done.out
    found = json.loads(cli(*words, "--json").out)["llm"]
    assert found["samples"] == 8
    assert {name: len(found[name]["agreement"]) for name in ("one step", "differential", "rate")} == {
        "one step": 1,
        "differential": 2,
        "rate": 2,
    }
    assert f" for {found['one step']['agreement'][0]:.1%} of 512 letters" in said


@pytest.mark.parametrize(("model", "data"), [("llm", "text"), ("tones", "tones")])
def test_commands_on_what_is_no_image(cli, home: Path, model: str, data: str) -> None:
    words = ["--data", f"demo:{data}", *QUICK]
    done = cli("convert", f"demo:{model}", *words, "--out", f"{model}.spikecast")
    assert done.code == 0, done.err
    assert "32 samples" in done.err
    assert "pixels" not in done.err
    assert "preparation" not in spikecast.load(home / f"{model}.spikecast").about
    fresh = json.loads(cli("eval", f"demo:{model}", *words, "--json").out)
    saved = json.loads(cli("eval", f"{model}.spikecast", "--data", f"demo:{data}", *QUICK[2:], "--json").out)
    assert saved["steps"] == fresh["steps"]
    assert next(iter(fresh["steps"])) == {"text": "perplexity", "tones": "top1"}[data]
    assert cli("explain", f"{model}.spikecast", "--data", f"demo:{data}", "--limit", "4").code == 0
    done = cli("report", f"{model}.spikecast", "--data", f"demo:{data}", "--limit", "8", "--out", f"{model}.html")
    assert done.code == 0, done.err
    done = cli("compare", f"demo:{model}", "--data", f"demo:{data}", *QUICK[2:], "--presets", "ours", "--levels", "4")
    assert done.code == 0, done.err
    assert "2 images" not in cli("inspect", f"demo:{model}").out
    assert "SNN, 2 images, T = 2" in cli("bench", f"demo:{model}", "-T", "2", "--rounds", "1").out  # as its example has


@pytest.mark.parametrize(
    ("model", "data"), [("cnn", "text"), ("cnn", "tones"), ("llm", "digits"), ("llm", "tones"), ("tones", "text")]
)
def test_data_of_another_network_is_refused_in_one_line(cli, model: str, data: str) -> None:
    done = cli("eval", f"demo:{model}", "--data", f"demo:{data}", *QUICK)
    assert done.code == 1
    assert done.complaint.startswith("spikecast: ")


def test_inspect_needs_no_data(cli) -> None:
    done = cli("inspect", "demo:vit")
    assert done.code == 0, done.err
    assert "fed by spikes" in done.out
    assert "images of 8 pixels, crop 1, bilinear, mean 0, std 1" in done.out
    found = json.loads(cli("inspect", "net.py:net", "--trust", "--shape", "3,20,24", "--json").out)
    assert found["model"] == "net.py:net"
    assert [row["status"] for row in found["rows"]][:2] == ["analog", "spiking"]
    averages = 12 * 14 / (9 * 11)  # that hold a neuron, in the mean: those of 4 x 4 overlap; each goes to 3 outputs
    assert found["prices"] == pytest.approx({"1": 0.9 * averages * 3})


def test_a_saved_network_knows_its_images(cli, saved: Path) -> None:
    network = spikecast.load(saved)
    expected = {"model": "demo:cnn", "task": "classification", "preparation": json.loads(json.dumps(GREY.to_json()))}
    assert network.about == expected
    done = cli("inspect", "digits.spikecast", "--json")
    found = json.loads(done.out)
    assert {key: found[key] for key in expected} == expected
    assert found["config"]["num_steps"] == 2
    assert found["neurons"] == {site: {"num_levels": 8, "burst": 3} for site in network.sites}
    assert "neurons: n=8 burst=3 at 7 sites\nT = 2, 6 pulse slots" in cli("inspect", "digits.spikecast").out
    words = ["--data", "demo:digits", *QUICK[2:], "--json"]
    again = json.loads(cli("eval", "digits.spikecast", *words).out)
    fresh = json.loads(cli("eval", "demo:cnn", "--data", "demo:digits", *QUICK, "--json").out)
    assert again["steps"] == fresh["steps"]
    assert again["ann"] == fresh["ann"]
    assert len(json.loads(cli("eval", "digits.spikecast", *words, "-T", "3").out)["agreement"]) == 3


def test_a_saved_network_in_a_sandbox(cli, saved: Path) -> None:
    """The same figures; what needs the graph is refused in one line."""
    words = ["digits.spikecast", "--data", "demo:digits", *QUICK[2:], "--json"]
    assert json.loads(cli("eval", *words, "--sandbox").out) == json.loads(cli("eval", *words).out)
    refused = cli("explain", *words[:-1], "--sandbox").complaint
    assert "a network in a sandbox shows no graph, which this command needs" in refused
    assert (
        "--sandbox goes with a FILE.spikecast, and demo:cnn is none"
        in cli("inspect", "demo:cnn", "--sandbox").complaint
    )


def test_batches_of_ones_own_are_not_made_ready(cli, home: Path) -> None:
    words = ["net.py:net", "--trust", "--data", "net.py:batches", "--out", "own.spikecast", "-T", "2"]
    done = cli("convert", *words)
    assert done.code == 0, done.err
    assert spikecast.load(home / "own.spikecast").about == {"model": "net.py:net", "task": "classification"}
    shown = cli("inspect", "own.spikecast")
    for text in (done.err, shown.out):
        assert not any(word in text for word in ("pixels", "crop", "mean ")), text
    assert "net.py:net: classification\n" in shown.out
    assert "preparation" not in json.loads(cli("inspect", "own.spikecast", "--json").out)
    given = cli("inspect", "net.py:net", "--trust", "--shape", "3,20,24").out
    assert given.rstrip().endswith("net.py:net: classification")


def test_explain_and_bench(cli, saved: Path) -> None:
    done = cli("explain", "digits.spikecast", "--data", "demo:digits", "--limit", "16", "--most", "2")
    assert done.code == 0, done.err
    assert done.out.count(" loses ") == 2
    found = json.loads(cli("bench", "digits.spikecast", "--rounds", "1", "--json").out)
    assert (found["num_steps"], found["slots"]) == (2, 6)
    assert found["ratio"] == pytest.approx(found["seconds"]["snn"] / found["seconds"]["ann"])
    done = cli("bench", "digits.spikecast", "--rounds", "1", "-T", "1")  # as much arithmetic as the ANN's own
    assert done.code == 0, done.err
    assert [line.split(",")[0] for line in done.out.splitlines()[1:3]] == ["ANN", "SNN"]
    assert "times as many" not in done.out


def test_bursts_and_budgets(cli, home: Path) -> None:
    """An energy budget chooses the neurons; commands that show steps show the pulse slots."""
    words = ["--rounds", "1", "-T", "2", "--burst", "4"]
    assert "SNN, 4 images, T = 2, 8 slots" in cli("bench", "demo:cnn", *words).out
    goal = ["--energy-budget", "0.2", "-T", "1", "--calibrate", "16"]
    done = cli("convert", "demo:cnn", "--data", "demo:digits", "--out", "cheap.spikecast", *goal)
    assert done.code == 0, done.err
    network = spikecast.load(home / "cheap.spikecast")
    assert network.config.energy_budget == 0.2
    longest = max(neuron.burst for neuron in network.neurons.values())
    assert f"neurons: {common.neurons(network)}" in done.out
    done = cli("eval", "cheap.spikecast", "--data", "demo:digits", "--limit", "64", "--json")
    found = json.loads(done.out)
    assert found["slots"] == [longest]
    assert found["energy"]["ratio"][0] < 0.25
    refused = cli("eval", "cheap.spikecast", "--data", "demo:digits", "--energy-budget", "0.3", "--burst", "2")
    assert "has its own burst, energy_budget" in refused.complaint


def test_a_leak_is_a_setting_that_files_keep(cli, home: Path) -> None:
    words = ["demo:cnn", "--data", "demo:digits", "--out", "leaky.spikecast", *QUICK]
    done = cli("convert", *words, "--set", "leak=0.1")
    assert done.code == 0, done.err
    assert {neuron.leak for neuron in spikecast.load(home / "leaky.spikecast").neurons.values()} == {0.1}
    assert "leak=0.1" in cli("inspect", "leaky.spikecast").out
    assert cli("eval", "leaky.spikecast", "--data", "demo:digits", "--limit", "16").code == 0
    assert "leak=1 must be a number from 0 to below 1" in cli("convert", *words, "--set", "leak=1").complaint


def test_report(cli, home: Path, saved: Path) -> None:
    words = ["--data", "demo:digits", "--limit", "16", "--out", "page.html", "--plot", "curves.svg"]
    done = cli("report", "digits.spikecast", *words, "--json")
    assert done.code == 0, done.err
    assert list(json.loads(done.out)) == ["out", "ann", "headline", "differential"]
    assert json.loads(done.out)["differential"]["slots"] == [3, 6]
    assert "<html" in (home / "page.html").read_text()
    assert "<svg" in (home / "curves.svg").read_text()


def test_export(cli, home: Path, saved: Path) -> None:
    done = cli("export", "digits.spikecast", "--out", "digits.nir", "--profile", "extended", "--json")
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["neurons"]) == 7
    assert (home / "digits.nir").stat().st_size > 0
    done = cli("export", "digits.spikecast", "--data", "demo:digits", "--limit", "2", "--out", "events.npz")
    assert done.code == 0, done.err
    assert "events of 2 samples, T = 2" in done.out
    assert "give --data" in cli("export", "digits.spikecast", "--out", "events.npz").complaint
    done = cli("export", "digits.spikecast", "--out", "plain.nir")
    assert "convert with coding='rate'" in done.complaint
    assert not (home / "plain.nir").exists()


def test_onnx_out_and_in(cli, home: Path) -> None:
    """A network goes out as ONNX, and a model comes in that way."""
    onnx = pytest.importorskip("onnx", reason="ONNX needs the extra onnx")
    pytest.importorskip("onnxscript", reason="torch writes ONNX with onnxscript, which the extra onnx brings")
    quick = ["--data", "net.py:batches", "--trust", "-T", "1", "--burst", "1", "--calibrate", "4"]
    done = cli("export", "net.py:net", *quick, "--out", "net.onnx", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["inputs"] == ["input_0"]
    assert {"Conv", "GreaterOrEqual"} <= {node.op_type for node in onnx.load(str(home / "net.onnx")).graph.node}
    assert "is for ONNX; leave it out" in cli("export", "net.py:net", "--out", "x.onnx", "--check", "sinabs").complaint
    weight = onnx.numpy_helper.from_array(torch.ones(3, 4).numpy(), "w")
    ends = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", ["N", 4]), ("y", ["N", 3]))]
    nodes = [onnx.helper.make_node("Relu", ["x"], ["r"]), onnx.helper.make_node("Gemm", ["r", "w"], ["y"], transB=1)]
    graph = onnx.helper.make_graph(nodes, "net", ends[:1], ends[1:], [weight])
    onnx.save(onnx.helper.make_model(graph), str(home / "own.onnx"))
    done = cli("inspect", "onnx:own.onnx", "--shape", "4", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["num_sites"] == 1


def test_a_program_of_torch_export(cli, home: Path) -> None:
    program = torch.export.export(demo_network("cnn"), (torch.rand(2, 1, 8, 8),))
    torch.export.save(program, home / "cnn.pt2")
    assert "may run code" in cli("inspect", "cnn.pt2").complaint
    done = cli("inspect", "cnn.pt2", "--trust", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["num_sites"] == 7
    (home / "cut.pt2").write_bytes((home / "cnn.pt2").read_bytes()[:1000])
    assert "cannot be read as a program" in cli("inspect", "cut.pt2", "--trust").complaint


def test_a_network_by_region_needs_its_model(cli, home: Path) -> None:
    from spikecast.sources.plugin import function_in

    model = function_in(f"{home / 'net.py'}:net", "model", trust=True)().eval()
    network = spikecast.convert(model, [torch.rand(2, 3, 16, 16)], spikecast.Config(num_steps=2), regions=["0", "4"])
    network.about = {"preparation": Preparation(size=16).to_json()}
    network.save(home / "parts.spikecast")
    assert "give that model" in cli("inspect", "parts.spikecast").complaint
    words = ["parts.spikecast", "--of", "net.py:net", "--trust"]
    assert "images of 16 pixels" in cli("inspect", *words).out
    done = cli("eval", *words, "--data", "imagefolder:images", "--limit", "3", "--json")
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["agreement"]) == 2


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (3, 16)])
def test_a_network_saved_in_python_takes_images_of_its_size(cli, home: Path, channels: int, side: int) -> None:
    """It does not say how images are made ready: its size is known from the graph, the rest is said to be assumed."""
    layers = (torch.nn.Flatten(), torch.nn.Linear(channels * side * side, 3), torch.nn.ReLU())
    model = torch.nn.Sequential(*layers).eval()
    config = spikecast.Config(num_steps=2, thresholds="quantile")
    spikecast.convert(model, [torch.rand(2, channels, side, side)], config).save(home / "mine.spikecast")
    words = ["mine.spikecast", "--data", "imagefolder:images", "--json"]
    done = cli("eval", *words)
    assert done.code == 0, done.err
    assert f"images of {side} pixels" in done.err
    assert "crop 1, " in done.err
    assert "(assumed; say --size, --crop, --mean, --std if not so)" in done.err
    done = cli("eval", *words, "--crop", "0.5")
    assert "crop 0.5, " in done.err
    assert cli("eval", *words, "--crop", "1.5").code == 1
    done = cli("eval", *words, "--mean", "0.5" if channels == 1 else "0.5,0.5,0.5")
    assert done.code == 0, done.err
    assert "assumed" not in done.err


def test_data_of_ones_own(cli) -> None:
    words = ["net.py:net", "--trust", "--data", "net.py:batches", "-T", "2", "--json"]
    assert json.loads(cli("eval", *words).out)["samples"] == 12
    assert json.loads(cli("eval", *words, "--limit", "6").out)["samples"] == 6


def test_doctor(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    done = cli("doctor")
    assert done.code == 0, done.err
    assert done.out.split()[:2] == ["spikecast", spikecast.__version__]
    assert "fused (Numba)" in done.out
    missing = {"timm", "scikit-learn"}

    def version(name: str) -> str:
        if name in missing:
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    done = cli("doctor")
    assert 'pip install "spikecast[vision]" (lacks timm' in done.out
    assert 'pip install "spikecast[demo]" (lacks scikit-learn' in done.out
    assert "broken" not in done.out
    assert json.loads(cli("doctor", "--json").out)["extras"]["vision"] == dict(
        zip(EXTRAS["vision"], ["1.0", "1.0", None, "1.0"], strict=True)
    )
    missing.update(EXTRAS["vision"])
    assert "for timm:, torchvision:, and images from files)" in cli("doctor").out  # no line is cut


def test_doctor_says_why_a_package_fails(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package may be there and yet fit no other: each that an extra needs is imported."""
    found, tried = importlib.import_module, []

    def broken(name: str) -> Any:
        tried.append(name)
        if name == "torchvision":
            raise RuntimeError("operator torchvision::nms does not exist\nand more")
        return found(name)

    monkeypatch.setattr(importlib, "import_module", broken)
    (line,) = [line for line in cli("doctor").out.splitlines() if line.startswith("extra vision")]
    why = "RuntimeError: operator torchvision::nms does not exist"
    assert line.split()[2] == "broken"
    assert f"torchvision cannot be imported ({why}); install it again" in line
    assert {"PIL", "sklearn", "timm", "transformers", "onnx"} <= set(tried)
    assert json.loads(cli("doctor", "--json").out)["broken"] == {"torchvision": why}


def test_doctor_knows_the_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        extra: tuple(sorted(line.partition(">")[0] for line in lines))
        for extra, lines in project["optional-dependencies"].items()
        if extra != "dev"
    }
    assert declared == {extra: tuple(sorted(names)) for extra, names in EXTRAS.items()}


def test_preparation_of_grey_and_colour() -> None:
    pixels = torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8)
    grey = GREY(pixels)
    assert grey.shape == (1, 8, 8)
    assert torch.allclose(grey[0] * 255, 0.299 * pixels[0] + 0.587 * pixels[1] + 0.114 * pixels[2], atol=1e-3)
    colour = dataclasses.replace(GREY, mean=(0.0, 0.5, 1.0), std=(1.0, 1.0, 2.0))
    three = colour(pixels[:1])
    assert three.shape == (3, 8, 8)
    assert torch.allclose(three[1], three[0] - 0.5)
    with pytest.raises(spikecast.SpikecastError, match="one number each, or three"):
        dataclasses.replace(GREY, std=(0.0,))
    with pytest.raises(spikecast.SpikecastError, match="does not say how"):
        Preparation.from_json({"mean": [1], "std": [1], "colour": 3})
