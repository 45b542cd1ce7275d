"""Networks on the Hugging Face Hub; a stand-in answers for it."""

from __future__ import annotations

import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch
from torch import nn

from spikecast import convert, load
from spikecast.errors import ArtifactError, MissingExtraError


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the hub."""

    def download(repository: str, file: str) -> str:
        found = tmp_path / repository / file
        if not found.exists():
            raise FileNotFoundError(f"404: {repository} has no {file}\nand more")
        return str(found)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return tmp_path


def test_a_network_of_the_hub(hub: Path) -> None:
    x = torch.randn(4, 6)
    snn = convert(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).eval(), [x])
    (hub / "me" / "nets" / "small").mkdir(parents=True)
    snn.save(hub / "me" / "nets" / "small" / "net.spikecast")
    assert torch.equal(load("hub://me/nets/small/net.spikecast")(x), snn(x))


def test_what_is_not_there(hub: Path) -> None:
    with pytest.raises(
        ArtifactError, match=r"hub://me/nets/none.spikecast could not be fetched \(404: .*hf auth login"
    ):
        load("hub://me/nets/none.spikecast")
    for name in ("hub://", "hub://me", "hub://me/nets", "hub://me/nets/"):
        with pytest.raises(ArtifactError, match=r"names no file of the hub; give hub://user/repo/file\.spikecast"):
            load(name)


def test_the_same_checks(hub: Path) -> None:
    (hub / "me" / "nets").mkdir(parents=True)
    (hub / "me" / "nets" / "bad.spikecast").write_bytes(b"PK\x03\x04 no network")
    with pytest.raises(ArtifactError):
        load("hub://me/nets/bad.spikecast")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'spikecast\[hub\]'"):
        load("hub://me/nets/net.spikecast")
