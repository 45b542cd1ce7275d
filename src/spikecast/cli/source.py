"""MODEL on the command line: a model by name, or a network that was converted and saved before."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from spikecast.cli import common
from spikecast.cli.checks import device_named
from spikecast.cli.options import MachineOptions, ModelOptions
from spikecast.conversion.pipeline import load
from spikecast.conversion.prepare import TAKES
from spikecast.errors import ArtifactError, ConfigError, DataError
from spikecast.graph.structure import flatten, unflatten
from spikecast.measure.tasks import TASKS, Task
from spikecast.network.base import Network
from spikecast.network.regions import RegionNetwork
from spikecast.network.spiking import SpikingNetwork
from spikecast.sources import Preparation, are_images
from spikecast.sources.models import RAW, Loaded, open_model, parts_of
from spikecast.sources.plugin import function_in

SUFFIX = ".spikecast"
OF_DATA = {"coco": "detection", "voc": "segmentation", "demo:text": "language"}  # of other data, classification
ANY_SIZE = 320  # pixels of an example where a model takes any size


class Analog(nn.Module):
    """The ANN that a saved network was made from: the network with its neurons switched off."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.network.analog(*args, **kwargs)


@dataclass(frozen=True, kw_only=True)
class Source(Loaded):
    """A model on its device with what is known of it; `network` where it is a saved one."""

    spec: str
    device: torch.device
    network: Network | None = None

    @property
    def about(self) -> dict[str, Any]:
        """What is stored along with the network."""
        prepared = {"preparation": self.preparation.to_json()} if self.takes_images else {}
        return {"model": self.spec, "task": self.task, **prepared}

    def reading(self, data: str, task: str) -> Source:
        """For a task. A model of one's own does not say what it is for; the data does, where no task was given.

        Detectors prepare images themselves, and are converted by their parts.
        """
        own = self.network is None and self.spec.partition(":")[0].endswith(".py")
        of_data = OF_DATA.get(data, OF_DATA.get(data.partition(":")[0], "")) if own else ""
        task = task or of_data
        changed: dict[str, Any] = {"takes_images": are_images(data)}
        changed |= {"task": task} if task else {}
        if own and "detection" in (task, of_data):  # a task of one's own may score boxes too
            changed |= {"preparation": RAW, "regions": self.regions or parts_of(self.model)}
        return dataclasses.replace(self, **changed)

    def refuse_saved(self) -> None:
        """For commands that convert by settings of their own."""
        if self.network is not None:
            raise ConfigError(f"{self.spec} is converted already; give the model it was made from")

    def inputs(self, count: int = 2, shape: str = "") -> Any:
        """A random batch of the form that the model takes, as a loader would yield it, on the device."""
        size = self.preparation.size or ANY_SIZE
        if shape:
            made: Any = torch.rand(count, *common.numbers(shape, "shape"))
        elif self.example is not None:
            made = self.example
        elif self.task == "detection":
            made = [[torch.rand(self.preparation.channels, size, size) for _ in range(count)]]
        else:
            made = torch.randn(count, self.preparation.channels, size, size)
        return on_device(made, self.device)


@contextmanager
def on_random_inputs(source: Source, shape: str) -> Iterator[None]:
    """While a model runs on inputs of our own making: where their form was a guess, what is wrong may be that."""
    try:
        yield
    except DataError as error:
        if shape or source.example is not None or source.task == "detection":
            raise
        p = source.preparation
        size, kind = p.size or ANY_SIZE, "colour" if p.channels == 3 else "grey"
        said = str(error).removesuffix(f"; {TAKES}")
        raise DataError(
            f"{said}; it was given {kind} images of {size} pixels: say --size, --mean and --std (one number each for "
            "grey images), or --shape, as in --shape 1,28,28"
        ) from error


def open_task(spec: str, *, trust: bool) -> str | Task:
    """A task by its name, or the one that a function of FILE.py makes: that runs code, and needs `trust`."""
    if spec in TASKS:
        return spec
    if not spec.rpartition(":")[0].endswith(".py"):
        raise ConfigError(f"--task {spec!r}: give one of {', '.join(TASKS)}, or FILE.py:FUNCTION")
    made = function_in(spec, "task", trust=trust)()
    if not isinstance(made, Task):
        raise ConfigError(
            f"task {spec!r} made a {type(made).__name__}; the function must return a task, such as "
            "spikecast.measure.Detection(decode=...)"
        )
    return made


def open_source(options: ModelOptions, machine: MachineOptions) -> Source:
    """The model or the saved network, on the device; what is drawn at random follows the seed from here on."""
    torch.manual_seed(machine.seed)
    device = device_named(machine.device)
    spec, network = options.model, None
    if spec.endswith(SUFFIX):
        if options.of is None:
            _refuse_weights(spec, options)
        model = None if options.of is None else _opened(options.of, options).model.to(device)
        network = load(spec, model=model, device=device, sandbox=options.sandbox)
        loaded = _of_network(spec, network)
    else:
        if options.of is not None:
            raise ConfigError(f"--of {options.of} goes with a FILE{SUFFIX}, and {spec} is none; leave it out")
        if options.sandbox:
            raise ConfigError(f"--sandbox goes with a FILE{SUFFIX}, and {spec} is none; leave it out")
        loaded = _opened(spec, options)
        loaded.model.to(device)
    preparation = _prepared(loaded, options)
    known = vars(loaded) | {
        "preparation": preparation,
        "is_assumed": loaded.is_assumed and preparation == loaded.preparation,
    }
    if options.regions:
        if network is not None:
            raise ConfigError(f"--regions {options.regions}: {spec} is converted already; leave it out")
        known["regions"] = "auto" if options.regions == "auto" else tuple(common.names(options.regions))
    return Source(**known, spec=spec, device=device, network=network)


def _refuse_weights(spec: str, options: ModelOptions) -> None:
    """A file has its weights; others would have no effect."""
    given = {"--weights": options.weights, "--classes": options.classes, "--pretrained": options.pretrained or None}
    for name, value in given.items():
        if value is not None:
            raise ConfigError(f"{name} is for a model, and {spec} has its weights; leave it out")


def _opened(spec: str, options: ModelOptions) -> Loaded:
    chosen = {} if options.classes is None else {"num_classes": options.classes}
    try:
        loaded = open_model(
            spec, weights=options.weights, pretrained=options.pretrained, trust=options.trust, options=chosen
        )
    except ConfigError as error:  # the option has another name here
        raise ConfigError(str(error).replace("leave num_classes out", "leave --classes out")) from error
    if loaded.is_random:
        common.note(f"{spec} has random weights: say --pretrained, or --weights FILE")
    return loaded


def whole(network: Network, spec: str) -> SpikingNetwork:
    """The network, for commands that look into one captured graph."""
    if isinstance(network, RegionNetwork):
        raise ConfigError(f"{spec} is converted by region; take its regions one by one in Python, snn.networks[name]")
    return network.whole("this command")


def _of_network(spec: str, network: Network) -> Loaded:
    """What the file says of itself; one that was saved by a program of one's own says nothing."""
    said, model = network.about, Analog(network)
    task = str(said.get("task", "classification"))
    if "preparation" not in said:
        inputs = network.plan.program.inputs if isinstance(network, SpikingNetwork) else ()
        preparation = Preparation.for_input(inputs[0].meta.shape if inputs else ())
        return Loaded(model, preparation, task, takes_images=False, is_assumed=True)
    try:
        return Loaded(model, Preparation.from_json(said["preparation"]), task)
    except ConfigError as error:
        raise ArtifactError(f"{spec}: {error}; save it again") from error


def _prepared(loaded: Loaded, options: ModelOptions) -> Preparation:
    """As the publisher says, and as the options say otherwise."""
    preparation = loaded.preparation
    changed: dict[str, Any] = {}
    if options.size is not None:
        square = Preparation.for_input((None, preparation.channels, options.size, options.size))
        changed = {"size": options.size} | ({"crop": square.crop} if loaded.is_assumed else {})
    if options.crop is not None:
        changed["crop"] = options.crop
    for name in ("mean", "std"):
        if text := getattr(options, name):
            changed[name] = common.fractions(text, name)
    return dataclasses.replace(preparation, **changed)


def on_device(value: Any, device: torch.device) -> Any:
    """A batch with all its tensors on the device."""
    leaves, form = flatten(value)
    return unflatten(form, [leaf.to(device) if isinstance(leaf, Tensor) else leaf for leaf in leaves])
