"""Networks to files and back. Reading runs no code of the file; `storage.ops` has what its graph may call."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from spikecast._version import __version__
from spikecast.config import Config, is_pattern
from spikecast.errors import ArtifactError, ConfigError, SpikecastError, enough_to_read, first_line
from spikecast.graph.execute.watch import MAX_MEMORY, Limits
from spikecast.graph.program import NEURON
from spikecast.network.base import Network
from spikecast.network.chunks import bytes_of
from spikecast.network.plan import Plan, Site
from spikecast.network.regions import RegionNetwork, submodule
from spikecast.network.spiking import SpikingNetwork
from spikecast.storage import codec, container, schema
from spikecast.storage.files import blaming
from spikecast.storage.schema import short
from spikecast.storage.tensors import Outline, TensorStore, find, sealed
from spikecast.theory.neuron import Neuron

MAX_MATCHES = 10**6  # of overrides against site names, each of which takes its time (a microsecond or so)
MAX_PATTERNS = 256  # as many as Python keeps ready
_SETTINGS = schema.Neuron.__struct_fields__[1:]
_CPU = torch.device("cpu")
_NEURON_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def save(network: Network, path: str | os.PathLike[str]) -> None:
    """Write a network to a file; on any failure an older file of that name stays as it was."""
    store = TensorStore()
    with blaming(f"{path} is not written", "save a network without it"):
        text = document_of(_body(network, store), store)
    container.write(path, text, store.tensors)


def why_not_savable(network: Network) -> str | None:
    """Why `save` would refuse a network; None where it would not. No weight is read."""
    outline = Outline()
    try:
        _checked_text(_body(network, outline), outline)
    except (SpikecastError, RecursionError) as error:
        return first_line(error)
    return None


def _body(network: Network, store: TensorStore) -> schema.Network | schema.Regions:
    if isinstance(network, SpikingNetwork):
        return network_to_record(network, store)
    parts = cast(RegionNetwork, network)
    regions = {name: network_to_record(part, store, f"{name}/") for name, part in parts.networks.items()}
    return schema.Regions(
        _plain(parts.about), parts.config.to_json(), regions, tuple(parts.notes), tuple(sorted(parts.outside))
    )


def load(
    path: str | os.PathLike[str],
    *,
    model: nn.Module | None = None,
    device: str | torch.device | None = None,
    max_memory: int | str | None = MAX_MEMORY,
) -> SpikingNetwork | RegionNetwork:
    """The network in a file, on a device (the CPU unless given); its runs may take `max_memory`.

    Regions need the `model` that they were taken from; a whole network needs no Python code of its model.
    """
    place, most = usable_device(device), None if max_memory is None else bytes_of(max_memory)
    with enough_to_read(path):
        document, tensors = container.read(path, place)
        _check_model(path, document.body, model)
        with blaming(f"{path} cannot be loaded", "save the network again"):
            if isinstance(document.body, schema.Regions):
                return _regions(document.body, tensors, model, place, most)
            return network_from_record(document.body, tensors, place, most)


def _check_model(path: str | os.PathLike[str], body: schema.Network | schema.Regions, model: nn.Module | None) -> None:
    """Regions need their model, a whole network none; there is nothing wrong with the file then."""
    if isinstance(body, schema.Regions) and model is None:
        raise ArtifactError(
            f"{path} holds regions of a model; give that model: spikecast.load(path, model=...), or --of MODEL"
        )
    if not isinstance(body, schema.Regions) and model is not None:
        raise ArtifactError(f"{path} holds a whole network, which needs no model; leave model= out, or --of")


def _regions(
    body: schema.Regions, tensors: Mapping[str, Tensor], model: nn.Module | None, place: torch.device, most: int | None
) -> RegionNetwork:
    assert model is not None
    networks = {}
    for name, part in body.regions.items():
        submodule(model, name)  # there must be one
        networks[name] = network_from_record(part, tensors, place, most)
        networks[name].name = name
    whole = RegionNetwork(model, networks, Config.from_json(body.config)).to(place)
    whole.about, whole.notes, whole.outside = body.about, list(body.notes), set(body.outside)
    return whole


def document_of(body: schema.Network | schema.Regions, store: TensorStore) -> str:
    """The sealed text of a document."""
    return sealed(_checked_text(body, store), store.digests)


def _checked_text(body: schema.Network | schema.Regions, store: TensorStore) -> str:
    """The text of a document; what would be refused when it is loaded is refused now."""
    versions = {"spikecast": __version__, "torch": str(torch.__version__)}
    text = schema.encoded(schema.Document(schema.FORMAT, versions, body))
    read = schema.decoded(text, schema.Document).body
    for network in [read] if isinstance(read, schema.Network) else read.regions.values():
        _parts(network, store.tensors, _CPU)
    return text


def network_to_record(network: SpikingNetwork, store: TensorStore, prefix: str = "") -> schema.Network:
    """A network as a record; its tensors go to `store`, under names that begin with `prefix`."""
    plans = []
    for plan in network.plans:
        # What a run would use, not what was captured: `.to` and `load_state_dict` may have changed it.
        program = dataclasses.replace(plan.program, tensors=network.tensors_of(plan.program))
        plans.append(_plan_to_record(dataclasses.replace(plan, program=program), store, f"{prefix}weights/"))
    neurons = {}
    for site, neuron in network.neurons.items():
        # In the usual order: a file gives thresholds no strides, with which few numbers could be many.
        value = network.threshold(site).clone(memory_format=torch.contiguous_format)
        key = store.add(f"{prefix}thresholds/{site}", value)
        neurons[site] = schema.Neuron(key, *(getattr(neuron, name) for name in _SETTINGS))
    return schema.Network(_plain(network.about), network.config.to_json(), network.report, neurons, tuple(plans))


def network_from_record(
    record: schema.Network,
    tensors: Mapping[str, Tensor],
    device: torch.device = _CPU,
    max_memory: int | None = MAX_MEMORY,
) -> SpikingNetwork:
    """The network again, from what `network_to_record` made."""
    plans, config, neurons, thresholds = _parts(record, tensors, device, max_memory)
    network = SpikingNetwork(plans[0], config, neurons, thresholds, record.report)
    network.about = record.about
    network.plans += plans[1:]  # they share their weights already, by the keys of their tensors
    return network


def _parts(
    record: schema.Network, tensors: Mapping[str, Tensor], device: torch.device, max_memory: int | None = None
) -> tuple[list[Plan], Config, dict[str, Neuron], dict[str, Tensor]]:
    """What a network is made of, every part checked."""
    found = cache(partial(find, tensors=tensors))  # a tensor that several plans hold is one again
    plans = [_plan_from_record(plan, found, codec.Reader(device, Limits(max_memory))) for plan in record.plans]
    sites = plans[0].sites
    if any(plan.sites.keys() != record.neurons.keys() for plan in plans):
        raise ArtifactError("its neurons are not those of its sites")
    thresholds = {}
    for name, site in sites.items():
        thresholds[name] = value = found(record.neurons[name].threshold)
        pairs = zip(value.shape, site.meta.shape, strict=False)
        if value.dim() != site.meta.rank or any(size not in (1, own) for size, own in pairs):
            raise ArtifactError(f"the thresholds of {short(name)} have another shape than its neurons")
    for key in {own.threshold for own in record.neurons.values()}:  # once each, however many sites name it
        value = found(key)
        if value.dtype not in _NEURON_DTYPES:
            raise ArtifactError(f"the thresholds {short(key)} are {value.dtype}")
        if not bool((value.isfinite() & (value > 0)).all()):
            raise ArtifactError(f"the thresholds {short(key)} are not all positive and finite")
    return plans, _config(record.config, sites), neurons_of(record.neurons, sites), thresholds


def neurons_of(records: Mapping[str, schema.Neuron], sites: Mapping[str, Site]) -> dict[str, Neuron]:
    """What the neurons of each site are set to."""
    settings = {name: {field: getattr(own, field) for field in _SETTINGS} for name, own in records.items()}
    return {name: Neuron(**settings[name], lower=site.lower, upper=site.upper) for name, site in sites.items()}


def _config(data: Mapping[str, Any], sites: Mapping[str, Site]) -> Config:
    overrides = data.get("overrides")
    if isinstance(overrides, dict):
        patterns = [name for name in overrides if is_pattern(name)]
        letters, own = sum(map(len, sites)), sum(map(len, patterns))
        work = len(overrides) * (len(sites) + 40) + len(patterns) * letters // 100 + 10 * own
        if work > MAX_MATCHES or len(patterns) > MAX_PATTERNS:
            raise ArtifactError(f"its {len(overrides)} overrides are too many for its sites")
    config = Config.from_json(data)
    if any(config.at(name) is None for name in sites):
        raise ArtifactError("its configuration leaves a site analog that has neurons")
    return config


def _plan_to_record(plan: Plan, store: TensorStore, prefix: str) -> schema.Plan:
    return schema.Plan(
        program=codec.program_to_record(plan.program, lambda name, tensor: store.add(prefix + name, tensor)),
        sites={
            name: schema.Site(
                source=site.source,
                lower=codec.encode(site.lower),  # type: ignore[arg-type]
                upper=codec.encode(site.upper),  # type: ignore[arg-type]
                axis=site.axis,
                meta=codec.encode_meta(site.meta),
            )
            for name, site in plan.sites.items()
        },
        fed=dict(plan.fed),
        moved=dict(plan.moved),
    )


def _plan_from_record(record: schema.Plan, found: codec.Find, reader: codec.Reader) -> Plan:
    program = reader.program(record.program, found)
    if sorted(node.kwargs["site"] for node in program.nodes if node.target == NEURON) != sorted(record.sites):
        raise ArtifactError("its neurons are not those of its sites")
    sites = {name: site_of(name, site) for name, site in record.sites.items()}
    return Plan(program, sites, record.fed, record.moved)


def site_of(name: str, record: schema.Site) -> Site:
    """A site again, checked."""
    lower, upper = (codec.decode(bound, _CPU) for bound in (record.lower, record.upper))
    if not lower <= 0.0 <= upper:
        raise ArtifactError(f"the site {short(name)} keeps no interval around 0")
    meta = codec.decode_meta(record.meta)
    if record.axis is not None and record.axis >= meta.rank:
        raise ArtifactError(f"the axis of the site {short(name)} is {record.axis}, of {meta.rank}")
    if meta.dtype not in _NEURON_DTYPES:
        raise ArtifactError(f"the neurons of {short(name)} are {meta.dtype}")
    return Site(name, record.source, lower, upper, record.axis, meta)


def _plain(about: Any) -> dict[str, Any]:
    """What is said about a network as JSON data."""
    try:
        return json.loads(json.dumps(about, allow_nan=False))  # type: ignore[no-any-return]
    except (TypeError, ValueError, RecursionError) as error:
        raise ArtifactError(f"what is said about it holds what JSON cannot ({first_line(error)})") from None


def usable_device(device: str | torch.device | None) -> torch.device:
    """The device of that name (the CPU for None), if it is there."""
    try:
        place = torch.device("cpu" if device is None else device)
        torch.zeros(1, device=place).item()  # fails on a device that is not there, and on "meta"
    # in this order: no such device, torch built without it, no name of a device, and "meta", which holds no values
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise ConfigError(f"device={device!r} cannot be used here ({first_line(error)}); give 'cpu'") from None
    return place
