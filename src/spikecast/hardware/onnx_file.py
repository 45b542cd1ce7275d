"""A network as an ONNX file that onnxruntime and its like run: all its steps, in plain ops."""

from __future__ import annotations

import importlib.util
import os
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spikecast.errors import MissingExtraError, ModelError, first_line
from spikecast.graph.calls import TENSOR
from spikecast.graph.capture.export import Flat
from spikecast.graph.program import Program
from spikecast.graph.structure import unflatten
from spikecast.graph.turns import capturing
from spikecast.hardware.endings import check_ending
from spikecast.network.base import Network
from spikecast.network.spiking import SpikingNetwork
from spikecast.storage.files import write_whole


@dataclass(frozen=True)
class OnnxExport:
    """What was written; the answer is that after the last step."""

    path: str
    num_ops: int
    num_steps: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        names = f"{', '.join(self.inputs)} -> {', '.join(self.outputs)}"
        return f"{self.path}: ONNX, {self.num_ops} ops, T = {self.num_steps}, {names}"


def export_onnx(network: Network, path: str | os.PathLike[str]) -> OnnxExport:
    """Write a network as ONNX, through torch's own exporter: all its steps, in plain ops.

    It takes any number of samples where the network does; other sizes are those it was converted with. The tensors of
    the call are `input_0`, `input_1`, …, those of the answer after `config.num_steps` steps `output_0`, ….

    Args:
        network: The network, converted whole.
        path: The file to write, whose name ends in .onnx.

    Example:
        >>> hardware.export_onnx(snn, "net.onnx").num_steps
        4
    """
    whole = _checked(network, path)
    program = whole.plan.program
    tensors = [torch.zeros(i.meta.shape, dtype=i.meta.dtype, device=whole.device) for i in program.inputs]
    batch = [
        {axis: torch.export.Dim.AUTO for axis, dim in enumerate(i.dims) if dim in program.batch_symbols}
        for i in program.inputs
    ]
    model = Flat(whole, *_call(program, tensors)).eval()
    names = [f"input_{i}" for i in range(len(tensors))]
    try:
        with capturing(), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            made: Any = torch.onnx.export(
                model, tuple(tensors), dynamo=True, dynamic_shapes=(tuple(batch),), input_names=names, verbose=False
            )
            for i, value in enumerate(made.model.graph.outputs):
                value.name = f"output_{i}"
            written = made.model_proto
            text = written.SerializeToString()
    except Exception as error:  # many types; all mean that an op has no form in ONNX, or that there is too much of it
        raise ModelError(f"{path}: torch cannot write the network as ONNX ({first_line(error)}); take NIR") from error
    write_whole(path, text)
    outputs = tuple(value.name for value in written.graph.output)
    return OnnxExport(str(path), len(written.graph.node), whole.config.num_steps, tuple(names), outputs)


def _checked(network: Network, path: str | os.PathLike[str]) -> SpikingNetwork:
    """The network as one that was converted whole, once all is there that writing it takes."""
    if not isinstance(network, Network):
        raise ModelError(
            f"ONNX is written of a network that convert made, and this is {type(network).__name__}; give that network"
        )
    check_ending(path, ".onnx")
    if missing := [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]:
        raise MissingExtraError(f"ONNX needs {' and '.join(missing)}; pip install 'spikecast[onnx]'")
    return network.whole("ONNX")


def _call(program: Program, tensors: list[Tensor]) -> tuple[Any, Any]:
    """The arguments that a program was captured with, other tensors in the places of its own."""
    rest, structure = iter(tensors), program.input_structure
    leaves = [next(rest) if leaf == TENSOR else leaf for leaf in structure["constants"]]
    args, kwargs = unflatten(structure["form"], leaves)
    return args, kwargs
