"""From what a loader yields to the arguments of a call.

A tensor is the input. A tuple or list binds to forward's required positional arguments, and one item more is the
label; so is what follows a tuple or a dict of the inputs: ((a, b), label), ({"a": a}, label). Beside a pair the label
must be integers: ((a, b), floats) are two arguments. Where forward requires nothing, as in Hugging Face's models, its
first argument counts as required. A dict binds by name; what forward does not know, and labels that it does not
require, are dropped and reported. `inputs=` overrides all of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from spikecast.errors import DataError, ModelError, run_own
from spikecast.graph.calls import TENSOR, axis_of_batch, check_finite
from spikecast.graph.program import Program
from spikecast.graph.structure import flatten, leaf_keys, unflatten

Call = tuple[tuple[Any, ...], dict[str, Any]]
InputFunction = Callable[[Any], Any]
TARGETS = ("label", "labels", "target", "targets")  # keys of a batch that hold what is asked for


class Binder:
    """Binds batches to the arguments of one model, or of the network that was made from it."""

    def __init__(
        self,
        name: str,
        required: Sequence[str],
        named: Sequence[str],
        known: Collection[str],
        *,
        like: Tensor | None,
        inputs: InputFunction | None = None,
        open_ended: bool = False,
        any_name: bool = False,
        optional: bool = False,
    ) -> None:
        """required: positional arguments that must be there; named: those given by name only; known: all names.

        optional: it takes positional arguments, though none must be there.
        """
        self.name, self.inputs = name, inputs
        self.required, self.required_names, self.known = list(required), list(named), set(known)
        self.open_ended, self.any_name = open_ended, any_name
        self.need = max(len(self.required), int(optional))  # items of a batch that are no label
        self.like = like  # a weight: batches must have its device and type
        self.dropped: set[str] = set()
        self.labelled = False  # whether a label of whole numbers came along

    @classmethod
    def of_model(cls, model: nn.Module, inputs: InputFunction | None = None) -> Binder:
        """By the signature of its forward."""
        parameters = inspect.signature(model.forward).parameters.values()
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        keyword = inspect.Parameter.KEYWORD_ONLY
        return cls(
            type(model).__name__,
            [p.name for p in parameters if p.kind in positional and p.default is p.empty],
            [p.name for p in parameters if p.kind is keyword and p.default is p.empty],
            {p.name for p in parameters if p.kind in (*positional, keyword)},
            like=next(iter(model.parameters()), None),
            inputs=inputs,
            optional=any(p.kind in positional for p in parameters),
            open_ended=any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters),
            any_name=any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters),
        )

    @classmethod
    def of_call(cls, program: Program, like: Tensor | None, inputs: InputFunction | None = None) -> Binder:
        """By a call that was captured: the model's Python code may be gone."""
        structure, parameters = program.input_structure, program.parameters
        positional, named = structure["form"]["items"]
        count, names = len(positional["items"]), [key for key, _ in named["items"]]
        places = [*parameters[:count], *(f"argument {i}" for i in range(len(parameters), count))]
        places += takewhile(names.__contains__, parameters[count:])  # given by name, and may come by place too
        kinds = structure["constants"][len(structure["constants"]) - len(keys := leaf_keys(named)) :]
        tensors = {key[0] for key, kind in zip(keys, kinds, strict=True) if kind == TENSOR}
        only = [name for name in names if name in tensors and name not in places]
        return cls("the model", places, only, {*places, *names}, like=like, inputs=inputs)

    def bind(self, batch: Any) -> Call:
        """The call a batch stands for."""
        call = self._bind(batch)
        tensors = [leaf for leaf in flatten(call)[0] if isinstance(leaf, Tensor)]
        if not tensors:
            raise DataError(f"a batch of type {type(batch).__name__} holds no tensor; yield tensors, or give inputs=")
        self._check(tensors)
        return call

    def changed(self, batch: Any, change: Callable[[Call], Call]) -> Any:
        """The batch with other tensors in the call that it stands for; all else it holds, as a label, stays."""
        call = self.bind(batch)
        pairs = zip(flatten(call)[0], flatten(change(call))[0], strict=True)
        new = {id(old): tensor for old, tensor in pairs if isinstance(old, Tensor)}
        leaves, form = flatten(batch)
        return unflatten(form, [new.get(id(leaf), leaf) for leaf in leaves])

    @property
    def dropped_note(self) -> str:
        """What to say of the keys that were dropped."""
        return f"keys of the batches that forward does not need were dropped: {', '.join(sorted(self.dropped))}"

    def _bind(self, batch: Any) -> Call:
        if isinstance(batch, PackedSequence):
            raise DataError("a batch is a PackedSequence; yield the padded tensor, all sequences of one length")
        if self.inputs is not None:
            what = f"inputs=, which was given to convert, fails on a batch that is a {type(batch).__name__}"
            chosen = run_own(what, lambda: self.inputs(batch))  # type: ignore[misc]  # it is not None
            if isinstance(chosen, Mapping):
                return (), dict(chosen)
            return (tuple(chosen) if isinstance(chosen, tuple) else (chosen,)), {}
        if self._has_label(batch):
            self.labelled |= _is_label(batch[1])
            batch = batch[0]
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

    def _has_label(self, batch: Any) -> bool:
        """Whether a batch is (inputs, label) with the inputs in a tuple or a dict of their own."""
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            return False
        first, second = batch
        needed = [*self.required, *self.required_names]
        if isinstance(first, Mapping):
            return set(needed) <= set(first) and (self.any_name or bool(self.known & set(first)))
        together = isinstance(first, list | tuple) and len(first) == len(self.required) > 1
        return together and (len(self.required) > 2 or _is_label(second))

    def _by_name(self, batch: Mapping[Any, Any]) -> dict[str, Any]:
        wanted = {*self.required, *self.required_names}
        found = {
            str(k): v
            for k, v in batch.items()
            if k in wanted or (k not in TARGETS and (self.any_name or k in self.known))
        }
        self.dropped |= {str(k) for k in batch} - set(found)
        self.labelled |= any(k in TARGETS and _is_label(v) for k, v in batch.items())
        missing = [name for name in (*self.required, *self.required_names) if name not in found]
        if missing:
            raise DataError(
                f"a batch with keys {sorted(map(str, batch))} lacks {', '.join(missing)}, which {self.name}.forward "
                "needs; rename the keys, or give inputs=function(batch)"
            )
        return found

    def _by_position(self, batch: tuple[Any, ...]) -> tuple[Any, ...]:
        need = self.need
        if self.open_ended or len(batch) == need:
            return batch
        if len(batch) == need + 1 and need > 0 and not self._may_be_mask(batch):
            self.labelled |= _is_label(batch[need])
            return batch[:need]
        raise DataError(
            f"a batch has {len(batch)} items, {self.name}.forward takes {need} "
            f"({', '.join(self.required)}) and one label may follow; yield dicts, or give inputs=function(batch)"
        )

    def _may_be_mask(self, batch: tuple[Any, ...]) -> bool:
        """Whether the second item may be a mask of the first: a model whose arguments are all optional may take one."""
        first, second = batch[0], batch[1]
        both = isinstance(first, Tensor) and isinstance(second, Tensor)
        if self.required or not both or second.dim() < 2:
            return False
        return second.shape == first.shape and bool(((second == 0) | (second == 1)).all())

    def _check(self, tensors: list[Tensor]) -> None:
        for tensor in tensors:
            if tensor.numel() == 0:
                raise DataError(f"a batch of shape {tuple(tensor.shape)} holds no samples; drop empty batches")
            device = self.like.device if self.like is not None else tensor.device
            if tensor.device != device:
                raise DataError(f"a batch is on {tensor.device} and the model on {device}; move one with .to(...)")
            if tensor.is_meta:
                raise DataError("a batch is on the meta device, where tensors have no values; give real ones")
            dtype = self.like.dtype if self.like is not None else tensor.dtype
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
        yield _tracked(binder.bind(batch))
    if empty:
        raise DataError("the calibration loader yielded no batch; give at least one batch of typical inputs")


def _tracked(call: Call) -> Call:
    """The call with copies of tensors that were made in inference mode: autograd cannot take those."""
    leaves, form = flatten(call)
    made = [isinstance(leaf, Tensor) and leaf.is_inference() for leaf in leaves]
    if torch.is_inference_mode_enabled() or not any(made):
        return call
    args, kwargs = unflatten(form, [x.clone() if is_made else x for x, is_made in zip(leaves, made, strict=True)])
    return args, kwargs


def _is_label(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, Tensor) and not value.is_floating_point())


def samples_in(call: Call, axis: int | None = 0) -> int:
    """How many samples a call holds: along an axis of its first tensor.

    None: as models have it that take a list of images of different sizes, the length of that list; else the front.
    """
    first = next(iter((*call[0], *call[1].values())), None)
    while axis is None and isinstance(first, Mapping) and first:
        first = next(iter(first.values()))
    if axis is None and isinstance(first, list | tuple):
        return len(first)
    tensor = next(leaf for leaf in flatten(call)[0] if isinstance(leaf, Tensor))
    return int(tensor.shape[axis or 0]) if tensor.dim() > (axis or 0) else 1


def first_samples(call: Call, count: int, axis: int = 0, *, start: int = 0) -> Call:
    """A call with at most `count` samples, from number `start` on."""
    size = samples_in(call, axis)
    return _each_tensor(call, size, axis, lambda leaf, own: leaf.narrow(own, start, min(count, size - start)))


def one_sample(call: Call, index: int, axis: int | None = 0) -> Call:
    """One sample of a call, without its batch axis; of a list of images, the image."""
    if axis is None and call[0] and isinstance(call[0][0], list | tuple):
        return (call[0][0][index],), {}
    size = samples_in(call, axis)
    return _each_tensor(call, size, axis or 0, lambda leaf, own: leaf.select(own, index))


def _each_tensor(call: Call, size: int, axis: int, change: Callable[[Tensor, int], Tensor]) -> Call:
    """A call with every tensor changed that holds the batch, given the axis it holds it on."""
    leaves, form = flatten(call)

    def changed(leaf: Any) -> Any:
        own = axis_of_batch(leaf, size, axis) if isinstance(leaf, Tensor) else None
        return leaf if own is None else change(leaf, own)

    args, kwargs = unflatten(form, [changed(leaf) for leaf in leaves])
    return args, kwargs


def joined(calls: Sequence[Call], axis: int = 0) -> Call:
    """Several calls as one, where their other sizes agree; else the first."""
    parts = [flatten(call) for call in calls]
    size = samples_in(calls[0], axis)

    def join(values: Sequence[Any]) -> Any:
        own = axis_of_batch(values[0], size, axis) if isinstance(values[0], Tensor) else None
        return values[0] if own is None else torch.cat(list(values), own)

    if any(form != parts[0][1] for _, form in parts):
        return calls[0]
    try:
        leaves = [join(values) for values in zip(*(leaves for leaves, _ in parts), strict=True)]
    except RuntimeError:  # other sizes differ
        return calls[0]
    args, kwargs = unflatten(parts[0][1], leaves)
    return args, kwargs


def check_model(model: nn.Module) -> None:
    """Refuse a model in training mode or with weights that are not numbers; a bound or a mask may be infinite."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"{type(model).__name__} is not a torch.nn.Module; give the model itself")
    training = next((name for name, m in model.named_modules() if m.training), None)
    if training is not None:
        where = f"its module {training!r} is" if training else "it is"
        raise ModelError(
            f"{type(model).__name__} cannot be converted: {where} in training mode; call model.eval() first"
        )
    bounds = {name for name, _ in model.named_buffers() if "running_" not in name}
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if value.is_meta:
            raise ModelError(f"weight {name!r} is on the meta device, without values; load a checkpoint first")
        if not value.is_floating_point():
            continue
        if bool(value.isnan().any()) or (name not in bounds and bool(value.isinf().any())):
            raise ModelError(f"weight {name!r} holds NaN or inf; load a sound checkpoint")
