"""From what a loader yields to the arguments of a call.

A tensor is the input. A tuple or list binds to forward's required positional arguments, and one item more is the
label. A dict binds by name; what forward does not know is dropped and reported. `inputs=` overrides all of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from spikecast.errors import DataError, ModelError
from spikecast.graph.calls import check_finite
from spikecast.graph.structure import flatten, unflatten

Call = tuple[tuple[Any, ...], dict[str, Any]]
InputFunction = Callable[[Any], Any]


class Binder:
    """Binds batches to the forward of one model."""

    def __init__(self, model: nn.Module, inputs: InputFunction | None = None) -> None:
        self.inputs = inputs
        self.name = type(model).__name__
        parameters = inspect.signature(model.forward).parameters.values()
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self.required = [p.name for p in parameters if p.kind in positional and p.default is p.empty]
        keyword = inspect.Parameter.KEYWORD_ONLY
        self.required_names = [p.name for p in parameters if p.kind is keyword and p.default is p.empty]
        self.known = {p.name for p in parameters if p.kind in (*positional, keyword)}
        self.open_ended = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
        self.any_name = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        self.dropped: set[str] = set()
        self.parameter: Tensor | None = next(iter(model.parameters()), None)

    def bind(self, batch: Any) -> Call:
        """The call a batch stands for."""
        call = self._bind(batch)
        tensors = [leaf for leaf in flatten(call)[0] if isinstance(leaf, Tensor)]
        if not tensors:
            raise DataError(f"a batch of type {type(batch).__name__} holds no tensor; yield tensors, or give inputs=")
        self._check(tensors)
        return call

    @property
    def dropped_note(self) -> str:
        """What to say of the keys that were dropped."""
        return f"keys of the batches that forward does not take were dropped: {', '.join(sorted(self.dropped))}"

    def _bind(self, batch: Any) -> Call:
        if self.inputs is not None:
            chosen = self.inputs(batch)
            if isinstance(chosen, Mapping):
                return (), dict(chosen)
            return (tuple(chosen) if isinstance(chosen, tuple) else (chosen,)), {}
        if isinstance(batch, Mapping):
            return (), self._by_name(batch)
        if self.required_names:
            raise DataError(
                f"{self.name}.forward takes {', '.join(self.required_names)} by name only; yield dicts, "
                "or give inputs=function(batch) that returns one"
            )
        if isinstance(batch, Tensor):
            return (self._by_position((batch,)) if len(self.required) > 1 else (batch,)), {}
        if isinstance(batch, list | tuple):
            return self._by_position(tuple(batch)), {}
        raise DataError(
            f"a batch is a {type(batch).__name__}; yield a tensor, a tuple, a dict, or give inputs=function(batch)"
        )

    def _by_name(self, batch: Mapping[Any, Any]) -> dict[str, Any]:
        found = {str(k): v for k, v in batch.items() if self.any_name or k in self.known}
        self.dropped |= {str(k) for k in batch} - set(found)
        missing = [name for name in (*self.required, *self.required_names) if name not in found]
        if missing:
            raise DataError(
                f"a batch with keys {sorted(map(str, batch))} lacks {', '.join(missing)}, which {self.name}.forward "
                "needs; rename the keys, or give inputs=function(batch)"
            )
        return found

    def _by_position(self, batch: tuple[Any, ...]) -> tuple[Any, ...]:
        need = len(self.required)
        if self.open_ended or len(batch) == need:
            return batch
        if len(batch) == need + 1 and need > 0:
            return batch[:need]
        raise DataError(
            f"a batch has {len(batch)} items, {self.name}.forward takes {need} "
            f"({', '.join(self.required)}) and one label may follow; give inputs=function(batch)"
        )

    def _check(self, tensors: list[Tensor]) -> None:
        for tensor in tensors:
            if tensor.numel() == 0:
                raise DataError(f"a batch of shape {tuple(tensor.shape)} holds no samples; drop empty batches")
            device = self.parameter.device if self.parameter is not None else tensor.device
            if tensor.device != device:
                raise DataError(f"a batch is on {tensor.device} and the model on {device}; move one with .to(...)")
            if tensor.is_meta:
                raise DataError("a batch is on the meta device, where tensors have no values; give real ones")
            dtype = self.parameter.dtype if self.parameter is not None else tensor.dtype
            if tensor.is_floating_point() and tensor.dtype != dtype:
                raise DataError(f"a batch is {tensor.dtype} and the model {dtype}; convert one with .to(...)")
        check_finite(tensors)


def calls(batches: Iterable[Any], binder: Binder) -> Iterator[Call]:
    """Every batch as a call; a loader that yields nothing is an error."""
    if isinstance(batches, Tensor):
        batches = [batches]  # one batch, not a sequence of samples
    if not isinstance(batches, Iterable):
        raise DataError(f"the calibration batches are a {type(batches).__name__}; give a loader or a list of batches")
    empty = True
    for batch in batches:
        empty = False
        yield binder.bind(batch)
    if empty:
        raise DataError("the calibration loader yielded no batch; give at least one batch of typical inputs")


def samples_in(call: Call, axis: int = 0) -> int:
    """The batch size of a call, read off its first tensor."""
    first = next(leaf for leaf in flatten(call)[0] if isinstance(leaf, Tensor))
    return int(first.shape[axis]) if first.dim() > axis else 1


def first_samples(call: Call, count: int, axis: int = 0) -> Call:
    """A call with at most `count` samples."""
    size = samples_in(call, axis)
    leaves, form = flatten(call)

    def is_batch(leaf: Any) -> bool:
        return isinstance(leaf, Tensor) and leaf.dim() > axis and leaf.shape[axis] == size

    cut = [leaf.narrow(axis, 0, min(count, size)) if is_batch(leaf) else leaf for leaf in leaves]
    args, kwargs = unflatten(form, cut)
    return args, kwargs


def check_model(model: nn.Module) -> None:
    """Refuse a model in training mode or with weights that are not numbers."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"{type(model).__name__} is not a torch.nn.Module; give the model itself")
    training = next((name for name, m in model.named_modules() if m.training), None)
    if training is not None:
        where = f"its module {training!r} is" if training else "it is"
        raise ModelError(
            f"{type(model).__name__} cannot be converted: {where} in training mode; call model.eval() first"
        )
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if value.is_meta:
            raise ModelError(f"weight {name!r} is on the meta device, without values; load a checkpoint first")
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ModelError(f"weight {name!r} holds NaN or inf; load a sound checkpoint")
