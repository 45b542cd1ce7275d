"""Models by name: timm:NAME, torchvision:NAME, hf:NAME_OR_DIR, onnx:FILE, demo:NAME, FILE.py:FACTORY, FILE.pt2.

Weights come from a file that runs no code. A FILE.py and a .pt2 program do run code, and are refused without trust.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import math
import os
import traceback
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from spikecast.errors import (
    ConfigError,
    DataError,
    MissingExtraError,
    ModelError,
    ResourceError,
    enough_to_read,
    first_line,
)
from spikecast.sources.classes import imagenet_words
from spikecast.sources.demo import DATA, NETWORKS, demo_network
from spikecast.sources.demo.digits import SIZE
from spikecast.sources.hub import open_hub
from spikecast.sources.images import Preparation
from spikecast.sources.plugin import function_in

RAW = Preparation(size=None, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))  # for models that make images ready themselves
PARTS = ("backbone", "head")  # of most detectors, whose forward cannot be captured whole
Regions = tuple[str, ...] | Literal["auto"]


@dataclass(frozen=True)
class Loaded:
    """A model in eval mode, how its images are made ready, its task, and the parts to convert (None: all of it).

    `is_random` says that its weights were drawn and never learnt; `example` is a call that a program was saved with;
    `takes_images` is False where its inputs are made by others, so that nothing is known of how; `is_assumed` says
    that nobody told how images are made ready; `classes` are the names of its outputs, where its publisher says them.
    """

    model: nn.Module
    preparation: Preparation
    task: str = "classification"
    regions: Regions | None = None
    is_random: bool = False
    example: tuple[Any, ...] | None = None
    takes_images: bool = True
    is_assumed: bool = False
    classes: tuple[str, ...] = ()


def open_model(
    spec: str,
    *,
    weights: str | os.PathLike[str] | None = None,
    pretrained: bool = False,
    trust: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Loaded:
    """The model that a text names; `options` go to its builder (num_classes=10).

    `weights` is a safetensors file or a checkpoint of tensors only; `pretrained` downloads the publisher's own.
    """
    kind, _, name = spec.partition(":")
    chosen = dict(options or {})
    if weights is not None and pretrained:
        raise ConfigError("weights and pretrained: take one of them")
    if kind.endswith(".py"):
        found = _of_factory(spec, chosen, trust=trust)
    elif spec.endswith(".pt2"):
        found = _of_program(Path(spec), chosen, trust=trust)
    elif kind == "demo" and name:
        found = _of_demo(name, chosen)
    elif kind == "timm" and name:
        found = _of_timm(name, pretrained, chosen)
    elif kind == "hf" and name:
        found = _of_hub(name, pretrained, chosen, weights=weights)
    elif kind == "torchvision" and name:
        found = _of_torchvision(name, pretrained, chosen)
    elif kind == "onnx" and name:
        found = _of_onnx(Path(name), chosen)
    else:
        raise ConfigError(
            f"model {spec!r}: give timm:NAME, torchvision:NAME, hf:NAME_OR_DIR, onnx:FILE, demo:NAME, "
            f"FILE.py:FACTORY or FILE.pt2{_weights_alone(spec)}"
        )
    if weights is not None:
        load_weights(found.model, Path(weights))
        found = dataclasses.replace(found, is_random=False)
    found.model.eval()
    return found


def _weights_alone(spec: str) -> str:
    """What to do with a file that holds weights and no model."""
    is_weights = Path(spec).suffix in (".pt", ".pth", ".bin", ".safetensors")
    return f"; a file of weights goes with its model: FILE.py:FACTORY --weights {spec}" if is_weights else ""


def _of_demo(name: str, options: dict[str, Any]) -> Loaded:
    if options:
        raise ConfigError(f"model demo:{name} is as it is; leave {', '.join(options)} out")
    model, data = demo_network(name), DATA[NETWORKS[name].data]
    if not data.is_ready:
        return Loaded(model, Preparation(SIZE, 1.0, (0.0,), (1.0,)))
    return Loaded(model, Preparation(), data.task, example=(data.make("val")[0][:2],), takes_images=False)


def _of_program(path: Path, options: dict[str, Any], *, trust: bool) -> Loaded:
    """A program that torch.export saved. Reading one may unpickle what is in it."""
    if not path.is_file():
        raise DataError(f"there is no program {path}; give a file that torch.export.save wrote")
    if not trust:
        raise ConfigError(f"model {str(path)!r} may run code when it is read; say --trust (trust=True) if you trust it")
    if options:
        raise ConfigError(f"model {str(path)!r} is a finished program; leave {', '.join(options)} out")
    logger = logging.getLogger("torch.export")
    was_silent, logger.disabled = logger.disabled, True  # it logs whole tracebacks of its own
    try:
        program = torch.export.load(path)
    except Exception as error:  # whatever a broken file makes torch raise
        raise DataError(
            f"{path} cannot be read as a program ({first_line(error)}); save it again with torch.export.save"
        ) from error
    finally:
        logger.disabled = was_silent
    module = program.module()
    for name in ("train", "eval"):  # refused by what torch puts there, though the graph is that of eval mode
        module.__dict__.pop(name, None)
    example = program.example_inputs
    given = () if example is None else tuple(example[0])
    dims = given[0].shape if given and isinstance(given[0], Tensor) else ()
    return Loaded(module, Preparation.for_input(dims), example=given or None, is_assumed=True)


def _of_onnx(path: Path, options: dict[str, Any]) -> Loaded:
    from spikecast.sources.onnx_file import read_onnx

    if options:
        raise ConfigError(f"model onnx:{path} is as it is; leave {', '.join(options)} out")
    model = read_onnx(path)
    return Loaded(model, Preparation.for_input(next(iter(model.inputs.values()), [])), is_assumed=True)


def _of_factory(spec: str, options: dict[str, Any], *, trust: bool) -> Loaded:
    model = function_in(spec, "model", trust=trust)(**options)
    if not isinstance(model, nn.Module):
        raise ModelError(f"model {spec!r} made a {type(model).__name__}; the function must return a torch.nn.Module")
    return Loaded(model, Preparation(), is_assumed=True)


@contextmanager
def _importing(spec: str, package: str) -> Iterator[None]:
    """While a package is imported: it may lack another, or be made for another torch, and then fails in many ways."""
    try:
        yield
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError):
            lacks = (error.name or package).partition(".")[0]
            raise MissingExtraError(f'model {spec} needs {lacks}; pip install "spikecast[vision]"') from error
        said = f"model {spec} needs {package}, which cannot be imported ({type(error).__name__}: {first_line(error)})"
        places = f"{package} {getattr(error, 'name', '')} {''.join(traceback.format_exception(error))}"
        if not any(sign in places for sign in ("torchvision", "libtorch", "libc10")):
            raise MissingExtraError(f"{said}; see what `spikecast doctor` says") from error
        raise MissingExtraError(
            f"{said}: torchvision does not fit torch {torch.__version__}; install both from the same index (without a "
            "GPU: pip install --force-reinstall torch torchvision --index-url https://download.pytorch.org/whl/cpu)"
        ) from error


def _of_timm(name: str, pretrained: bool, options: dict[str, Any]) -> Loaded:
    with _importing(f"timm:{name}", "timm"):
        import timm
        from timm.data.config import resolve_data_config
        from timm.data.imagenet_info import infer_imagenet_subset
    if not timm.is_model(name):
        raise ModelError(f"timm has no model {name!r}{_hint(name, timm.list_models())}")
    try:
        model = timm.create_model(name, pretrained=pretrained, **options)
    except (OSError, RuntimeError, TypeError, ValueError) as error:  # options that are not its own among them
        raise ModelError(f"timm:{name} could not be made ({first_line(error)})") from error
    used: dict[str, Any] = resolve_data_config({}, model=model)  # type: ignore[no-untyped-call]
    size = int(used["input_size"][-1])
    preparation = Preparation(
        size=size,
        crop=size / math.floor(size / used["crop_pct"]),  # timm scales to whole pixels, and rounds down
        mean=tuple(used["mean"]),
        std=tuple(used["std"]),
        interpolation=used["interpolation"] if used["interpolation"] in ("bilinear", "bicubic") else "bilinear",
        squash=used["crop_mode"] == "squash",
    )
    known = pretrained and infer_imagenet_subset(model) == "imagenet-1k"
    return Loaded(model, preparation, is_random=not pretrained, classes=tuple(imagenet_words()) if known else ())


def _of_hub(name: str, pretrained: bool, options: dict[str, Any], *, weights: Any) -> Loaded:
    if options or weights is not None:
        given = ", ".join([*options, *([] if weights is None else ["weights"])])
        raise ConfigError(f"model hf:{name} has its own configuration and weights; leave {given} out")
    found = open_hub(name, pretrained=pretrained)
    return Loaded(found.model, found.preparation, found.task, example=found.example, classes=found.classes)


def _of_torchvision(name: str, pretrained: bool, options: dict[str, Any]) -> Loaded:
    with _importing(f"torchvision:{name}", "torchvision"):
        from torchvision import models
    if name not in models.list_models():
        raise ModelError(f"torchvision has no model {name!r}{_hint(name, models.list_models())}")
    weights = models.get_model_weights(name).DEFAULT
    builder = models.get_model_builder(name).__module__
    task = next((task for task in ("detection", "segmentation") if f".{task}." in builder), "classification")
    if not pretrained and task != "classification":
        options = {"weights_backbone": None, **options}
    try:
        model = models.get_model(name, weights=weights if pretrained else None, **options)
    except (OSError, RuntimeError, TypeError, ValueError) as error:  # options that are not its own among them
        raise ModelError(f"torchvision:{name} could not be made ({first_line(error)})") from error
    regions = parts_of(model) if task == "detection" else None
    known = weights.meta.get("categories", ()) if pretrained and "num_classes" not in options else ()
    preparation = _torchvision_preparation(weights, task)
    return Loaded(model, preparation, task, regions, is_random=not pretrained, classes=tuple(known))


def parts_of(detector: nn.Module) -> Regions:
    """What is converted of a detector: its backbone and head where it has both, else what can be captured."""
    return PARTS if all(hasattr(detector, part) for part in PARTS) else "auto"


def _torchvision_preparation(weights: Any, task: str) -> Preparation:
    if task == "detection":  # the detectors normalise for themselves
        return RAW
    used = weights.transforms()
    mean, std = tuple(used.mean), tuple(used.std)
    if task == "segmentation":
        return Preparation(used.resize_size[0], 1.0, mean, std)
    size = used.crop_size[0]
    return Preparation(size, min(1.0, size / used.resize_size[0]), mean, std, used.interpolation.value)


def load_weights(model: nn.Module, path: Path) -> None:
    """Weights from safetensors, or from a checkpoint that holds tensors only; every one must fit."""
    found = _read_weights(path)
    own = model.state_dict()
    missing, extra = [n for n in own if n not in found], [n for n in found if n not in own]
    if missing or extra:
        few = ", ".join([*(f"lacks {n}" for n in missing[:2]), *(f"has {n} besides" for n in extra[:2])])
        raise ModelError(f"{path} does not fit the model: it {few} ({len(missing)} missing, {len(extra)} too many)")
    for name, value in sorted(found.items()):
        if value.shape != own[name].shape:
            raise ModelError(
                f"{path} does not fit the model: {name} is {tuple(value.shape)} there and {tuple(own[name].shape)} "
                "in the model; build the model with the same number of classes"
            )
    model.load_state_dict(found)


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise DataError(f"there is no weights file {path}")
    try:
        with enough_to_read(path):
            if path.suffix == ".safetensors":
                from safetensors.torch import load_file

                return load_file(path)
            _check_unpacked(path)
            data = torch.load(path, map_location="cpu", weights_only=True)
    except ResourceError:
        raise
    except Exception as error:  # whatever a broken file makes a reader raise
        raise DataError(
            f"{path} cannot be read as weights ({first_line(error)}); give safetensors or a checkpoint of tensors"
        ) from error
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(data, dict) and isinstance(data.get(key), dict):
            data = data[key]
    if not isinstance(data, dict) or not all(isinstance(v, Tensor) for v in data.values()):
        raise DataError(f"{path} does not hold weights by name; save model.state_dict()")
    return {str(k).removeprefix("module."): v for k, v in data.items()}


def _check_unpacked(path: Path) -> None:
    """Refuse an archive that unpacks to more than it has; torch.save packs nothing."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as file:
        unpacked = sum(member.file_size for member in file.infolist())
    if unpacked > (size := path.stat().st_size):
        raise DataError(f"its {size} bytes unpack to {unpacked}, and torch.save packs nothing")


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 3)
    return f"; did you mean {', '.join(near)}?" if near else ""
