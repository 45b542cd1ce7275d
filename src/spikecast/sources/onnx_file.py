"""A model from an ONNX file: its graph, op by op, as a torch module. Reading one runs none of its content."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from spikecast.errors import DataError, MissingExtraError, ModelError, first_line
from spikecast.sources.onnx_ops import ON_ARRAYS, OPS, tensor

LARGEST = 2**31 - 1  # bytes that a protobuf may have
OLDEST = 7  # before this opset values did not broadcast


class Step(NamedTuple):
    """One op: its name, the values it reads ("" where it lacks one) and makes, its attributes."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


class OnnxModel(nn.Module):
    """The graph of an ONNX file. Sizes are free where the file says so; the others must be as it has them."""

    def __init__(self, model: Any, folder: Path) -> None:
        super().__init__()
        graph = model.graph
        opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
        if opset < OLDEST:
            raise ModelError(f"opset {opset} is too old; export with opset {OLDEST} or later")
        self.constants: dict[str, Any] = {}
        self.weights: dict[str, str] = {}  # value -> buffer
        for value in graph.initializer:
            self._keep(value.name, _array(value, folder))
        self.steps = [self._step(node, opset, folder) for node in graph.node if node.op_type != "Constant"]
        for node in (n for n in graph.node if n.op_type == "Constant"):
            self._keep(node.output[0], _constant(node, folder))
        unknown = sorted({step.op for step in self.steps} - OPS.keys() - ON_ARRAYS.keys())
        if unknown:
            raise ModelError(f"ops {', '.join(unknown)} are not read; give the model itself, as FILE.py:FACTORY")
        known = {i.name for i in graph.initializer}
        self.inputs = {i.name: _dims(i.type.tensor_type) for i in graph.input if i.name not in known}
        self.outputs = [o.name for o in graph.output]
        made = {"", *self.constants, *self.weights, *self.inputs}
        for step in self.steps:
            if lacking := [name for name in step.inputs if name not in made]:
                raise ModelError(f"op {step.op} reads {lacking[0]!r}, which nothing before it makes; export it again")
            made.update(step.outputs)
        self.eval()

    def _keep(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Floats are weights. Whole numbers and single numbers are for shapes, axes and bounds."""
        if value.dtype.kind not in "fiub":
            raise ModelError(f"constant {name!r} has the type {value.dtype}; export with floats of 16, 32 or 64 bits")
        if value.dtype.kind != "f" or value.ndim == 0:
            self.constants[name] = value
        else:
            self.weights[name] = f"weight_{len(self.weights)}"
            self.register_buffer(self.weights[name], torch.from_numpy(np.array(value)))

    def _step(self, node: Any, opset: int, folder: Path) -> Step:
        if node.domain not in ("", "ai.onnx"):
            raise ModelError(f"op {node.op_type} of {node.domain} is not ONNX's own; export without custom ops")
        attributes = {a.name: _attribute(a, folder) for a in node.attribute}
        outputs = tuple(node.output)
        return Step(node.op_type, tuple(node.input), outputs, attributes | {"opset": opset, "outputs": len(outputs)})

    def forward(self, *inputs: Tensor) -> Any:
        values: dict[str, Any] = {"": None, **self.constants}
        values |= {name: self.get_buffer(buffer) for name, buffer in self.weights.items()}
        if len(inputs) != len(self.inputs):
            raise DataError(f"{len(inputs)} inputs; the file has {', '.join(self.inputs)}")
        for (name, dims), given in zip(self.inputs.items(), inputs, strict=True):
            fits = len(dims) == given.dim() and all(d in (None, s) for d, s in zip(dims, given.shape, strict=True))
            if dims and not fits:
                raise DataError(
                    f"input {name!r} has shape {tuple(given.shape)}, in the file ({', '.join(map(_said, dims))}); "
                    "export it with the sizes you need, the batch free"
                )
            values[name] = given
        for step in self.steps:
            made = _run(step, [values[name] for name in step.inputs], inputs[0].device)
            several = made if isinstance(made, list) else [made]
            values |= dict(zip(step.outputs, several, strict=False))
        answers = [values[name] for name in self.outputs]
        return answers[0] if len(answers) == 1 else tuple(answers)


def _run(step: Step, values: list[Any], device: torch.device) -> Any:
    if step.op in ON_ARRAYS and all(isinstance(v, np.ndarray) for v in values):
        made = ON_ARRAYS[step.op](step.attributes, *values)
        return made.to(device) if isinstance(made, Tensor) else np.asarray(made)
    if step.op not in OPS:
        raise ModelError(f"{step.op} is read for sizes only, and here it has data; give the model itself")
    count, function = OPS[step.op]
    count = len(values) if count < 0 else count
    return function(step.attributes, *(tensor(v, device) for v in values[:count]), *values[count:])


def read_onnx(path: Path) -> OnnxModel:
    """The model in a file; its weights may lie beside it, in files of the same folder."""
    if not path.is_file():
        raise DataError(f"there is no file {path}; give onnx:FILE")
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError(f'reading {path} needs onnx; pip install "spikecast[onnx]"') from error
    if path.stat().st_size > LARGEST:
        raise DataError(f"{path} is larger than 2 GB, which ONNX cannot be; export it with external data")
    try:
        model = onnx.load(str(path), load_external_data=False)
        return OnnxModel(model, path.parent)
    except (DataError, ModelError) as error:
        raise type(error)(f"{path}: {error}") from error
    except Exception as error:  # whatever a broken file makes protobuf, NumPy or an op's attributes raise
        raise DataError(f"{path} cannot be read as ONNX ({first_line(error)}); export it again") from error


def _array(value: Any, folder: Path) -> np.ndarray[Any, Any]:
    """A stored tensor; one in another file only if that is in the folder of the model."""
    from onnx import numpy_helper
    from onnx.external_data_helper import uses_external_data

    if uses_external_data(value):
        said = {entry.key: entry.value for entry in value.external_data}
        file = (folder / said.get("location", "")).resolve()
        if not file.is_relative_to(folder.resolve()) or not file.is_file():
            raise DataError(f"weights {value.name!r} lie in {said.get('location')!r}, which is no file of its folder")
        start, size = int(said.get("offset", 0)), int(said.get("length", file.stat().st_size))
        if not 0 <= start <= start + size <= file.stat().st_size:
            raise DataError(f"weights {value.name!r} lie beyond the end of {file.name}; copy that file again")
        with file.open("rb") as opened:
            opened.seek(start)
            value.raw_data = opened.read(size)
        value.ClearField("external_data")
        value.data_location = 0
    array: np.ndarray[Any, Any] = numpy_helper.to_array(value)
    return array


def _constant(node: Any, folder: Path) -> np.ndarray[Any, Any]:
    (only,) = node.attribute
    value = _attribute(only, folder)
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    return value if only.name == "value" else np.array(value, dtype=kinds[only.name])


def _attribute(attribute: Any, folder: Path) -> Any:
    from onnx import TensorProto, helper

    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return _array(value, folder)
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, int | float) else list(value)


def _dims(kind: Any) -> list[int | None]:
    """The sizes that a file gives an input, None where they are free; none at all where it says no shape."""
    return [d.dim_value if d.dim_value > 0 else None for d in kind.shape.dim]


def _said(dim: int | None) -> str:
    return "free" if dim is None else str(dim)
