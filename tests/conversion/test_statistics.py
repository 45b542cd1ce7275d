"""Statistics do not depend on how the values were cut into batches, in which order they came, or who counted them."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spikecast.conversion.statistics import FINE, OCTAVES, Histogram, Moments


@st.composite
def scattered(draw):
    """Values [channels, N] of very different sizes, with zeros and ties, and a cut of them into parts."""
    torch.manual_seed(draw(st.integers(0, 2**31)))
    channels, count = draw(st.integers(1, 4)), draw(st.integers(1, 300))
    spread = draw(st.sampled_from([0.0, 1.0, 8.0, 30.0]))
    values = torch.randn(channels, count) * torch.exp2(spread * torch.randn(1, count)).clamp(2.0**-100, 2.0**100)
    values[torch.rand(channels, count) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = 0.0
    if draw(st.booleans()):
        values = values.sign() * torch.exp2(values.abs().clamp_min(2.0**-90).log2().floor())  # on the bins' edges
    order = torch.randperm(count)
    cuts = sorted(draw(st.lists(st.integers(0, count), max_size=4)))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, count], strict=True)]
    return values, values[:, order].split(sizes, 1)


def seen(kind, parts):
    made = kind()
    for part in parts:
        made.observe(part)
    return made


def shared_histogram(parts):
    """As `conversion.shared` does where each part was counted by a process of its own: one window, and a sum."""
    each = [seen(Histogram, [part]) for part in parts]
    for own, part in zip(each, parts, strict=True):
        if own.largest is None:
            own.clear(len(part), torch.device("cpu"))
    largest = torch.stack([own.largest for own in each]).amax(0)
    for own in each:
        own.raise_top(largest)
    each[0].counts = torch.stack([own.counts for own in each]).sum(0)
    each[0].largest, each[0].count = largest, sum(own.count for own in each)
    return each[0]


def shared_moments(parts):
    made = Moments()
    for part in parts:
        own = seen(Moments, [part])
        if own.mean is not None:
            made.add(own.count, own.mean, own.squares)
    return made


def same(a: Histogram, b: Histogram) -> bool:
    fields = ("top", "largest", "counts")
    return (a.count, a.bins) == (b.count, b.bins) and all(torch.equal(getattr(a, f), getattr(b, f)) for f in fields)


@settings(max_examples=150)
@given(case=scattered())
def test_histograms_are_exact(case) -> None:
    values, parts = case
    whole = seen(Histogram, [values])
    assert same(seen(Histogram, parts), whole)
    assert same(seen(Histogram, parts[::-1]), whole)
    assert same(shared_histogram(parts), whole)
    assert (whole.counts.sum(1) == values.shape[1]).all()


@settings(max_examples=150)
@given(case=scattered(), p=st.sampled_from([0.01, 0.3, 0.5, 0.9, 0.999, 1.0]))
def test_quantiles_are_close(case, p) -> None:
    values, _ = case
    found = seen(Histogram, [values]).quantile(p)
    ordered = values.abs().double().sort(1).values
    exact = ordered[:, max(math.ceil(p * values.shape[1] - 1e-9), 1) - 1]
    window = torch.exp2(ordered[:, -1].log2().floor() - (OCTAVES - 1))  # what lies below counts as zero
    inside = exact >= window
    assert ((found - exact).abs()[inside] <= exact[inside] / FINE * (1 + 1e-9)).all()
    assert (found[~inside] == 0).all()
    assert (found <= ordered[:, -1]).all()
    if p == 1:
        assert torch.equal(found, ordered[:, -1])


@settings(max_examples=150)
@given(case=scattered(), shift=st.sampled_from([0.0, 1.0, -100.0]))
def test_moments_are_close(case, shift) -> None:
    values, parts = case
    size = values.abs().amax(1, keepdim=True).clamp_min(2.0**-100)
    values, parts = values / size + shift, [part / size + shift for part in parts]
    exact = values.double()
    for moments in (seen(Moments, [values]), seen(Moments, parts), seen(Moments, parts[::-1]), shared_moments(parts)):
        assert moments.count == values.shape[1]
        scale = exact.square().mean(1).sqrt() + 1e-12
        assert ((moments.mean - exact.mean(1)).abs() <= 1e-5 * scale).all()
        assert ((moments.std - exact.std(1, correction=0)).abs() <= 1e-5 * scale).all()
