"""Events say what the neurons did, and come back from a file as they went into it; other files are refused."""

from __future__ import annotations

import csv
import json
import os
import sys
import zipfile
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config
from spikecast.errors import ArtifactError, DataError, MissingExtraError, ModelError
from spikecast.hardware import Events, load_events, record_events, stream_events
from spikecast.hardware.events import recording as recording_module
from spikecast.hardware.events.files import MAX_HEADER, arrays_of
from spikecast.hardware.events.stream import COLUMNS, Sender, joined
from spikecast.storage import child

T = 3


class Net(nn.Module):
    """Images in layers of shape (C, H, W), then tokens of shape (N, D), then a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.line, self.head = nn.Conv2d(2, 3, 3), nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x):
        y = self.conv(x).relu().flatten(2).transpose(1, 2)
        return self.head(nn.functional.gelu(self.line(y)).mean(1))


@pytest.fixture(scope="module", params=[1, 3], ids=["one spike", "bursts"])
def network(request) -> tuple[spikecast.SpikingNetwork, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(3, 2, 6, 5)
    config = Config(num_steps=T, num_levels=4, burst=request.param, thresholds="quantile")
    return spikecast.convert(Net().eval(), [x], config), x


@pytest.fixture(scope="module")
def events(network) -> Events:
    snn, x = network
    return record_events(snn, x)


def dense(events: Events, layer: int) -> np.ndarray:
    """Signed levels [T, burst, samples, ...] of a layer, put back by address, those of a neuron in order."""
    sender, c = events.senders[layer], events.columns
    mine = c["layer"] == layer
    found = np.zeros((events.num_steps, sender.burst, events.samples, *sender.shape), np.int8)
    for t, b, ch, y, x, level in zip(
        *(c[k][mine].astype(int) for k in ("t", "sample", "channel", "y", "x", "level")), strict=True
    ):
        place = (ch, y, x) if len(sender.shape) == 3 else (x, ch) if len(sender.shape) == 2 else (ch,)
        pulse = np.count_nonzero(found[(t - 1, slice(None), b, *place)])
        found[(t - 1, pulse, b, *place)] = level
    return found


def test_events_are_what_was_recorded(network, events) -> None:
    snn, x = network
    assert [len(s.shape) for s in events.senders] == [3, 1]  # gelu is averaged before the head
    assert (events.coding, events.num_steps, events.samples) == ("differential", T, 3)
    assert len(events)
    for i, (name, recorded) in enumerate(snn.record(x).items()):
        assert events.senders[i].name == name
        assert events.senders[i].burst == recorded.levels.shape[1] == snn.config.burst
        assert np.array_equal(dense(events, i), recorded.levels.numpy())


def test_events_are_in_the_order_in_which_they_are_fired(network, events) -> None:
    """By step, layer and sample; there the first pulses of all neurons, by place, then the second ones, and so on."""
    snn, x = network
    recorded, expected = [r.levels.numpy() for r in snn.record(x).values()], []
    for t, layer, sample in product(range(T), range(len(recorded)), range(events.samples)):
        levels = recorded[layer][t, :, sample].reshape(snn.config.burst, -1)
        pulse, place = np.nonzero(levels)
        addresses = zip(*events.senders[layer].address(place), levels[pulse, place], strict=True)
        expected += [(t + 1, layer, sample, *address) for address in addresses]
    assert events.records().tolist() == expected
    assert (len(events) > len({event[:-1] for event in expected})) == (snn.config.burst > 1)


def test_a_burst_by_hand() -> None:
    """1.375 = 1 + 1/2 - 1/8, 1.25 = 1 + 1/4, 0.5: levels 1, 1, 2 of the first pulses, 2 and 3, then -4."""
    x = torch.tensor([[1.375, 1.25, 0.5]])
    first = nn.Linear(3, 3, bias=False)
    nn.init.eye_(first.weight)
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(3, 1)).eval()
    snn = spikecast.convert(model, [x], Config(num_steps=1, num_levels=4, burst=4))
    snn.set_thresholds({name: torch.ones_like(t) for name, t in snn.thresholds.items()})
    found = record_events(snn, x)
    assert found.columns["channel"].tolist() == [0, 1, 2, 0, 1, 0]
    assert found.columns["level"].tolist() == [1, 1, 2, 2, 3, -4]


def test_values_are_levels_times_thresholds(network, events) -> None:
    snn, x = network
    name = events.senders[0].name
    before = torch.zeros(())
    for t, estimates in enumerate(snn.record(x)[name].estimates, 1):
        sent = np.zeros(events.senders[0].shape).reshape(-1)
        for flat, levels in events.at(t).pulses_of(0, 1):
            sent[flat] += events.senders[0].values(flat, levels)
        moved = torch.from_numpy(sent.reshape(events.senders[0].shape)) / t
        assert torch.allclose(before + moved, estimates[1].double(), atol=1e-6)
        before = estimates[1].double()


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 4, 5), 0), ((4, 3), 1), ((7,), 0), ((7,), None), ((2, 3, 4, 5), 1), ((), None)]
)
def test_addresses(shape, axis) -> None:
    sender = Sender("x", shape, axis, 1, 1, np.ones(()))
    flat = np.arange(int(np.prod(shape)))
    address = sender.address(flat)
    assert np.array_equal(sender.flat(*address), flat)
    assert len(set(zip(*(a.tolist() for a in address), strict=True))) == len(flat)
    assert all(a.max() < size for a, size in zip(address, sender.extents, strict=True))
    if axis is not None:
        assert np.array_equal(address[0], np.indices(shape)[axis].reshape(-1))


def test_stream_is_the_same_step_by_step(network, events, monkeypatch) -> None:
    snn, x = network
    monkeypatch.setattr(recording_module, "_CHUNK", 2)
    parts = list(stream_events(snn, x))
    assert [set(p.columns["t"].tolist()) for p in parts] == [{1}, {2}, {3}]
    whole = joined(parts)
    assert all(np.array_equal(whole.columns[n], events.columns[n]) for n in COLUMNS)


@pytest.mark.parametrize("suffix", ["npz", "h5", "hdf5"])
def test_files(events, tmp_path: Path, suffix) -> None:
    path = tmp_path / f"run.{suffix}"
    events.save(path)
    assert os.listdir(tmp_path) == [path.name]
    again = load_events(path)
    for name, kind in COLUMNS.items():
        assert np.array_equal(again.columns[name], events.columns[name])
        assert again.columns[name].dtype.str == kind
    for a, b in zip(again.senders, events.senders, strict=True):
        assert replace(a, threshold=b.threshold) == b
        assert np.array_equal(a.threshold, b.threshold)
    assert (again.coding, again.num_steps, again.samples) == (events.coding, events.num_steps, events.samples)
    if suffix == "npz":
        with np.load(path, allow_pickle=False) as stock:
            assert np.array_equal(stock["t"], events.columns["t"])
    else:
        import h5py

        with h5py.File(path) as stock:
            assert np.array_equal(stock["level"][...], events.columns["level"])


def test_no_events(events, tmp_path) -> None:
    none = events.select(slice(0, 0))
    none.save(tmp_path / "none.npz")
    assert len(load_events(tmp_path / "none.npz")) == 0
    none.write_csv(tmp_path / "none.csv")
    assert (tmp_path / "none.csv").read_text() == "t,layer,sample,channel,y,x,level,pulse\n"


def test_views(events, tmp_path) -> None:
    records = events.records()
    assert records.dtype.names == tuple(COLUMNS)
    assert np.array_equal(records["level"], events.columns["level"])
    tonic = events.tonic(events.senders[0].name)
    assert tonic.dtype.names[:4] == ("x", "y", "t", "p")
    assert np.array_equal(tonic["p"] == 1, tonic["level"] > 0)
    assert len(tonic) + len(events.tonic(1)) == len(events.tonic()) == len(events)
    with pytest.raises(DataError, match="no layer is called 'nobody'"):
        events.tonic("nobody")
    events.write_csv(tmp_path / "run.csv")
    rows = list(csv.DictReader((tmp_path / "run.csv").read_text().splitlines()))
    assert [int(r["level"]) for r in rows] == events.columns["level"].tolist()
    neurons = [tuple(row.values())[:6] for row in rows]  # t, layer, sample, channel, y, x
    assert [int(r["pulse"]) for r in rows] == [neurons[: i + 1].count(neuron) for i, neuron in enumerate(neurons)]


def test_only_networks_are_recorded() -> None:
    with pytest.raises(ModelError, match="whole SpikingNetwork and was given Linear"):
        record_events(cast(Any, nn.Linear(2, 2)), torch.ones(1, 2))


# -- files that are not ours


def written(events: Events, path: Path, change=lambda arrays: None, members=lambda names: names) -> Path:
    """A file whose arrays or header were changed after all checks of the writer."""
    arrays = {name: array.copy() for name, array in arrays_of(events).items()}
    change(arrays)
    np.savez_compressed(path, **members(arrays))
    return path


def with_header(**changes):
    def change(arrays) -> None:
        header = json.loads(arrays["header"].tobytes())
        for key, value in changes.items():
            header.update({key: value}) if value is not None else header.pop(key)
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)

    return change


def with_layer(**changes):
    def change(arrays) -> None:
        header = json.loads(arrays["header"].tobytes())
        header["layers"][0].update(changes)
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)

    return change


def with_column(name, value, row=0):
    def change(arrays) -> None:
        arrays[name][row] = value

    return change


def swapped(arrays) -> None:
    for name in COLUMNS:
        arrays[name][[0, 1]] = arrays[name][[1, 0]]


def doubled(arrays) -> None:
    for name in COLUMNS:
        arrays[name][1] = arrays[name][0]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (with_header(format="other"), "not that of spikecast events"),
        (with_header(version=1), "its version is 1, this spikecast reads 2"),
        (with_header(version=0), "its version is 0"),
        (with_header(version=True), r"Expected `int`, got `bool` - at `\$.version`"),
        (with_header(coding="morse"), r"Invalid enum value \'morse\' - at `\$.coding`"),
        (with_header(samples=None), "missing required field `samples`"),
        (with_header(extra=1), "unknown field `extra`"),
        (with_header(num_steps=10**6), r"Expected `int` <= 4096 - at `\$.num_steps`"),
        (with_header(events=3), "declares"),
        (with_header(events=10**9), "1000000000 events, more than there can be"),
        (with_header(layers=[]), "more than there can be"),
        (with_header(samples=1), "more than there can be|sample that there is not"),
        (with_layer(shape=[2**20, 2**20, 2**20]), "too large"),
        (with_layer(shape=[-1]), r"Expected `int` >= 1 - at `\$.layers\[0\].shape\[0\]`"),
        (with_layer(axis=3), "lacks its axis"),
        (with_layer(num_levels=99), r"Expected `int` <= 14 - at `\$.layers\[0\].num_levels`"),
        (with_layer(burst=15), r"Expected `int` <= 14 - at `\$.layers\[0\].burst`"),
        (with_layer(burst=0), r"Expected `int` >= 1 - at `\$.layers\[0\].burst`"),
        (with_layer(threshold=[7]), "do not fit"),
        (with_layer(name=["a"]), r"Expected `str`, got `array` - at `\$.layers\[0\].name`"),
        (with_column("t", 0), "a step, a layer or a sample"),
        (with_column("t", 4, -1), "a step, a layer or a sample"),
        (with_column("layer", 9, -1), "a step, a layer or a sample"),
        (with_column("sample", 3, -1), "a step, a layer or a sample"),
        (with_column("x", 77), "lies outside"),
        (with_column("level", 0), "a level that there is not"),
        (with_column("level", -128), "a level that there is not"),
        (with_column("thresholds", float("nan")), "not positive and finite"),
        (with_column("thresholds", -1.0), "not positive and finite"),
        (swapped, "out of order"),
        (doubled, "fires more than 1 times in a step, which is its burst|out of order"),
        (lambda a: a.update(t=a["t"].astype(np.uint32)), "declares|is due"),
        (lambda a: a.update(level=a["level"].astype(np.uint8)), "is due"),
        (lambda a: a.update(y=a["y"][:-1]), "is due"),
        (lambda a: a.update(more=np.ones(3)), "members are not those"),
        (lambda a: a.pop("level"), "members are not those"),
        (lambda a: a.update(header=np.frombuffer(b"[" * 5000, np.uint8)), "nested deeper than 100"),
    ],
)
def test_liars_are_refused(events, tmp_path, change, complaint) -> None:
    path = written(events, tmp_path / "lie.npz", change)
    with pytest.raises(ArtifactError, match=complaint) as caught:
        load_events(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_a_neuron_that_fires_more_often_than_its_burst_is_refused(events, tmp_path, suffix) -> None:
    """The same events as often as no burst is long; or, of bursts, those of a layer that is said to have none."""
    first, *others = events.senders
    lies = {first.burst: joined([events] * (first.burst + 1))}
    if first.burst > 1:
        lies[1] = replace(events, senders=(replace(first, burst=1), *others))
    for burst, lie in lies.items():
        lie.save(tmp_path / f"lie.{suffix}")
        said = f"{first.name}.* fires more than {burst} times in a step, which is its burst"
        with pytest.raises(ArtifactError, match=said):
            load_events(tmp_path / f"lie.{suffix}")


def test_objects_are_never_unpickled(events, tmp_path) -> None:
    written(events, tmp_path / "lie.npz", lambda a: a.update(t=np.array([print] * len(a["t"]), dtype=object)))
    with pytest.raises(ArtifactError):
        load_events(tmp_path / "lie.npz")


def test_zip_bombs_are_not_unpacked(events, tmp_path) -> None:
    """A member that declares gigabytes, one that hides them, and a file that is simply large."""
    events.save(tmp_path / "good.npz")
    with pytest.raises(ArtifactError, match="give a larger max_bytes"):
        load_events(tmp_path / "good.npz", max_bytes=100)
    with (tmp_path / "good.npz").open("ab") as file:
        file.truncate(2**40)  # a hole, which takes no room here
    with pytest.raises(ArtifactError, match="has 1099511627776 bytes, the limit is 1073741824"):
        load_events(tmp_path / "good.npz")
    path = tmp_path / "bomb.npz"
    arrays = arrays_of(events)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in arrays:
            with file.open(f"{name}.npy", "w") as member:
                member.write(b"\0" * 2**26 if name == "t" else b"")
                if name != "t":
                    np.lib.format.write_array(member, arrays[name])
    with pytest.raises(ArtifactError, match="declares 67108864 bytes"):
        load_events(path)
    content = path.read_bytes().replace((2**26).to_bytes(4, "little"), (400).to_bytes(4, "little"))
    path.write_bytes(content)
    with pytest.raises(ArtifactError):
        load_events(path)


def test_other_files(tmp_path) -> None:
    for content in (b"", b"PK", b"PK\x03\x04" * 20, b"\x89HDF\r\n\x1a\n" * 99, b"t,layer\n1,2\n", b"\x80\x04."):
        path = tmp_path / "x"
        path.write_bytes(content)
        with pytest.raises(ArtifactError) as caught:
            load_events(path)
        assert "\n" not in str(caught.value)
    for path in (tmp_path, tmp_path / "nothing", "a\0b", "/dev/zero"):
        with pytest.raises(ArtifactError):
            load_events(path)


def test_damaged_hdf5_is_refused(events, tmp_path) -> None:
    path = tmp_path / "run.h5"
    events.save(path)
    with h5py.File(path, "r+") as file:
        file["level"][0] = -file["level"][0]
    with pytest.raises(ArtifactError, match=r"run\.h5 holds no events that can be read: its checksum does not match"):
        load_events(path)
    with h5py.File(path, "r+") as file:
        del file["level"]
        file["level"] = h5py.ExternalLink("/etc/passwd", "/level")
    with pytest.raises(ArtifactError, match="it lacks 'level'"):
        load_events(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ArtifactError, match=r"run\.h5 holds no events that can be read: OSError: .*truncated"):
        load_events(path)


def test_what_kills_the_library_kills_its_own_process_only(events, tmp_path, monkeypatch) -> None:
    """A reader that crashes, one that needs too long, and one that would unpack more than is allowed."""
    path = tmp_path / "run.h5"
    events.save(path)
    script = tmp_path / "reader.py"
    monkeypatch.setattr(child, "__file__", str(script))
    script.write_text("import os\nos.abort()\n")
    with pytest.raises(ArtifactError, match=r"run\.h5 .*reading it ended the reader with signal 6$"):
        load_events(path)
    script.write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setattr(child, "TIMEOUT", 0.5)
    with pytest.raises(ArtifactError, match=r"run\.h5 .*takes more than 0\.5 s to read$"):
        load_events(path)
    monkeypatch.undo()
    with h5py.File(path, "r+") as file:
        del file["t"]
        file.create_dataset("t", (2**40,), "<u2", compression="gzip")  # takes no room in the file
    with pytest.raises(ArtifactError, match=f"its arrays take more than {2**30 + MAX_HEADER} bytes$"):
        load_events(path)


def test_without_h5py(events, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"spikecast\[nir\]"):
        events.save(tmp_path / "run.h5")
    assert os.listdir(tmp_path) == []


def test_nowhere_to_write(events, tmp_path) -> None:
    with pytest.raises(ArtifactError, match="not written"):
        events.save(tmp_path / "no" / "such" / "run.npz")
