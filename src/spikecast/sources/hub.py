"""Models of Hugging Face: a folder with config.json and safetensors, or a name of the hub. Code there is never run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from spikecast.errors import ConfigError, DataError, MissingExtraError, ModelError, SpikecastError, first_line
from spikecast.sources.images import IMAGENET_MEAN, IMAGENET_STD, Preparation

TASKS = {"CausalLM": "language", "LMHeadModel": "language", "SemanticSegmentation": "segmentation"}  # by class
INTERPOLATIONS = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers


class Found(NamedTuple):
    """A model with its weights, how its images are made ready, its task, and a call that it takes, if it reads text.

    `classes` are the names of its outputs, where it has some of its own.
    """

    model: nn.Module
    preparation: Preparation
    task: str
    example: tuple[Tensor, ...] | None
    classes: tuple[str, ...] = ()


def open_hub(name: str, *, pretrained: bool) -> Found:
    """The model in a folder, or on the hub where `pretrained` allows a download."""
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError(f'model hf:{name} needs transformers; pip install "spikecast[transformers]"') from error
    local = Path(name).is_dir()
    if local:
        _check_folder(Path(name))
    elif not pretrained:
        raise ConfigError(f"model hf:{name}: there is no such folder; to download it from the hub, say --pretrained")
    try:
        _check_files(name, local=local)
        raw = transformers.PretrainedConfig.get_config_dict(name, local_files_only=local)[0]
        cls, config = _class_of(raw, name)
        model, said = cls.from_pretrained(
            name,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=local,
            attn_implementation="eager",  # whatever the configuration says: it may name one that the hub has code for
            output_loading_info=True,
        )
        preparation = _preparation(name, raw, local=local)
    except SpikecastError:
        raise
    except Exception as error:  # whatever a broken file, or the way to the hub, makes transformers raise
        raise ModelError(f"hf:{name} could not be made ({first_line(error)})") from error
    if said["missing_keys"]:
        few = ", ".join(sorted(said["missing_keys"])[:2])
        raise ModelError(f"hf:{name} lacks weights of {cls.__name__}, {few} among them; they would be random")
    task = next((task for end, task in TASKS.items() if cls.__name__.endswith(end)), "classification")
    return Found(model, preparation, task, _example(model), _classes(raw))


def _classes(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The names in a configuration; none where they are not one for each number from 0 on."""
    known = raw.get("id2label")
    names = {str(key): str(name) for key, name in known.items()} if isinstance(known, Mapping) else {}
    return tuple(names[str(i)] for i in range(len(names))) if set(names) == set(map(str, range(len(names)))) else ()


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} has no config.json; give a folder that save_pretrained wrote")
    odd = next((path for path in folder.iterdir() if not path.is_file() and not path.is_dir()), None)
    if odd is not None:
        raise DataError(f"{odd} is no file; remove it")
    if not any(folder.glob("*.safetensors")):
        raise DataError(f"{folder} has no safetensors, and no other weights are read; save the model again with them")


def _check_files(name: str, *, local: bool) -> None:
    """Refuse what leads elsewhere: an adapter names another model, and the index of large weights names their files."""
    if _file(name, "adapter_config.json", local=local) is not None:
        raise DataError(f"hf:{name} holds an adapter; merge it into its model, and save that")
    index = _file(name, "model.safetensors.index.json", local=local)
    if index is None:  # the weights lie in one file
        return
    files = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    other = next((file for file in files if not re.fullmatch(r"[^/\\:]+\.safetensors", str(file))), None)
    if other is not None:
        raise DataError(
            f"hf:{name} has weights in {other}, and none but safetensors beside its config.json are read; "
            "save the model again"
        )


def _file(name: str, file: str, *, local: bool) -> Path | None:
    """A file of the model, or None where it has none; a hub that refuses to answer is an error."""
    import transformers

    found = transformers.utils.hub.cached_file(
        name, file, local_files_only=local, _raise_exceptions_for_missing_entries=False
    )
    return None if found is None else Path(found)


def _class_of(raw: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """The class of transformers' own that a configuration names, and the configuration for it."""
    import transformers

    kind, names = str(raw.get("model_type")), list(raw.get("architectures") or ["AutoModel"])
    architecture = str(names[0])
    cls: Any = getattr(transformers, architecture, None)
    native = isinstance(cls, type) and (cls is transformers.AutoModel or issubclass(cls, transformers.PreTrainedModel))
    if kind not in transformers.CONFIG_MAPPING or not native:
        own = "it brings code of its own (auto_map), which is never run, and " if raw.get("auto_map") else ""
        raise ModelError(
            f"hf:{name}: {own}transformers {transformers.__version__} has no model {architecture} of type {kind}; "
            "give one that it has"
        )
    if raw.get("quantization_config"):
        raise ModelError(f"hf:{name} is quantized; give the model that it was made from")
    # The usual form of a mixture of experts is an op of transformers' own, which no file may hold. Weights are those of
    # the usual name: another one in the configuration may be a pickle.
    chosen = {**raw, "experts_implementation": "batched_mm", "transformers_weights": None}
    return cls, transformers.CONFIG_MAPPING[kind].from_dict(chosen)


def _preparation(name: str, raw: Mapping[str, Any], *, local: bool) -> Preparation:
    """How images are made ready, as preprocessor_config.json says."""
    import transformers

    said: dict[str, Any] = {}
    if any(_file(name, file, local=local) for file in ("preprocessor_config.json", "processor_config.json")):
        said = transformers.ImageProcessingMixin.get_image_processor_dict(name, local_files_only=local)[0]
    size = said.get("size") or raw.get("image_size") or 224
    shown = _side(said["crop_size"] if said.get("do_center_crop") and said.get("crop_size") else size)
    scaled, squash = _side(size), isinstance(size, dict) and "height" in size
    if said.get("crop_pct"):  # as ConvNext has it: small images are cut out of larger ones, and large ones squashed
        scaled, squash = (int(scaled / said["crop_pct"]), squash) if scaled < 384 else (scaled, True)
    normal = said.get("do_normalize", True)
    return Preparation(
        size=shown,
        crop=min(1.0, shown / scaled),
        mean=tuple(map(float, said.get("image_mean") or IMAGENET_MEAN)) if normal else (0.0, 0.0, 0.0),
        std=tuple(map(float, said.get("image_std") or IMAGENET_STD)) if normal else (1.0, 1.0, 1.0),
        interpolation=INTERPOLATIONS.get(said.get("resample", 2), "bilinear"),
        squash=squash,
    )


def _side(size: Any) -> int:
    """The side of a square image, in any of the forms that it is written in."""
    if isinstance(size, dict):
        side = next((size[key] for key in ("height", "shortest_edge", "longest_edge") if size.get(key)), None)
        if side is None:
            raise DataError(f"images of size {size} are not understood; give height, shortest_edge or longest_edge")
        size = side
    return int(size[-1] if isinstance(size, list | tuple) else size)


def _example(model: Any) -> tuple[Tensor, ...] | None:
    """Two short texts, for a model that reads tokens."""
    words = getattr(model.config, "vocab_size", None)
    if model.main_input_name != "input_ids" or not isinstance(words, int):
        return None
    return (torch.randint(0, words, (2, 16)),)
