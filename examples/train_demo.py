"""Train the networks of the demo, as they are in src/spikecast/sources/demo; some minutes each on one core.

    OMP_NUM_THREADS=1 python examples/train_demo.py --model llm --model tones --out somewhere

Seeds, splits and the number of threads are fixed: the same torch on the same kind of processor writes the same files.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from spikecast.sources.demo import DATA, NETWORKS
from spikecast.sources.demo.text import encode, paragraphs

HOME = Path(__file__).resolve().parents[1] / "src" / "spikecast" / "sources" / "demo"
Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Recipe:
    """How a network is trained; `change` makes other samples out of those of a batch."""

    epochs: int
    change: Change
    batch: int = 64
    rate: float = 3e-3
    smoothing: float = 0.05
    kept_as: torch.dtype = torch.float16


def moved(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Each image shifted by up to one pixel in each direction, and a little lighter or darker."""
    wide = F.pad(images, (1, 1, 1, 1))
    rows, columns = torch.randint(0, 3, (2, len(images)))
    shifted = torch.stack([x[:, r : r + 8, c : c + 8] for x, r, c in zip(wide, rows, columns, strict=True)])
    return (shifted * (0.9 + 0.2 * torch.rand(len(images), 1, 1, 1))).clamp(0, 1), labels


def elsewhere(tokens: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    """As many windows of the training text, each from any letter on."""
    stream = training_text()
    size = tokens.shape[1]
    starts = torch.randint(len(stream) - size, (len(tokens), 1)) + torch.arange(size)
    return stream[starts], stream[starts + 1]


@cache
def training_text() -> Tensor:
    return encode("\n" + "\n".join(paragraphs("train")))


def blurred(spectra: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Each sound up to two semitones higher or lower, with a little noise."""
    moves = torch.randint(-2, 3, (len(spectra),)).tolist()
    rolled = torch.stack([x.roll(move, -1) for x, move in zip(spectra, moves, strict=True)])
    return (rolled + 0.02 * torch.randn_like(rolled)).clamp_min(0), labels


RECIPES = {
    "cnn": Recipe(60, moved, kept_as=torch.float32),
    "vit": Recipe(250, moved, kept_as=torch.float32),
    "llm": Recipe(80, elsewhere, rate=5e-3, smoothing=0.0),
    "tones": Recipe(40, blurred),
}


def train(model: nn.Module, inputs: Tensor, targets: Tensor, recipe: Recipe) -> None:
    """AdamW with one cycle of the learning rate."""
    batches = -(-len(inputs) // recipe.batch)
    optimiser = torch.optim.AdamW(model.parameters(), recipe.rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.rate, total_steps=recipe.epochs * batches)
    model.train()
    for epoch in range(recipe.epochs):
        total = 0.0
        for index in torch.randperm(len(inputs)).split(recipe.batch):
            optimiser.zero_grad()
            x, y = recipe.change(inputs[index], targets[index])
            loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten(), label_smoothing=recipe.smoothing)
            loss.backward()
            optimiser.step()
            schedule.step()
            total += float(loss.detach())
        if epoch % 10 == 9:
            print(f"  epoch {epoch + 1}: loss {total / batches:.3f}", flush=True)
    model.eval()


def loaded(name: str, split: str) -> tuple[Tensor, Tensor]:
    """Inputs and targets; pixels in 0..1."""
    data = DATA[NETWORKS[name].data]
    inputs, targets = data.make(split)
    return (inputs if data.is_ready else inputs / 255), targets


@torch.no_grad()
def judged(model: nn.Module, inputs: Tensor, targets: Tensor) -> str:
    """How good it is on what was held out."""
    scores, targets = model(inputs).flatten(0, -2), targets.flatten()
    right = float((scores.argmax(-1) == targets).float().mean())
    perplexity = math.exp(float(F.cross_entropy(scores, targets)))
    return f"{right:.2%} right of {len(targets)} held out, perplexity {perplexity:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=list(RECIPES), help="which; all unless given")
    parser.add_argument("--epochs", type=int, help="other than in the recipe, to try it")
    parser.add_argument("--out", type=Path, default=HOME, help="folder for the weights")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in given.model or RECIPES:
        recipe, path = RECIPES[name], given.out / f"{name}.safetensors"
        recipe = replace(recipe, epochs=given.epochs or recipe.epochs)
        torch.manual_seed(0)
        model = NETWORKS[name].build()
        print(f"{name}: {sum(p.numel() for p in model.parameters())} weights", flush=True)
        train(model, *loaded(name, "train"), recipe)
        weights = {k: v.to(recipe.kept_as) if v.is_floating_point() else v for k, v in model.state_dict().items()}
        save_file({k: v.contiguous() for k, v in weights.items()}, path)
        model.load_state_dict(weights)  # judged as it is kept
        print(f"{name}: {judged(model, *loaded(name, 'val'))}; written to {path}", flush=True)


if __name__ == "__main__":
    main()
