"""Train the two networks of the demo, as they are in src/spikecast/sources/demo; some minutes on one core.

    OMP_NUM_THREADS=1 python examples/train_demo.py

Seeds, the split of the digits and the number of threads are fixed: the same torch on the same kind of processor writes
the same files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from spikecast.sources.demo import NETWORKS
from spikecast.sources.digits import digits

HOME = Path(__file__).resolve().parents[1] / "src" / "spikecast" / "sources" / "demo"
EPOCHS = {"cnn": 60, "vit": 250}


def moved(images: Tensor) -> Tensor:
    """Each image shifted by up to one pixel in each direction, and a little lighter or darker."""
    wide = F.pad(images, (1, 1, 1, 1))
    rows, columns = torch.randint(0, 3, (2, len(images)))
    shifted = torch.stack([x[:, r : r + 8, c : c + 8] for x, r, c in zip(wide, rows, columns, strict=True)])
    return (shifted * (0.9 + 0.2 * torch.rand(len(images), 1, 1, 1))).clamp(0, 1)


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> None:
    """AdamW with one cycle of the learning rate."""
    batches = -(-len(images) // 64)
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=epochs * batches)
    model.train()
    for epoch in range(epochs):
        total = 0.0
        for index in torch.randperm(len(images)).split(64):
            optimiser.zero_grad()
            loss = F.cross_entropy(model(moved(images[index])), labels[index], label_smoothing=0.05)
            loss.backward()
            optimiser.step()
            schedule.step()
            total += float(loss.detach())
        if epoch % 10 == 9:
            print(f"  epoch {epoch + 1}: loss {total / batches:.3f}", flush=True)
    model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HOME, help="folder for the weights")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    train_x, train_y = digits("train")
    test_x, test_y = digits("val")
    for name, build in NETWORKS.items():
        torch.manual_seed(0)
        model = build()
        print(f"{name}: {sum(p.numel() for p in model.parameters())} weights", flush=True)
        train(model, train_x / 255, train_y, EPOCHS[name])
        with torch.no_grad():
            right = float((model(test_x / 255).argmax(1) == test_y).float().mean())
        save_file({k: v.contiguous() for k, v in model.state_dict().items()}, out / f"{name}.safetensors")
        print(f"{name}: {right:.2%} of {len(test_x)} held-out digits; written to {out / f'{name}.safetensors'}")


if __name__ == "__main__":
    main()
