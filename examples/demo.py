"""The whole job on a small scale: train two small networks, convert them, look at every time-step.

Handwritten digits that come with scikit-learn (no download), a CNN with a residual block and a small vision
Transformer, each converted with differential and with rate coding. Prints a table, saves the converted networks and
writes one HTML page.
"""

from __future__ import annotations

import argparse
import html
import json
import platform
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import spikecast

STEPS = 8
CLASSES = 10


class ResidualCNN(nn.Module):
    """Two convolutions, one residual block, one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.block = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.BatchNorm2d(16),
        )
        self.pool = nn.AvgPool2d(2)
        self.head = nn.Linear(16 * 16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = F.relu(x + self.block(x))
        return self.head(self.pool(x).flatten(1))


class SmallTransformer(nn.Module):
    """Sixteen patches of 2x2 pixels, two encoder layers with GELU, mean over tokens."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, width, 2, stride=2)
        self.position = nn.Parameter(torch.randn(1, 16, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.position
        return self.head(self.encoder(tokens).mean(1))


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images [N, 1, 8, 8] in 0..1 with their labels."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    return images[:1297], labels[:1297], images[1297:], labels[1297:]


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int = 30) -> nn.Module:
    """A few seconds of Adam."""
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for index in torch.randperm(len(images)).split(64):
            optimiser.zero_grad()
            F.cross_entropy(model(images[index]), labels[index]).backward()
            optimiser.step()
        schedule.step()
    return model.eval()


def measure(model: nn.Module, snn: spikecast.SpikingNetwork, images: Tensor, labels: Tensor) -> list[dict[str, float]]:
    """Accuracy, agreement with the ANN and spikes per neuron after each step."""
    with torch.no_grad():
        ann = model(images).argmax(1)
    answers = snn.run(images).argmax(-1)
    fired = [recorded.levels != 0 for recorded in snn.record(images).values()]
    neurons = sum(f[0].numel() for f in fired)
    rows, spikes = [], 0
    for t in range(STEPS):
        spikes += sum(int(f[t].sum()) for f in fired)
        rows.append(
            {
                "accuracy": float((answers[t] == labels).float().mean()),
                "agreement": float((answers[t] == ann).float().mean()),
                "spikes": spikes / neurons,
            }
        )
    return rows


def print_table(name: str, accuracy: float, results: dict[str, list[dict[str, float]]]) -> None:
    print(f"\n{name}: ANN accuracy {accuracy:.1%}")
    print("              " + "".join(f"  t={t + 1:<5}" for t in range(STEPS)))
    for coding, rows in results.items():
        for key, form in (("accuracy", "{:7.1%}"), ("agreement", "{:7.1%}"), ("spikes", "{:7.2f}")):
            print(f"  {coding[:4]} {key:<9}" + " ".join(form.format(row[key]) for row in rows))


def curve(rows: list[dict[str, float]], key: str, top: float, colour: str) -> str:
    points = " ".join(f"{40 + 46 * i},{180 - 160 * row[key] / top:.1f}" for i, row in enumerate(rows))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'


def chart(results: dict[str, list[dict[str, float]]], key: str, title: str) -> str:
    """One small line chart as inline SVG."""
    top = max(row[key] for rows in results.values() for row in rows) or 1.0
    colours = {"differential": "#0b6bcb", "rate": "#c2410c"}
    lines = "".join(curve(rows, key, top, colours[coding]) for coding, rows in results.items())
    ticks = "".join(f'<text x="{40 + 46 * i}" y="198">{i + 1}</text>' for i in range(STEPS))
    names = "".join(f'<text x="{44 + 130 * i}" y="14" fill="{colours[c]}">{c}</text>' for i, c in enumerate(results))
    return (
        f"<figure><figcaption>{html.escape(title)} (largest value {top:.3g})</figcaption>"
        f'<svg viewBox="0 0 400 204" role="img" aria-label="{html.escape(title)} by time-step">'
        f"{lines}{ticks}{names}</svg></figure>"
    )


def write_page(path: Path, sections: list[str]) -> None:
    style = (
        "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "body{color:#111;background:#fff}"
        "table{border-collapse:collapse}td,th{padding:.2rem .6rem;border-bottom:1px solid #8884;text-align:right}"
        "figure{display:inline-block;width:min(26rem,100%);margin:1rem 1rem 0 0}svg{width:100%}"
        "text{font-size:12px;fill:currentColor}"
        "pre{overflow:auto;font-size:13px}@media(prefers-color-scheme:dark){body{color:#eee;background:#111}}"
    )
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>spikecast demo</title><style>{style}</style><h1>spikecast demo</h1>"
        f"<p>spikecast {spikecast.__version__}, torch {torch.__version__}, Python {platform.python_version()}; made by "
        f"<code>make demo</code>.</p>{''.join(sections)}</html>"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the page and the networks")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    train_x, train_y, test_x, test_y = digits()
    sections = []
    for name, build in {"Residual CNN": ResidualCNN, "Small Transformer": SmallTransformer}.items():
        torch.manual_seed(0)
        start = time.perf_counter()
        model = train(build(), train_x, train_y)
        with torch.no_grad():
            accuracy = float((model(test_x).argmax(1) == test_y).float().mean())
        print(f"{name}: trained in {time.perf_counter() - start:.0f} s", flush=True)
        results: dict[str, list[dict[str, float]]] = {}
        for coding in ("differential", "rate"):
            config = spikecast.Config(num_steps=STEPS, num_levels=4, coding=coding)
            snn = spikecast.convert(model, train_x[:256].split(64), config)
            results[coding] = measure(model, snn, test_x, test_y)
            snn.save(out / f"{name.lower().replace(' ', '_')}_{coding}.spikecast")
        print_table(name, accuracy, results)
        print(f"  {snn.report.summary()}")
        cells = "".join(
            f"<tr><th>{c}</th>" + "".join(f"<td>{r['accuracy']:.1%}</td>" for r in rows) + "</tr>"
            for c, rows in results.items()
        )
        sections.append(
            f"<h2>{name}</h2><p>ANN accuracy {accuracy:.1%} on {len(test_x)} test digits. SNN by time-step:</p>"
            f"<table><tr><th></th>{''.join(f'<th>t={t + 1}</th>' for t in range(STEPS))}</tr>{cells}</table>"
            + chart(results, "agreement", "Agreement with the ANN")
            + chart(results, "spikes", "Spikes per neuron so far")
            + f"<details><summary>What became of each op</summary><pre>{html.escape(str(snn.report))}</pre></details>"
        )
        (out / f"{name.lower().replace(' ', '_')}.json").write_text(json.dumps({"ann": accuracy, **results}, indent=1))
    write_page(out / "demo.html", sections)
    print(f"\nWrote {out / 'demo.html'} and the converted networks beside it.")
    print("Next: your own model in six lines, see README.md; spikecast.load('out/...spikecast') reads a network back.")


if __name__ == "__main__":
    main()
