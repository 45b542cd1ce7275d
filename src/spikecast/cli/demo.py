"""spikecast demo: networks that come with the package, converted and measured; with nothing to download."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from torch import Tensor

from spikecast import distributed
from spikecast.cli import checks, common
from spikecast.cli.job import Job, open_job, save
from spikecast.cli.options import BURST, CURVE, JobOptions, JsonOption, Limit, MachineOptions, Steps, grouped
from spikecast.cli.report import built
from spikecast.config import Config
from spikecast.errors import ConfigError
from spikecast.network.base import Network
from spikecast.network.generate import generate
from spikecast.sources import Data
from spikecast.sources.demo import DATA, NETWORKS
from spikecast.sources.demo.text import decode, encode
from spikecast.text import columns

if TYPE_CHECKING:
    from spikecast.page.data import NetworkData, ReportData

USUAL = ("cnn",)
COSTS = "paper"
START = "The network "  # what the language model goes on from
NEXT = (
    ("demo --model llm --model tones", "a language model, and a network that hears chords"),
    ("inspect demo:{name}", "what each op becomes"),
    ("explain {file} --data demo:{data}", "which layers lose most"),
    ("compare demo:{name} --data demo:{data}", "beside the methods of the literature"),
    ("sweep demo:{name} --data demo:{data} --budget energy=0.3", "which settings to take"),
    ("eval torchvision:resnet18 --pretrained --data imagefolder:DIR", "your own images"),
)


@grouped
def command(
    machine: MachineOptions,
    output: JsonOption,
    model: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(NETWORKS)}; may be repeated; {', '.join(USUAL)} unless given"),
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", help="folder for the pages and the networks", callback=checks.folder_to_write),
    ] = Path("out"),
    steps: Steps = CURVE,
    levels: Annotated[int, typer.Option("--levels", "-n", help="thresholds per sign of a neuron")] = Config.num_levels,
    burst: Annotated[int, typer.Option(help=BURST)] = Config.burst,
    limit: Limit = None,
) -> None:
    """Convert small networks that come with the package, and say in plain words how close they come at what energy.

    Each is converted for one step, which is the default, and for several with differential and with rate coding. A
    page shows the three side by side; the network of one step is saved.

    \b
    spikecast demo
    spikecast demo --model vit --model llm --model tones
    spikecast demo --burst 1
    spikecast demo --steps 4 --out somewhere --json
    """
    names = list(dict.fromkeys(name for text in model or USUAL for name in common.names(text)))
    for name in names:  # said before anything is computed
        if name not in NETWORKS:
            raise ConfigError(f"there is no demo network {name!r}; take one of {', '.join(NETWORKS)}")
    usual = Config(num_levels=levels, burst=burst, seed=machine.seed)
    curve = dataclasses.replace(usual, num_steps=steps)
    configs = {"one step": usual, "differential": curve, "rate": dataclasses.replace(curve, coding="rate")}
    results: dict[str, Any] = {}
    for name in names:
        data = NETWORKS[name].data
        job = open_job(
            JobOptions(
                model=f"demo:{name}",
                data=f"demo:{data}",
                limit=limit,
                calibrate=256,
                batch_size=100,  # leaves no last batch of one sample, which would need another capture
                **vars(machine),
            )
        )
        networks = converted(job, configs)
        save(networks["one step"], out / f"{name}.spikecast")
        page = built(job, networks, title=f"spikecast demo: {NETWORKS[name].words}")
        results[name] = {n.name: figures(n) for n in page.networks} | {"ann": page.ann, "samples": page.samples}
        place = out / f"{name}.html"
        if distributed.world()[0] == 0:
            page.write_html(place)
        common.note(f"written to {place}")
        if not output.as_json:
            words = sentences(page, name, _answers(job))
            words += _spoken(networks["one step"]) if job.task == "language" else []
            words += [networks["one step"].report.summary(), f"The page: {place.resolve().as_uri()}"]
            common.show("\n".join(["", *words]), None, as_json=False)
    common.show(_next(names[-1], out), results, as_json=output.as_json)


def converted(job: Job, configs: dict[str, Config]) -> dict[str, Network]:
    """A network for each configuration; the model is captured once, which is what takes longest."""
    (name, config), *others = configs.items()
    first = job.network(config)
    made = {name: first} | {name: first.reconfigure(config, job.calibration()) for name, config in others}
    for network in made.values():
        network.about = job.source.about
    return made


def figures(network: NetworkData) -> dict[str, Any]:
    """What was measured of a network, as plain data."""
    said = ("config", "slots", "steps", "agreement", "intervals", "less_ann", "energy", "spikes_per_neuron")
    return {name: getattr(network, name) for name in said}


def sentences(page: ReportData, name: str, answers: int) -> list[str]:
    """What was seen, in plain words: how close one step comes, how good it is, and what more steps add."""
    one, many, rate = page.networks
    count = f"{answers} {DATA[NETWORKS[name].data].answered}"
    right = "next" if "next" in page.ann else page.metric
    good = f"It is right for {one.steps[right][0]:.1%} of them; the network itself, for {page.ann[right]:.1%}."
    if right != page.metric:
        own = page.how.text(page.ann[page.metric])
        good += f" Its {page.metric} is {page.how.text(one.steps[page.metric][0])}; the network's own, {own}."
    return [
        f"{NETWORKS[name].words[0].upper()}{NETWORKS[name].words[1:]} (demo:{name}):",
        f"One step answers as the network does for {one.agreement[0]:.1%} of {count}, at {_energy(one)} of its energy.",
        good,
        f"{len(many.agreement)} steps come to {many.agreement[-1]:.1%}, at {_energy(many)} of its energy; "
        f"with rate coding to {rate.agreement[-1]:.1%}, at {_energy(rate)}.",
        *_cheapest(page),
    ]


def _cheapest(page: ReportData) -> list[str]:
    """What the page begins with, if a network is as good as the ANN."""
    from spikecast.page.headline import headline  # the page comes late, with what draws it

    found = headline(page, COSTS)
    network = page.networks[found.place]
    ratio = network.energy[COSTS]["ratio"]
    if not found.holds or ratio is None:
        return []
    return [
        f"The least energy for answers as good as the network's is {ratio[found.step - 1]:.0%}, "
        f'after step {found.step} of "{network.name}". The page begins with it.'
    ]


def _spoken(network: Network) -> list[str]:
    """What a language model writes by itself."""
    begun = encode(START).unsqueeze(0).to(network.device)
    written = decode(generate(network, begun, max_new_tokens=50)[0]).removeprefix(START)
    return [f'From "{START}" on it writes: "{written.partition(chr(10))[0]}"']


def _next(name: str, out: Path) -> str:
    """Commands to go on with."""
    words = {"name": name, "data": NETWORKS[name].data, "file": out / f"{name}.spikecast"}
    shown = [(command, why) for command, why in NEXT if f"--model {name} " not in f"{command} "]
    rows = [(f"  spikecast {command.format(**words)}", why) for command, why in shown]
    return "\n".join(["", "What to try next:", columns([*rows, ("  python examples/demo.py", "the same in Python")])])


def _energy(network: NetworkData) -> str:
    """The energy of all steps over the ANN's."""
    ratio = network.energy[COSTS]["ratio"]
    return "an unknown share" if ratio is None else f"{ratio[-1]:.0%}"


def _answers(job: Job) -> int:
    """How many answers are scored: one for each sample, or for each letter of a text."""
    assert isinstance(job.batches, Data)
    targets = [item.target for item in job.batches.items]
    return sum(target.numel() if isinstance(target, Tensor) else 1 for target in targets)
