"""What is fixed in a program once the batch size is: sizes, constants, and the form of every value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spikecast.graph.program import NEURON, Node, Program


class Frame(NamedTuple):
    """What is fixed once the batch size is: constants, sizes and values made of them, and the form of every value."""

    values: dict[str, Any]
    forms: dict[str, Any]


class Forms:
    """A program for inputs of some sizes, of which the batch may still vary."""

    def __init__(
        self, program: Program, tensors: Mapping[str, Tensor], sizes: Sequence[Sequence[int]], device: torch.device
    ) -> None:
        self.program, self.tensors, self.sizes, self.device = program, tensors, sizes, device
        self._frames: dict[int, Frame] = {}

    def frame(self, batch: int) -> Frame:
        """The constants of a batch size; worked out on tensors without data, and on zeros where an op needs some."""
        if batch not in self._frames:
            try:
                forms = self._forms(batch, torch.device("meta"))
            # No kernel for tensors without data (NotImplementedError), or a size that is read from data (RuntimeError).
            except (NotImplementedError, RuntimeError):
                forms = self._forms(batch, self.device)
            values: dict[str, Any] = dict(self.tensors)
            values.update((n.name, forms[n.name]) for n in self.program.nodes if n.meta is None)
            constant = self.program.flow.constant - values.keys()
            self.evaluate((n for n in self.program.nodes if n.name in constant), values)
            self._frames[batch] = Frame(values, forms)
        return self._frames[batch]

    @torch.no_grad()
    def _forms(self, batch: int, device: torch.device) -> dict[str, Any]:
        env: dict[str, Any] = {name: tensor.to(device) for name, tensor in self.tensors.items()}
        for spec, size in zip(self.program.inputs, self.sizes, strict=True):
            axis = spec.meta.batch_axis if self.program.batch_symbols else None
            shape = [batch if i == axis else n for i, n in enumerate(size)]
            env[spec.name] = torch.zeros(shape, dtype=spec.meta.dtype, device=device)
        self.evaluate(self.program.nodes, env, device)
        return env

    def evaluate(self, nodes: Iterable[Node], env: dict[str, Any], device: torch.device | None = None) -> None:
        """Run ops; neurons pass on what they read."""
        place = self.device if device is None else device
        for node in nodes:
            if node.target == NEURON:
                env[node.name] = env[node.args[0].name]
            else:
                env[node.name] = node.call(lambda ref: env[ref.name], place)

    def blank(self, name: str, batch: int) -> Tensor:
        """Zeros of a value's form."""
        form = self.frame(batch).forms[name]
        return torch.zeros(form.shape, dtype=form.dtype, device=self.device)
