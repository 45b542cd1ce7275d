"""Options that several commands share, in groups: a command takes a group as one parameter.

`grouped` puts the fields of the groups into the command's signature, which typer reads, and hands them over as objects.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from spikecast.cli import checks
from spikecast.config import Config, Method
from spikecast.costs import costs_named
from spikecast.errors import ConfigError, first_line
from spikecast.measure.tasks import TASKS
from spikecast.presets import PRESETS, described, preset

Steps = Annotated[int, typer.Option("--steps", "-T", help="time-steps")]
DataSpec = Annotated[
    str,
    typer.Option(
        help="imagefolder:DIR, imagenet:DIR, cifar10:DIR, coco:DIR, voc:DIR, demo:digits, demo:text, demo:tones or "
        "FILE.py:FUNCTION"
    ),
]
LevelList = Annotated[str, typer.Option("--levels", "-n", help="thresholds per sign, with commas between")]
Limit = Annotated[
    int | None,
    typer.Option(
        help="take at most so many images, spread over the set (of a FILE.py:FUNCTION the first)",
        callback=checks.at_least(1, "no image would be left"),
    ),
]
BatchSize = Annotated[
    int,
    typer.Option(help="images at a time", callback=checks.at_least(1, "a batch has at least one image")),
]
CURVE = 8  # steps of commands that show how answers get better with time
METHODS = f"{', '.join(get_args(Method))} (quantile_published depends on --batch-size)"
SETTINGS = {  # Config's names of those that are options
    "steps": "num_steps",
    "levels": "num_levels",
    "burst": "burst",
    "coding": "coding",
    "thresholds": "thresholds",
    "scale": "threshold_scale",
    "energy_budget": "energy_budget",
    "fidelity": "fidelity",
}
BURST = "spikes that a neuron may send in one step"


@dataclass(frozen=True, kw_only=True)
class WeightOptions:
    """Where a model's weights come from, and how its images are made ready."""

    weights: Annotated[
        Path | None, typer.Option(help="safetensors, or a checkpoint of tensors", callback=checks.weights)
    ] = None
    pretrained: Annotated[bool, typer.Option("--pretrained", help="download the publisher's weights")] = False
    classes: Annotated[
        int | None, typer.Option(help="classes of the model, where not its usual number", callback=checks.classes)
    ] = None
    trust: Annotated[bool, typer.Option("--trust", help="run the code of every FILE.py, or of a .pt2 program")] = False
    size: Annotated[
        int | None, typer.Option(help="pixels of a side, where not the model's usual size", callback=checks.size)
    ] = None
    crop: Annotated[
        float | None,
        typer.Option(
            help="share of a side that the middle square has; unless given what the model's publisher says, else "
            "0.875, or 1 (the whole image) below 128 pixels",
            callback=checks.crop,
        ),
    ] = None
    mean: Annotated[
        str,
        typer.Option(
            help="subtracted from pixels in 0..1: three numbers for colour images; one number makes images grey",
            callback=checks.mean,
        ),
    ] = ""
    std: Annotated[
        str,
        typer.Option(
            help="pixels are divided by it: three numbers for colour images; one number makes images grey",
            callback=checks.std,
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class ModelOptions(WeightOptions):
    """A model, or a network that was converted before."""

    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="timm:NAME, torchvision:NAME, hf:NAME_OR_DIR, onnx:FILE, demo:NAME (cnn, vit, llm, tones), "
            "FILE.py:FACTORY, FILE.pt2 or FILE.spikecast",
        ),
    ]
    of: Annotated[
        str | None,
        typer.Option("--of", metavar="MODEL", help="the model of a FILE.spikecast that was converted by region"),
    ] = None
    sandbox: Annotated[
        bool, typer.Option("--sandbox", help="load and run a FILE.spikecast in a process of its own, under limits")
    ] = False
    regions: Annotated[
        str,
        typer.Option(help="submodules to convert where the whole cannot be: auto, or their names with commas between"),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Images and targets."""

    data: DataSpec
    limit: Limit = None
    calibrate: Annotated[
        int,
        typer.Option(
            help="images that thresholds are found from, of the training split where there is one",
            callback=checks.at_least(1, "thresholds need at least one image"),
        ),
    ] = 100
    batch_size: BatchSize = 32
    class_map: Annotated[
        Path | None,
        typer.Option(
            help="JSON file: the class number of each folder of images, where not their order",
            callback=checks.class_map,
        ),
    ] = None
    skip_corrupt: Annotated[
        bool, typer.Option("--skip-corrupt", help="pass over images that cannot be read, and name them")
    ] = False


@dataclass(frozen=True, kw_only=True)
class SettingOptions:
    """How a model is converted. What is not given is as the preset has it, Config's default, or a saved network's."""

    preset: Annotated[
        str | None, typer.Option(help=f"start from a method: {described()}; the other options change it")
    ] = None
    steps: Annotated[int | None, typer.Option("--steps", "-T", help=f"time-steps; {Config.num_steps} unless given")] = (
        None
    )
    levels: Annotated[
        int | None,
        typer.Option(
            "--levels",
            "-n",
            help=f"thresholds per sign of a neuron; {Config.num_levels} unless given, 1 is the signed IF neuron",
        ),
    ] = None
    burst: Annotated[int | None, typer.Option(help=f"{BURST}; {Config.burst} unless given")] = None
    coding: Annotated[
        str | None,
        typer.Option(help="differential or rate; unless given differential, and both in a report of several steps"),
    ] = None
    thresholds: Annotated[str | None, typer.Option(help=f"{METHODS}; {Config.thresholds} unless given")] = None
    scale: Annotated[float | None, typer.Option(help="multiplies the thresholds")] = None
    energy_budget: Annotated[
        float | None,
        typer.Option(help="stay within this share of the ANN's energy; chooses levels, bursts, thresholds"),
    ] = None
    fidelity: Annotated[
        float | None,
        typer.Option(help="come this close to the ANN's answers (nats, or squared relative error) at the least energy"),
    ] = None
    others: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="any other setting, as in signed=false; may be repeated"),
    ] = None

    def __post_init__(self) -> None:
        """What is wrong is said before anything is read."""
        try:
            costs_named(self.config().budget_costs)
        except ConfigError as error:
            for option, name in SETTINGS.items():
                if str(error).startswith(f"{name}=") and getattr(self, option) is not None:
                    raise ConfigError(f"--{option.replace('_', '-')}: {error}") from None
            raise

    @property
    def given(self) -> dict[str, Any]:
        """What was given, by Config's names."""
        given = {name: value for option, name in SETTINGS.items() if (value := getattr(self, option)) is not None}
        return given | dict(map(_setting, self.others or ()))

    @property
    def names(self) -> list[str]:
        """The names of what was given."""
        return [*self.given, *([] if self.preset is None else ["settings (--preset)"])]

    def config(self, seed: int = 0, has_rectifiers: Callable[[], bool] = lambda: True) -> Config:
        """All settings; the network is looked at where those of a preset depend on its rectifying neurons."""
        given = {"seed": seed, **self.given}
        if self.preset is None:
            return Config(**given)
        levels = Config.num_levels if self.levels is None else self.levels
        start = preset(self.preset, num_levels=levels)
        if PRESETS[self.preset].without_rectifiers and not has_rectifiers():
            start = preset(self.preset, num_levels=levels, rectifiers=False)
        return dataclasses.replace(start, **given)


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """What it runs on."""

    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...", callback=checks.device)] = "cpu"
    seed: Annotated[int, typer.Option(help="of what is drawn at random", callback=checks.seed)] = 0


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """How long measurements are priced and kept."""

    costs: Annotated[str, typer.Option(help="paper, honest or full", callback=checks.costs)] = "paper"
    resume: Annotated[
        Path | None,
        typer.Option(
            help="folder for finished batches; a run that was stopped goes on from it", callback=checks.folder_to_write
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where results go."""

    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False
    out: Annotated[
        Path | None, typer.Option("--out", help="write the JSON to a file as well", callback=checks.file_to_write)
    ] = None


@dataclass(frozen=True, kw_only=True)
class FigureOptions:
    """Results for papers."""

    plot: Annotated[
        Path | None,
        typer.Option(help="draw them to this file: .svg, .pdf or .png", callback=checks.plot_to_write),
    ] = None
    csv: Annotated[
        Path | None,
        typer.Option("--csv", help="write comma-separated values as well", callback=checks.file_to_write),
    ] = None


@dataclass(frozen=True, kw_only=True)
class JobOptions(MachineOptions, DataOptions, ModelOptions):  # fields of the last come first
    """A model and its data."""

    task: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(TASKS)}, or FILE.py:FUNCTION for your own; unless given, what model or data are for"
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class MaybeJobOptions(JobOptions):
    """The same where a saved network may do without data."""

    data: DataSpec = ""


@dataclass(frozen=True, kw_only=True)
class MeasuredOptions(FigureOptions, OutputOptions, MeasureOptions, JobOptions):
    """A model that is measured on its data."""


@dataclass(frozen=True, kw_only=True)
class MaybeMeasuredOptions(MeasuredOptions):
    """The same where a figure may need neither."""

    model: Annotated[str, typer.Argument(metavar="MODEL", help="as for eval")] = ""
    data: DataSpec = ""


@dataclass(frozen=True, kw_only=True)
class JsonOption:
    """For commands whose result is a file, or short."""

    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of text")] = False


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, where the value is JSON or a plain word."""
    name, equals, value = text.partition("=")
    known = [field.name for field in dataclasses.fields(Config)]
    if not equals or name not in known:
        near = difflib.get_close_matches(name.strip(), known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"--set {text[:80]!r}: {hint}give NAME=VALUE with NAME one of {', '.join(known)}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
    except (ValueError, RecursionError) as error:  # digits, or brackets, without end
        raise ConfigError(f"--set {text[:80]!r} cannot be read ({first_line(error)}); give a shorter value") from error


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: every parameter that is a group stands for the group's fields."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if dataclasses.is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            hints = get_type_hints(groups[name], include_extras=True)  # each in the module of its own class
            own = inspect.signature(groups[name]).parameters.values()
            parameters += [one.replace(annotation=hints[one.name]) for one in own]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**made, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
