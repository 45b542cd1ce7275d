"""Small networks that come with the package, each with data of its own: nothing is downloaded.

`examples/train_demo.py` trained them. Each file of this folder has some data and the networks that read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import as_file, files

from torch import Tensor, nn

from spikecast.errors import ConfigError
from spikecast.sources.demo.digits import DIGITS, DigitCNN, DigitTransformer, digits
from spikecast.sources.demo.text import TextModel, text
from spikecast.sources.demo.tones import CHORDS, ToneNetwork, tones


@dataclass(frozen=True)
class DemoData:
    """Inputs and targets [N, ...] of a split, "train" or any other name for what is held out."""

    make: Callable[[str], tuple[Tensor, Tensor]]
    answered: str  # what a network gives an answer for each of
    task: str = "classification"
    classes: tuple[str, ...] = ()
    is_ready: bool = True  # inputs are as the network takes them; else bytes of images


@dataclass(frozen=True)
class DemoNetwork:
    """A network, the name of its data, and what it is in words."""

    build: Callable[[], nn.Module]
    data: str
    words: str


DATA = {
    "digits": DemoData(digits, "digits", classes=DIGITS, is_ready=False),
    "text": DemoData(text, "letters", "language"),
    "tones": DemoData(tones, "sounds", classes=CHORDS),
}
NETWORKS = {
    "cnn": DemoNetwork(DigitCNN, "digits", "a CNN with residual blocks, for handwritten digits"),
    "vit": DemoNetwork(DigitTransformer, "digits", "a small vision Transformer, for handwritten digits"),
    "llm": DemoNetwork(TextModel, "text", "a small language model of Llama's kind, which spells English"),
    "tones": DemoNetwork(ToneNetwork, "tones", "a convolutional network that tells chords by their sound"),
}


def demo_network(name: str) -> nn.Module:
    """One of the networks with its weights, ready to be converted."""
    if name not in NETWORKS:
        raise ConfigError(f"there is no demo network {name!r}; take one of {', '.join(NETWORKS)}")
    from safetensors.torch import load_file

    model = NETWORKS[name].build()
    with as_file(files(__name__) / f"{name}.safetensors") as path:
        model.load_state_dict(load_file(path))  # those that are kept in half precision become float32 here
    return model.eval()
