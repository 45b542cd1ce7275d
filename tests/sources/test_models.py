"""Models by name, their preparation, and weights that fit or do not."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from spikecast.errors import ConfigError, DataError, MissingExtraError, ModelError
from spikecast.sources import Preparation
from spikecast.sources.models import load_weights, open_model


def test_torchvision() -> None:
    found = open_model("torchvision:resnet18", options={"num_classes": 7})
    assert not found.model.training
    assert found.model.get_parameter("fc.weight").shape[0] == 7
    assert (found.task, found.regions) == ("classification", None)
    p = found.preparation
    assert (p.size, round(p.size / p.crop), p.interpolation) == (224, 256, "bilinear")


def test_classes_have_the_names_that_a_publisher_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are not fetched here: what asks for the publisher's own gets the same model with random ones."""
    torchvision, made = pytest.importorskip("torchvision"), pytest.importorskip("timm").create_model
    build = torchvision.models.get_model
    monkeypatch.setattr("torchvision.models.get_model", lambda name, *, weights, **rest: build(name, **rest))
    monkeypatch.setattr("timm.create_model", lambda name, *, pretrained, **rest: made(name, **rest))
    for spec in ("torchvision:resnet18", "timm:resnet18"):
        assert open_model(spec, pretrained=True).classes[:2] == ("tench", "goldfish")
        assert open_model(spec, pretrained=True, options={"num_classes": 7}).classes == ()
        assert open_model(spec).classes == ()  # random weights know no classes


def test_timm_brings_its_own_preparation() -> None:
    found = open_model("timm:vit_tiny_patch16_224", options={"depth": 1})
    assert found.preparation.size == 224
    assert found.preparation.mean == (0.5, 0.5, 0.5)
    assert found.preparation.interpolation == "bicubic"
    assert not found.preparation.squash
    assert round(224 / found.preparation.crop) == 248  # 224 / 0.9 = 248.9: timm rounds down
    squashed = open_model("timm:eva02_base_patch14_448", options={"depth": 1, "embed_dim": 48, "num_heads": 2})
    assert (squashed.preparation.size, squashed.preparation.crop, squashed.preparation.squash) == (448, 1.0, True)


def test_detectors_and_segmenters_know_their_task() -> None:
    fcn = open_model("torchvision:fcn_resnet50", options={"num_classes": 3})
    assert (fcn.task, fcn.preparation.size) == ("segmentation", 520)
    fcos = open_model("torchvision:fcos_resnet50_fpn", options={"num_classes": 3})
    assert (fcos.task, fcos.regions, fcos.preparation.size) == ("detection", ("backbone", "head"), None)


def test_a_factory_needs_trust(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "from torch import nn\ndef net(width=3):\n    return nn.Linear(width, 2)\ndef no():\n    return 1\n"
    )
    with pytest.raises(ConfigError, match="--trust"):
        open_model(f"{file}:net")
    assert open_model(f"{file}:net", trust=True, options={"width": 5}).model.in_features == 5
    with pytest.raises(ModelError, match="made a int"):
        open_model(f"{file}:no", trust=True)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("timm:vit_tiny_patch16_225", "did you mean vit_tiny_patch16_224"),
        ("torchvision:resnet19", "did you mean resnet1"),
        ("keras:resnet", "give timm:NAME, torchvision:NAME"),
        ("resnet18", "give timm:NAME"),
        ("net.pth", r"a file of weights goes with its model: FILE.py:FACTORY --weights net.pth$"),
    ],
)
def test_names_of_nothing(spec: str, message: str) -> None:
    with pytest.raises((ModelError, ConfigError), match=message):
        open_model(spec)


MISSING = ModuleNotFoundError("No module named 'torchvision'", name="torchvision")


@pytest.mark.parametrize("spec", ["timm:resnet18", "torchvision:resnet18"])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MISSING, r'needs torchvision; pip install "spikecast\[vision\]"$'),
        (RuntimeError("operator torchvision::nms does not exist\nand more"), "torchvision::nms does not exist"),
        (OSError("libc10_cuda.so: cannot open"), "libc10_cuda"),
        (ImportError("undefined symbol", name="torchvision._C"), "undefined symbol"),
        (AttributeError("partially initialized module 'torchvision'"), "partially initialized"),
    ],
)
def test_a_torchvision_that_is_missing_or_does_not_fit(
    spec: str, error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """timm imports it too, and is not to blame for it."""
    found = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] in ("timm", "torchvision"):
            raise error
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=message) as told:
        open_model(spec)
    assert "\n" not in str(told.value)
    if error is not MISSING:
        package = spec.partition(":")[0]
        assert f"model {spec} needs {package}, which cannot be imported ({type(error).__name__}: " in str(told.value)
        assert f"torchvision does not fit torch {torch.__version__}; install both from the same index" in str(
            told.value
        )


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize("form", ["safetensors", "plain", "nested", "parallel"])
def test_weights_are_loaded(model: nn.Module, form: str, tmp_path: Path) -> None:
    wanted = {name: torch.randn_like(value) for name, value in model.state_dict().items()}
    path = tmp_path / ("w.safetensors" if form == "safetensors" else "w.pt")
    if form == "safetensors":
        save_file(wanted, path)
    else:
        named = {f"module.{n}": v for n, v in wanted.items()} if form == "parallel" else wanted
        torch.save({"state_dict": named, "epoch": 3} if form == "nested" else named, path)
    load_weights(model, path)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in wanted.items())


def test_weights_that_do_not_fit(model: nn.Module, tmp_path: Path) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    path = tmp_path / "w.safetensors"
    save_file({**before, "2.weight": torch.zeros(3, 4), "2.bias": torch.zeros(3)}, path)
    with pytest.raises(ModelError, match=r"2.bias is \(3,\) there and \(2,\) in the model"):
        load_weights(model, path)
    save_file({"0.weight": before["0.weight"], "9.weight": torch.zeros(1)}, path)
    with pytest.raises(ModelError, match=r"lacks 0.bias.*has 9.weight besides \(3 missing, 1 too many\)"):
        load_weights(model, path)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(DataError, match="cannot be read as weights"):
        load_weights(model, path)
    with pytest.raises(DataError, match="there is no weights file"):
        load_weights(model, tmp_path / "none.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(DataError, match="does not hold weights by name"):
        load_weights(model, tmp_path / "list.pt")
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())


class Evil:
    def __reduce__(self):
        return (print, ("ran",))


def test_a_checkpoint_runs_no_code(model: nn.Module, tmp_path: Path, capsys) -> None:
    torch.save({"x": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(DataError, match="cannot be read as weights"):
        load_weights(model, tmp_path / "evil.pt")
    assert "ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("dims", "size", "channels"),
    [
        ((2, 1, 28, 28), 28, 1),
        ((None, 3, 32, 32), 32, 3),
        ((2, 3, None, None), 224, 3),
        ((2, 1, 40, 101), 224, 1),  # a sound, not a square
        ((2, 3, 9000, 9000), 224, 3),
        ((2, 64), 224, 3),
        ((), 224, 3),
    ],
)
def test_what_the_sizes_of_an_input_say(dims, size: int, channels: int) -> None:
    found = Preparation.for_input(dims)
    assert (found.size, found.channels) == (size, channels)
    assert found.crop == (1.0 if size < 128 else 0.875)  # small images are shown whole
