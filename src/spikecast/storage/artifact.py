"""A network in one file: safetensors for its numbers, one JSON document for everything else.

The header's `__metadata__` holds the document under "spikecast": {"sha256", "format", "kind", "versions", kind: body};
`network_to_document` makes the body of a "network". The checksum is that of the rest of the document and all tensors:
it tells damage, not who wrote the file. Reading runs no code of the file; `graph.codec` has the ops it may name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn

from spikecast._version import __version__
from spikecast.config import Config
from spikecast.errors import ArtifactError, ConfigError, SpikecastError
from spikecast.graph.program import NEURON
from spikecast.graph.roles import Role
from spikecast.network.base import Network
from spikecast.network.plan import Plan, Site
from spikecast.network.regions import RegionNetwork
from spikecast.network.report import Report, Row
from spikecast.network.spiking import SpikingNetwork, neuron_of
from spikecast.storage import codec
from spikecast.storage.codec import Json, fields, items, short, typed, whole
from spikecast.storage.files import replacing

FORMAT = 1
# A document takes some twenty times its length once it is parsed. This is room for forty thousand ops.
MAX_HEADER = 32 * 2**20
MAX_MATCHES = 10**6  # of overrides against site names, each of which takes its time
_DOCUMENT = "spikecast"  # one key only: safetensors writes several in any order, and equal networks make equal files
_THRESHOLD_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_ROW_TYPES = get_type_hints(Row)


def save(network: Network, path: str | os.PathLike[str]) -> None:
    """Write a network to a file; on any failure an older file of that name stays as it was."""
    store = TensorStore()
    with _blaming(f"{path} is not written", "save a network without it"):
        if isinstance(network, SpikingNetwork):
            kind, body = "network", network_to_document(network, store)
        else:
            parts = [[n, network_to_document(p, store, f"{n}/")] for n, p in network.networks.items()]
            kind, body = "regions", {"about": network.about, "config": network.config.to_json(), "regions": parts}
    write(path, kind, body, store)


def load(
    path: str | os.PathLike[str], *, model: nn.Module | None = None, device: str | torch.device | None = None
) -> SpikingNetwork | RegionNetwork:
    """The network in a file, on a device (the CPU unless given); only regions need the model they belong to."""
    place = _usable(device)
    kind, body, tensors = read(path, place)
    with _blaming(f"{path} cannot be loaded", "save the network again"):
        if kind == "network":
            return network_from_document(body, tensors, place)
        if kind != "regions":
            raise ArtifactError(f"it is of the kind {short(kind)}, which this version of spikecast does not know")
        return _regions_from_document(body, tensors, place, model)


def _regions_from_document(
    body: Any, tensors: Mapping[str, Tensor], device: torch.device, model: nn.Module | None
) -> RegionNetwork:
    if model is None:
        raise ArtifactError("it holds regions of a model; give that model: spikecast.load(path, model=...)")
    about, config_data, entries = fields(typed(body, dict, "regions"), "regions", "about", "config", "regions")
    config = Config.from_json(typed(config_data, dict, "the configuration"))
    networks: dict[str, SpikingNetwork] = {}
    for entry in items(entries, "regions", list):
        if len(entry) != 2:
            raise ArtifactError("a region is not a name and a network")
        name = typed(entry[0], str, "a region's name")
        networks[name] = network_from_document(entry[1], tensors, device)
        networks[name].name = name
    whole = RegionNetwork(model, networks, config).to(device)
    whole.about = typed(about, dict, "about")
    return whole


def network_to_document(network: SpikingNetwork, store: TensorStore, prefix: str = "") -> Json:
    """A network as JSON data; its tensors go to `store`, under names that begin with `prefix`."""
    plans = []
    for plan in network.plans:
        # What a run would use, not what was captured: `.to` and `load_state_dict` may have changed it.
        program = dataclasses.replace(plan.program, tensors=network.tensors_of(plan.program))
        plans.append(_plan_to_json(dataclasses.replace(plan, program=program), store, f"{prefix}weights/"))
    document: Json = {
        "about": network.about,
        "config": network.config.to_json(),
        "report": network.report.to_json(),
        "thresholds": {
            site: store.add(f"{prefix}thresholds/{site}", value.contiguous())
            for site, value in network.thresholds.items()
        },
        "plans": plans,
    }
    # Whatever would be refused when it is loaded is refused now, while there still is a network to save.
    network_from_document(_parsed(_written(document)), store.tensors)
    return document


def network_from_document(
    document: Any, tensors: Mapping[str, Tensor], device: torch.device | None = None
) -> SpikingNetwork:
    """The network again, from what `network_to_document` made."""
    place = torch.device("cpu") if device is None else device
    known = {"about": {}, **typed(document, dict, "a network")}  # files of version 0.1 say nothing about it
    names = ("about", "config", "report", "thresholds", "plans")
    about, config_data, report, thresholds, plans = fields(known, "a network", *names)
    num_overrides = len(typed(typed(config_data, dict, "the configuration").get("overrides"), dict, "overrides"))
    if num_overrides * len(typed(thresholds, dict, "thresholds")) > MAX_MATCHES:
        raise ArtifactError(f"its {num_overrides} overrides are too many for its sites")
    config = Config.from_json(config_data)
    read_plans = [_plan_from_json(plan, tensors, place) for plan in typed(plans, list, "plans")]
    if not read_plans or any(plan.sites.keys() != read_plans[0].sites.keys() for plan in read_plans):
        raise ArtifactError("it has no plans, or plans with different neurons")
    if thresholds.keys() != read_plans[0].sites.keys():
        raise ArtifactError("its thresholds are not those of its sites")
    theta = {name: _threshold(site, thresholds[name], tensors) for name, site in read_plans[0].sites.items()}
    if any(config.at(name) is None for name in theta):
        raise ArtifactError("its configuration leaves a site analog that has neurons")
    try:
        neurons = {name: neuron_of(site, config) for name, site in read_plans[0].sites.items()}
        network = SpikingNetwork(read_plans[0], config, neurons, theta, _report(report))
    except KeyError as error:  # a buffer cannot have this name
        raise ArtifactError(f"a tensor has a name that cannot be used: {error}") from None
    network.about = typed(about, dict, "about")
    for plan in read_plans[1:]:
        network.add_plan(plan)
    return network


def _plan_to_json(plan: Plan, store: TensorStore, prefix: str) -> Json:
    return {
        "program": codec.program_to_json(plan.program, lambda name, tensor: store.add(prefix + name, tensor)),
        "sites": {
            name: {
                "source": site.source,
                "interval": [codec.encode(site.lower), codec.encode(site.upper)],
                "axis": site.axis,
                "meta": codec.encode_meta(site.meta),
            }
            for name, site in plan.sites.items()
        },
        "roles": {name: None if role is None else role.value for name, role in plan.roles.items()},
        "fed": dict(plan.fed),
        "moved": dict(plan.moved),
    }


def _plan_from_json(data: Any, tensors: Mapping[str, Tensor], device: torch.device) -> Plan:
    program_data, sites_data, roles, fed, moved = fields(data, "a plan", "program", "sites", "roles", "fed", "moved")
    program = codec.program_from_json(program_data, lambda entry: _found(entry, tensors), device)
    sites = {name: _site(name, site, device) for name, site in typed(sites_data, dict, "sites").items()}
    if sorted(node.kwargs["site"] for node in program.nodes if node.target == NEURON) != sorted(sites):
        raise ArtifactError("its neurons are not those of its sites")
    known = {role.value: role for role in Role}
    for role in typed(roles, dict, "roles").values():
        if role is not None and typed(role, str, "a role") not in known:
            raise ArtifactError(f"the role {short(role)} is unknown")
    for table in (fed, moved):
        items([*typed(table, dict, "a plan").values()], "a plan", str)
    return Plan(program, sites, {name: role and known[role] for name, role in roles.items()}, fed, moved)


def _site(name: str, data: Any, device: torch.device) -> Site:
    source, interval, axis, form = fields(data, f"the site {short(name)}", "source", "interval", "axis", "meta")
    bounds = codec.decode(typed(interval, list, "an interval"), device)
    if [type(bound) for bound in bounds] != [float, float] or not bounds[0] <= 0.0 <= bounds[1]:
        raise ArtifactError(f"the site {short(name)} keeps no interval around 0")
    meta = codec.decode_meta(form)
    if axis is not None:
        whole(axis, f"the axis of the site {short(name)}", 0, meta.rank - 1)
    return Site(name, typed(source, str, "the source of a site"), bounds[0], bounds[1], axis, meta)


def _threshold(site: Site, entry: Any, tensors: Mapping[str, Tensor]) -> Tensor:
    value = _found(typed(entry, str, "a threshold"), tensors)  # a string: never a small tensor expanded to a huge one
    if value.dtype not in _THRESHOLD_DTYPES or value.dim() > site.meta.rank:
        raise ArtifactError(f"the thresholds of {short(site.name)} are {value.dtype} {tuple(value.shape)}")
    if not bool((value.isfinite() & (value > 0)).all()):
        raise ArtifactError(f"the thresholds of {short(site.name)} are not all positive and finite")
    return value


def _report(data: Any) -> Report:
    fields(data, "the report", "num_sites", "total_macs", "spiking_share", "foldable", "notes", "rows")
    whole(data["num_sites"], "the number of sites")
    typed(data["foldable"], bool, "foldable")
    items(data["notes"], "the notes of the report", str)
    for row in items(data["rows"], "the report", dict):
        values = fields(row, "a row of the report", *_ROW_TYPES)
        if not all(isinstance(value, kind) for value, kind in zip(values, _ROW_TYPES.values(), strict=True)):
            raise ArtifactError("a row of the report holds something of another type than is due there")
    return Report.from_json(data)


class TensorStore:
    """Tensors on their way to a file. One that several names or plans share is stored once, and shared again."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.digests: dict[str, str] = {}
        self._keys: dict[Any, str] = {}  # (name, digest), or the place in memory -> key
        self._storages: set[int] = set()
        self._kept: list[Tensor] = []  # so that no other tensor comes to lie at a known place

    def add(self, name: str, tensor: Tensor) -> Any:
        """Keep a tensor; the answer is what finds it again."""
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
            raise ArtifactError(f"the tensor {name!r} is sparse, quantized or without data, which cannot be saved")
        packed, layout = _packed(tensor.detach().resolve_conj().resolve_neg())
        digest, place = _digest(packed), (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        # Equal tensors of other names stay apart: whoever changes one of them does not mean the other.
        key = self._keys.get(place, self._keys.get((name, digest)))
        if key is None:
            key = name if name not in self.tensors else f"{name}#{len(self.tensors)}"
            if packed.untyped_storage().data_ptr() in self._storages:
                packed = packed.clone()  # safetensors refuses tensors that share memory
            self._storages.add(packed.untyped_storage().data_ptr())
            self.tensors[key], self.digests[key] = packed, digest
            self._keys[place] = self._keys[name, digest] = key
            self._kept.append(tensor)
        return key if layout is None else {"key": key, **layout}


def _packed(tensor: Tensor) -> tuple[Tensor, Json | None]:
    """The tensor without repeats and gaps on the CPU, and its strides where they are not the usual ones.

    A weight that lies in memory in another order takes another path through the kernels, with other last bits.
    """
    strides, plain = tensor.stride(), torch.contiguous_format
    if strides == torch.empty(tensor.shape, device="meta").stride():
        return tensor.cpu(), None
    once = [1 if stride == 0 else size for size, stride in zip(tensor.shape, strides, strict=True)]
    order = sorted(range(tensor.dim()), key=lambda axis: -strides[axis])
    dense = tensor.as_strided(once, strides).permute(order)
    if not dense.is_contiguous() or tensor.numel() == 0:  # gaps, which belong to some other tensor
        return tensor.cpu().clone(memory_format=plain), None
    return dense.cpu().clone(memory_format=plain), {"shape": list(tensor.shape), "strides": list(strides)}


def _found(entry: Any, tensors: Mapping[str, Tensor]) -> Tensor:
    """The tensor that `TensorStore.add` spoke of."""
    shape: Any = None
    if isinstance(entry, dict):
        entry, shape, strides = fields(entry, "a tensor", "key", "shape", "strides")
    if typed(entry, str, "a tensor") not in tensors:
        raise ArtifactError(f"the tensor {short(entry)} is missing")
    stored = tensors[entry]
    if shape is None:
        return stored
    sizes = [whole(size, "a size of a tensor", 1) for size in items(shape, "the shape of a tensor", int)]
    steps = [whole(step, "a stride of a tensor") for step in items(strides, "the strides of a tensor", int)]
    last = sum((size - 1) * step for size, step in zip(sizes, steps, strict=False))
    if len(sizes) != len(steps) or len(sizes) > codec.MAX_RANK or last >= stored.numel() or math.prod(sizes) >= 2**63:
        raise ArtifactError(f"the tensor {short(entry)} has strides that do not fit it")
    return stored.as_strided(sizes, steps)


def _digest(tensor: Tensor) -> str:
    found = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
    found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def write(path: str | os.PathLike[str], kind: str, body: Json, store: TensorStore) -> None:
    """Put a document and its tensors into a file, whole or not at all."""
    versions = {"spikecast": __version__, "torch": torch.__version__}
    text = _written({"format": FORMAT, "kind": kind, "versions": versions, kind: body})
    metadata = {_DOCUMENT: sealed(text, store.digests)}
    # Any error: safetensors has its own type for a full disk, and KeyError for a dtype it lacks.
    with _blaming(f"{path} is not written", "nothing was changed", Exception), replacing(path) as temporary:
        _write_through(temporary, store.tensors, metadata)
    with suppress(OSError):  # the name, too, is on the disk only then; not every system can do it
        folder = os.open(temporary.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _write_through(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    from safetensors.torch import save_file

    made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    mode = stat.S_IMODE(os.fstat(made).st_mode)
    os.close(made)
    save_file(dict(tensors), path, metadata=metadata)
    path.chmod(mode)  # safetensors makes a file that only its owner may read
    with path.open("rb+") as file:
        if int.from_bytes(file.read(8), "little") > MAX_HEADER:
            raise ArtifactError(f"its graph takes more than {MAX_HEADER} bytes; convert a smaller model")
        os.fsync(file.fileno())


def read(path: str | os.PathLike[str], device: torch.device) -> tuple[str, Any, dict[str, Tensor]]:
    """The kind, the body and the tensors of a file that is whole and of a known format."""
    from safetensors import safe_open

    _check_file(path)
    try:
        with safe_open(os.fspath(path), framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            document = _document(path, metadata)
            # Copies: the library's are windows on a file that may change, at odd addresses that cost the last bits.
            tensors = {name: file.get_tensor(name).clone() for name in sorted(file.keys())}
    except SpikecastError:
        raise
    except Exception as error:  # the library's own type, and whatever torch says of a shape or of the memory
        raise ArtifactError(f"{path} is cut short or damaged ({_line(error)}); copy or save it again") from error
    digests = {name: _digest(tensor) for name, tensor in tensors.items()}
    if metadata[_DOCUMENT] != sealed("{" + metadata[_DOCUMENT].partition(",")[2], digests):
        raise ArtifactError(f"{path} is damaged: its checksum does not match; copy or save it again")
    with _blaming(f"{path} cannot be loaded", "save the network again"):
        kind = typed(document.get("kind"), str, "its kind")
        *_, versions, body = fields(document, "its document", "sha256", "format", "kind", "versions", kind)
        items(fields(versions, "versions", "spikecast", "torch"), "versions", str)
    return kind, body, {name: tensor.to(device) for name, tensor in tensors.items()}


def _check_file(path: str | os.PathLike[str]) -> None:
    """See that there is a file and that it can be one of ours, before anything of it is read into memory."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe would wait for ever
            raise ArtifactError(f"{path} is a folder or a device; give the file that snn.save wrote")
        with open(path, "rb") as file:
            size, header = os.fstat(file.fileno()).st_size, int.from_bytes(file.read(8), "little")
    except FileNotFoundError:
        raise ArtifactError(f"there is no file {path}; check the name") from None
    except PermissionError:
        raise ArtifactError(f"{path} may not be read; change its permissions, or run as its owner") from None
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} cannot be opened ({_line(error)}); check the name") from None
    if size == 0:
        raise ArtifactError(f"{path} is empty; copy or save it again")
    if header > MAX_HEADER or header + 8 > size:
        raise ArtifactError(f"{path} is cut short, or no spikecast file; give a file that snn.save wrote, copied whole")


def _document(path: str | os.PathLike[str], metadata: Mapping[str, str]) -> Json:
    """The document of a format that this version can read."""
    if _DOCUMENT not in metadata:
        raise ArtifactError(f"{path} is a safetensors file without a spikecast network; give one that snn.save wrote")
    with _blaming(f"{path} is damaged", "copy or save it again"):
        document = typed(_parsed(metadata[_DOCUMENT]), dict, "its document")
        number = whole(document.get("format"), "its format", 1)
        if metadata.keys() != {_DOCUMENT} and number <= FORMAT:
            raise ArtifactError("its header has keys that are not ours")
    if number > FORMAT:
        raise ArtifactError(f"{path} was made by a newer spikecast (format {number}, this one reads {FORMAT}); upgrade")
    return document


def _written(document: Json) -> str:
    try:
        return json.dumps(document, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ArtifactError(f"it holds what JSON cannot ({_line(error)})") from None


def _parsed(text: str) -> Any:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"its document is not JSON ({_line(error)})") from None
    codec.check_bounds(document)
    return document


def sealed(text: str, digests: Mapping[str, str]) -> str:
    """A document with the checksum of itself and of the tensors as its first entry."""
    checksum = hashlib.sha256(text.encode())
    for name in sorted(digests):
        checksum.update(json.dumps([name, digests[name]]).encode())
    return f'{{"sha256":"{checksum.hexdigest()}",{text[1:]}'


def _usable(device: str | torch.device | None) -> torch.device:
    try:
        place = torch.device("cpu" if device is None else device)
        torch.zeros(1, device=place).item()  # fails on a device that is not there, and on "meta"
    # in this order: no such device, torch built without it, no name of a device, and "meta", which holds no values
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise ConfigError(f"device={device!r} cannot be used here ({_line(error)}); give 'cpu'") from None
    return place


@contextmanager
def _blaming(what: str, remedy: str, kind: type[Exception] = SpikecastError) -> Iterator[None]:
    """One line that begins with the file and ends with what to do, for whatever was found wrong inside."""
    try:
        yield
    except (kind, RecursionError) as error:
        raise ArtifactError(f"{what}: {_line(error)}; {remedy}") from None


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:400]
