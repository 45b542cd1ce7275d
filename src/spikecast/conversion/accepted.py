"""The model that is captured: freed from what it is wrapped in, or refused in one line that says what to give instead.

The caller's model is never changed. Where a part of it is wrapped, the modules above that part are copied; the copies
share their weights with it, unless these are scattered over processes or were made in inference mode.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from spikecast.batches import check_model
from spikecast.errors import ModelError
from spikecast.graph.calls import form
from spikecast.theory.modes import no_autocast

_WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")  # torch.compile, FSDP, checkpoints
_QUANTISED = ("torch.ao.nn.", "torch.ao.quantization.", "torchao.")
_FLOAT = ("torch.ao.quantization.stubs", "torch.ao.nn.intrinsic.modules")  # of a float model that may be quantised


@contextmanager
def own_modes() -> Iterator[None]:
    """No autograd, inference mode or autocast of the caller's: what is computed does not depend on where it is."""
    with no_autocast(), torch.inference_mode(False), torch.no_grad():
        yield


@own_modes()
def accepted(model: nn.Module) -> nn.Module:
    """The model without its wrappers, under the names of the model inside; refused where it cannot be converted."""
    if isinstance(model, nn.Module):
        _refuse_code(model)
        _refuse_lazy(model)
        with _gathered(model):
            model = _Plain().module(model)
        _refuse_weights(model)
    check_model(model)
    return model


def _refuse_code(model: nn.Module) -> None:
    """TorchScript and quantised modules, which have no float weights in Python."""
    for name, module in model.named_modules():
        kind = type(module)
        where = f"module {name!r} of {type(model).__name__}" if name else "the model"
        if isinstance(module, torch.jit.ScriptModule):
            raise ModelError(
                f"{where} is TorchScript ({kind.__name__}), which torch.export cannot read; convert the original "
                "module, from which torch.jit.script or trace made it"
            )
        place = kind.__module__
        ops = module.graph.nodes if isinstance(module, fx.GraphModule) else ()
        is_quantised = place.startswith(_QUANTISED) and not place.startswith(_FLOAT)
        if is_quantised or any(node.op == "call_function" and "quantize" in str(node.target) for node in ops):
            raise ModelError(
                f"{where} is quantised, or prepared for it ({place.removesuffix('.modules')}.{kind.__name__}), and "
                "spikes want float weights; convert the float model it was made from"
            )


def _refuse_lazy(model: nn.Module) -> None:
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(weight):
            raise ModelError(f"weight {name!r} has no size yet, as in nn.LazyLinear; call the model on a batch first")


def _refuse_weights(model: nn.Module) -> None:
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        odd = "quantised" if type(weight.data).__module__.startswith("torchao.") else form(weight)
        if odd and not (odd == "complex" and not isinstance(weight, nn.Parameter)):
            remedy = "convert the float model it was made from" if odd == "quantised" else "give such a weight"
            raise ModelError(f"weight {name!r} is {odd}, and spikes are weighed by dense real numbers; {remedy}")


@contextmanager
def _gathered(model: nn.Module) -> Iterator[None]:
    """While this lasts, weights that FullyShardedDataParallel scattered over the processes are whole."""
    loaded: Any = sys.modules.get("torch.distributed.fsdp")
    sharded = loaded is not None and any(isinstance(m, loaded.FullyShardedDataParallel) for m in model.modules())
    whole: AbstractContextManager[Any] = nullcontext()
    if sharded:
        whole = loaded.FullyShardedDataParallel.summon_full_params(model, writeback=False)
    with whole:
        yield


class _Plain:
    """Copies of the modules that are wrapped or have something wrapped inside; all others are taken as they are."""

    def __init__(self) -> None:
        self.modules: dict[int, nn.Module] = {}
        self.tensors: dict[int, Tensor] = {}  # tied weights stay tied
        self.in_pieces = False  # inside of FSDP, whose weights are whole for a moment only

    def module(self, given: nn.Module) -> nn.Module:
        if id(given) not in self.modules:
            self.modules[id(given)] = self._made(given)
        return self.modules[id(given)]

    def _made(self, given: nn.Module) -> nn.Module:
        module = given
        while (inside := _inside(module)) is not None:
            self.in_pieces |= "_fsdp_wrapped_module" in module._modules
            module = inside
        parts: dict[str, dict[str, Any]] = {
            "_modules": {n: None if m is None else self.module(m) for n, m in module._modules.items()},
            "_parameters": {n: None if p is None else self.tensor(p) for n, p in module._parameters.items()},
            "_buffers": {n: None if b is None else self.tensor(b) for n, b in module._buffers.items()},
        }
        same = all(made[n] is value for kind, made in parts.items() for n, value in vars(module)[kind].items())
        same = same and not _is_compiled(vars(module).get("forward"))
        kind = type(module)
        is_sharded = any(base.__name__ == "FSDPModule" for base in kind.__mro__)
        if same and not is_sharded:
            return module
        made: Any = object.__new__(kind.__bases__[1] if is_sharded else kind)  # fully_shard puts a class before its own
        made.__dict__.update({**vars(module), **parts})
        made.__dict__.pop("_compiled_call_impl", None)  # bound to the module it was made of
        if _is_compiled(made.__dict__.get("forward")):  # so is this
            del made.__dict__["forward"]
        for hooks in ("_forward_hooks", "_forward_pre_hooks"):
            kept = {k: h for k, h in vars(module)[hooks].items() if not _is_of_sharding(h)}
            made.__dict__[hooks] = type(vars(module)[hooks])(kept)
        return cast(nn.Module, made)

    def tensor(self, given: Tensor) -> Tensor:
        if id(given) not in self.tensors:
            value = given
            if hasattr(given, "full_tensor"):  # a DTensor: scattered over the processes
                value = given.full_tensor()
            elif self.in_pieces or given.is_inference():
                value = given.detach().clone()
            made = nn.Parameter(value, False) if isinstance(given, nn.Parameter) and value is not given else value
            self.tensors[id(given)] = made
        return self.tensors[id(given)]


def _inside(module: nn.Module) -> nn.Module | None:
    """What is wrapped in a module; None where it is no wrapper."""
    names = ("module",) if isinstance(module, DataParallel | DistributedDataParallel) else _WRAPPED
    return next((module._modules[name] for name in names if name in module._modules), None)


def _is_compiled(forward: Any) -> bool:
    """Whether it stands for the forward of a module's own class, as in model.forward = torch.compile(model.forward)."""
    inside = inspect.unwrap(forward) if hasattr(forward, "_torchdynamo_orig_callable") else None
    return inspect.ismethod(inside) and inside.__func__ is getattr(type(inside.__self__), "forward", None)


def _is_of_sharding(hook: Any) -> bool:
    return type(getattr(hook, "__self__", None)).__name__ == "FSDPState"
