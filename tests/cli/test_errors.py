"""Mistakes on the command line: one clear line, exit 1 (2 for wrong usage), and no file left half-written."""

from __future__ import annotations

import builtins
import errno
import os
import resource
import signal
import time
from pathlib import Path

import pytest

COMMON = ["--trust", "--size", "16", "--batch-size", "4"]
IMAGES = ["net.py:net", "--data", "imagefolder:images", *COMMON]
DIGITS = ["demo:cnn", "--data", "demo:digits", "--thresholds", "quantile", "-T", "1", "--limit", "8"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["eval", "net.py:net", "--data", "imagefolder:images"], "--trust"),
        (["eval", "timm:no_such", "--data", "imagefolder:images"], "timm has no model"),
        (["eval", "torchvision:resnet19", "--data", "imagefolder:images"], "did you mean resnet1"),
        (["eval", "resnet18", "--data", "imagefolder:images"], "give timm:NAME"),
        (["eval", "demo:cnn", "--data", "mine.npz"], "FILE.py:FUNCTION for data of your own: a function that yields"),
        (["inspect", "demo:rnn"], "no demo network 'rnn'; take one of cnn, vit, llm, tones"),
        (["inspect", "no.py:net", "--trust"], "there is no file no.py"),
        (["inspect", "net.py:nothing", "--trust"], "has no function 'nothing'"),
        (["inspect", "net.py:clumsy", "--trust"], "ValueError: no such thing, line 17 of"),
        (["inspect", "net.py:sick", "--trust"], "weight '0.weight' holds NaN or inf"),
        (["inspect", "net.py:batches", "--trust"], "the function must return a torch.nn.Module"),
        (["inspect", "net.py:net", "--trust", "--shape", "3,x"], "--shape 3,x: give whole numbers above 0"),
        (["inspect", "net.py:net", "--trust", "--shape", "3"], "cannot take the call"),
        (["inspect", "net.py:net", "--trust", "--of", "demo:cnn"], "--of demo:cnn goes with a FILE.spikecast"),
        (["inspect", "no.spikecast"], "there is no file no.spikecast"),
        (["inspect", "no.pt2"], "there is no program no.pt2"),
        (["eval", "net.py:net", "--data", "imagefolder:nowhere", "--trust"], "there is no folder nowhere"),
        (["eval", "net.py:net", "--data", "photos:images", "--trust"], "give KIND:DIR"),
        (["eval", "demo:cnn", "--data", "demo:letters"], "or one of demo:digits, demo:text, demo:tones"),
        (["eval", "net.py:net", "--data", "net.py:nothing", "--trust"], "has no function 'nothing'"),
        (["eval", *IMAGES, "-T", "0"], "num_steps=0"),
        (["eval", *IMAGES, "--set", "signed=perhaps"], "signed='perhaps' is not a bool"),
        (["eval", *IMAGES, "--set", "sign"], "--set 'sign': did you mean signed? give NAME=VALUE"),
        (["eval", *IMAGES, "--set", "num_step=4"], "--set 'num_step=4': did you mean num_steps? give NAME=VALUE"),
        (["eval", *IMAGES, "--set", "xyzzy=4"], "--set 'xyzzy=4': give NAME=VALUE"),
        (["eval", *IMAGES, "--classes", "2"], "3 folders of classes for a model with 2 outputs"),
        (["eval", *IMAGES, "--device", "tpu"], "--device tpu: it is not a device; give cpu, cuda or cuda:N"),
        (["eval", *IMAGES, "--weights", "no.pt"], "--weights no.pt: there is no such file"),
        (["eval", *IMAGES, "--calibrate", "0"], "thresholds need at least one image"),
        (["eval", *IMAGES, "--limit", "0"], "--limit 0: no image would be left; give 1 or more"),
        (["eval", *IMAGES, "--mean", "a"], "--mean a: give one number, or three"),
        (["eval", *IMAGES, "--mean", "0.5"], "one number each, or three"),
        (["compare", *IMAGES, "--presets", "best"], "no preset"),
        (["reproduce", "table9", "--data", "images"], "is not one of"),
        (["reproduce", "cnn", "--data", "images", "--models", "alexnet"], "has no model 'alexnet'"),
        (["reproduce", "cnn", "--data", "images", "--pretrained", "--random-weights"], "leave one out"),
        (["sweep", *IMAGES, "--budget", "money=3"], "give energy=SHARE"),
        (["export", "demo:cnn", "--out", "x.nir"], "is not converted yet; give --data"),
        (["export", "demo:cnn", "--out", "x.pdf"], "must end in one of .nir"),
        (["export", "demo:cnn", "--out", "x.nir", "--check", "nengo"], "importer='nengo' must be one of 'snntorch'"),
        (["export", "demo:cnn", "--out", "x.npz", "--check", "snntorch"], "is for events; leave it out"),
    ],
)
def test_mistakes_are_one_line(cli, words: list[str], message: str) -> None:
    done = cli(*words)
    assert done.code == 1
    assert done.complaint.startswith("spikecast: ")
    assert message in done.complaint


def test_wrong_usage_is_another_exit_code(cli) -> None:
    assert cli("eval").code == 2
    assert cli("evaluate").code == 2
    assert cli("eval", *IMAGES, "--steps", "many").code == 2


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("timm", ["inspect", "timm:resnet18"], "vision"),
        ("torchvision", ["inspect", "torchvision:resnet18"], "vision"),
        ("transformers", ["inspect", "hf:gpt2"], "transformers"),
        ("PIL", ["eval", *IMAGES], "vision"),
        ("sklearn", ["demo"], "demo"),
        ("sklearn", ["eval", "demo:cnn", "--data", "demo:digits"], "demo"),
    ],
)
def test_a_missing_package_names_its_extra(
    cli, monkeypatch: pytest.MonkeyPatch, package: str, words: list[str], extra: str
) -> None:
    found = builtins.__import__

    def refuse(name: str, *args, **kwargs):
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    done = cli(*words)
    assert done.code == 1
    assert f'pip install "spikecast[{extra}]"' in done.complaint


def full(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def forbidden(*args, **kwargs):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize(("broken", "message"), [(full, "No space left on device"), (forbidden, "Permission denied")])
def test_a_network_that_cannot_be_written(cli, home: Path, monkeypatch: pytest.MonkeyPatch, broken, message) -> None:
    (home / "old").mkdir(exist_ok=True)
    (home / "old" / "net.spikecast").write_text("as it was")
    monkeypatch.setattr("spikecast.storage.files.os.replace", broken)
    done = cli("convert", *DIGITS, "--out", "old/net.spikecast")
    assert done.code == 1
    assert message in done.complaint
    assert [p.name for p in (home / "old").iterdir()] == ["net.spikecast"]
    assert (home / "old" / "net.spikecast").read_text() == "as it was"


@pytest.mark.parametrize(("broken", "message"), [(full, "No space left on device"), (forbidden, "Permission denied")])
def test_a_result_that_cannot_be_written(cli, home: Path, monkeypatch: pytest.MonkeyPatch, broken, message) -> None:
    monkeypatch.setattr("spikecast.storage.files.os.fsync", broken)
    done = cli("eval", *DIGITS, "--out", "results/found.json")
    assert done.code == 1
    assert f"results/found.json is not written: {message}; nothing was changed" in done.complaint
    assert not (home / "results").exists()  # the folder that was made for it is gone too


def test_a_folder_where_the_file_should_go(cli, home: Path) -> None:
    (home / "taken" / "file").mkdir(parents=True, exist_ok=True)
    done = cli("eval", *DIGITS, "--out", "taken/file")
    assert "--out taken/file: it is a folder; give the name of a file" in done.complaint
    (home / "taken" / "net.spikecast").mkdir(exist_ok=True)
    done = cli("convert", *DIGITS, "--out", "taken/net.spikecast")
    assert "--out taken/net.spikecast: it is a folder; give the name of a file" in done.complaint
    assert sorted(p.name for p in (home / "taken").iterdir()) == ["file", "net.spikecast"]


def test_a_truncated_network(cli, home: Path) -> None:
    assert cli("convert", *DIGITS, "--out", "whole.spikecast").code == 0
    data = (home / "whole.spikecast").read_bytes()
    for size in (0, 5, 1000, len(data) - 1):
        (home / "cut.spikecast").write_bytes(data[:size])
        done = cli("eval", "cut.spikecast", "--data", "demo:digits")
        assert done.code == 1
        assert done.complaint.startswith("spikecast: cut.spikecast is ")
    done = cli("eval", "whole.spikecast", "--data", "demo:digits", "--levels", "2", "--coding", "rate")
    assert "whole.spikecast has its own num_levels, coding" in done.complaint
    for command in ("compare", "sweep"):
        assert "is converted already" in cli(command, "whole.spikecast", "--data", "demo:digits").complaint


def test_a_disk_that_fills_up_for_real(start_cli, home: Path) -> None:
    """The system itself refuses to let a file grow: nothing of it is left."""
    (home / "small").mkdir()

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    job = start_cli("convert", *DIGITS, "--out", "small/net.spikecast", covered=False, preexec_fn=limited)
    _, err = job.communicate(timeout=300)
    assert job.returncode == 1, err
    assert "small/net.spikecast is not written" in err.strip().splitlines()[-1]
    assert "Traceback" not in err
    assert list((home / "small").iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_result_that_cannot_be_printed(start_cli) -> None:
    with open("/dev/full", "w") as full_disk:
        job = start_cli("doctor", "--json", stdout=full_disk)
        _, err = job.communicate(timeout=300)
    assert job.returncode == 1
    assert err.strip() == "spikecast: No space left on device"


def test_ctrl_c_leaves_nothing(start_cli, home: Path) -> None:
    (home / "stopped").mkdir()
    words = ["demo:vit", "--data", "demo:digits", "-T", "64", "--out", "stopped/found.json"]
    # a shell that starts the tests in the background lets them ignore SIGINT, and children inherit that
    job = start_cli("eval", *words, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert job.stderr.readline() == "loading demo:vit\n"
    assert "449 images" in job.stderr.readline()  # it is at work
    time.sleep(0.5)
    job.send_signal(signal.SIGINT)
    out, err = job.communicate(timeout=300)
    assert job.returncode == 130
    assert (out, err.strip()) == ("", "spikecast: stopped")
    assert list((home / "stopped").iterdir()) == []
