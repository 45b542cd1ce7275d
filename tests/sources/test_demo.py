"""The networks that come with the package, and their data: as good as is said, on what they were not trained on."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from spikecast.errors import DataError
from spikecast.sources import are_images, open_data, open_model
from spikecast.sources.demo import DATA, NETWORKS, demo_network
from spikecast.sources.demo.text import LENGTH, LETTERS, LONGEST, TextModel, decode, encode, paragraphs, text
from spikecast.sources.demo.tones import BANDS, CHORDS, FRAMES, INTERVALS, LOWEST, RATE, sounds, spectrum, tones


@pytest.mark.parametrize(("name", "least"), [("cnn", 0.985), ("vit", 0.985), ("tones", 0.985)])
@torch.no_grad()
def test_classifiers_are_good(name: str, least: float) -> None:
    loaded = open_model(f"demo:{name}")
    ((inputs, labels),) = open_data(f"demo:{NETWORKS[name].data}", loaded.preparation, batch_size=1000)
    assert len(inputs) == {"digits": 449, "tones": 512}[NETWORKS[name].data]
    assert float((loaded.model(inputs).argmax(1) == labels).float().mean()) >= least


@torch.no_grad()
def test_the_language_model_is_better_than_counting_letters() -> None:
    inputs, following = text("val")
    perplexity = math.exp(F.cross_entropy(demo_network("llm")(inputs).flatten(0, 1), following.flatten()))
    assert perplexity < 6
    assert perplexity < 0.7 * _counted(2)  # the letter and the one before it: what a table of pairs knows


def _counted(order: int) -> float:
    """Perplexity of the held-out text under counts of stretches of letters in the training text, plus one each."""
    training, held_out = encode("\n".join(paragraphs("train"))), encode("\n".join(paragraphs("val")))
    counts = torch.ones(*[len(LETTERS)] * order)
    counts.index_put_(tuple(training.unfold(0, order, 1).T), torch.tensor(1.0), accumulate=True)
    shares = counts / counts.sum(-1, keepdim=True)
    return math.exp(-shares[tuple(held_out.unfold(0, order, 1).T)].log().mean())


def test_no_later_letter_is_seen() -> None:
    torch.manual_seed(0)
    model, tokens = TextModel().eval(), torch.randint(len(LETTERS), (1, 12))
    changed = tokens.clone()
    changed[0, 8] = (tokens[0, 8] + 1) % len(LETTERS)
    with torch.no_grad():
        differ = (model(tokens) != model(changed)).any(-1)[0]
    assert differ.tolist() == [False] * 8 + [True] * 4
    assert model(torch.zeros(1, LONGEST, dtype=torch.long)).shape == (1, LONGEST, len(LETTERS))


def test_the_text_is_split_without_a_common_sentence() -> None:
    training, held_out = paragraphs("train"), paragraphs("val")
    assert 0.09 < len(held_out) / (len(training) + len(held_out)) < 0.11
    sentences = {s for line in training for s in line.split(". ") if len(s) > 40}
    assert not sentences & {s for line in held_out for s in line.split(". ")}
    inputs, following = text("val")
    assert inputs.shape == following.shape == (len(inputs), LENGTH)
    assert inputs[0, 1:].equal(following[0, :-1])
    assert inputs[1, 0] == following[0, -1]  # windows follow one another
    assert decode(inputs.flatten()).startswith("\n" + held_out[0][:30])


def test_letters_and_tokens() -> None:
    words = "Spikes!\n~ {x}"
    assert decode(encode(words)) == words
    assert int(encode(LETTERS).max()) == len(LETTERS) - 1
    with pytest.raises(DataError, match="letters of ASCII only, and not 'θ'"):
        encode("a θ")


def test_sounds_are_the_same_each_time_and_others_are_held_out() -> None:
    (waves, labels), (again, _) = sounds(8, 5), sounds(8, 5)
    assert waves.equal(again)
    assert labels.tolist() == list(range(len(CHORDS)))
    assert not waves[0].equal(sounds(8, 6)[0][0])
    inputs, _ = tones("val")
    assert inputs.shape == (512, FRAMES, BANDS)
    rows = {tuple(x) for x in tones("train")[0].flatten(1).tolist()}
    assert not [x for x in inputs.flatten(1).tolist() if tuple(x) in rows]


@pytest.mark.parametrize("chord", CHORDS)
def test_a_spectrum_shows_the_notes_of_a_chord(chord: str) -> None:
    time = torch.arange(4096) / RATE
    notes = [9 + step for step in INTERVALS[chord]]
    wave = torch.stack([torch.sin(2 * math.pi * LOWEST * 2 ** (note / 12) * time) for note in notes]).sum(0)
    for frame in spectrum(wave.unsqueeze(0))[0]:
        assert sorted(frame.topk(len(notes)).indices.tolist()) == notes


def test_what_data_are() -> None:
    assert [are_images(f"demo:{name}") for name in DATA] == [True, False, False]
    assert are_images("imagefolder:digits")
    assert not are_images("mine.py:images")
    assert open_model("demo:llm").task == "language"
    assert open_model("demo:cnn").takes_images
    (batch, *_) = open_data("demo:text", batch_size=3, limit=3)
    assert [x.shape for x in batch] == [(3, LENGTH), (3, LENGTH)]
