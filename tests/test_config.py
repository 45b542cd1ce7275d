"""Settings are checked when they are made, and are the same after a trip through JSON."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import math
import pickle
from typing import Any

import pytest

from spikecast import Config
from spikecast.config import SITE_FIELDS
from spikecast.errors import ConfigError, SpikecastError

FULL = Config(
    num_steps=4,
    num_levels=3,
    burst=1,
    coding="rate",
    thresholds="quantile",
    threshold_scale=2.5,
    granularity="layer",
    signed=False,
    encode_input=True,
    quantile=0.99,
    search_penalty=0.01,
    firing_boundary=0.72,
    initial_potential=0.5,
    overrides={"stem.*": {"num_levels": 1, "thresholds": "iteration"}, "head.input": None},
    seed=7,
)


def test_defaults() -> None:
    config = Config()
    assert (config.num_steps, config.num_levels, config.burst) == (1, 8, 3)
    assert (config.coding, config.thresholds) == ("differential", "auto")
    assert (config.granularity, config.threshold_scale, config.firing_boundary) == ("channel", 1.0, 0.75)
    assert (config.signed, config.encode_input, config.overrides) == (True, False, {})


def test_a_budget_in_per_cent_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"=30 must be a number above 0 up to 10: .*; 30 % of it are 0.3$"):
        Config(energy_budget=30)
    with pytest.raises(ConfigError, match=r"energy_budget=0 must be a number above 0 up to 10$"):
        Config(energy_budget=0)


@pytest.mark.parametrize("config", [Config(), FULL], ids=["default", "full"])
def test_json_round_trip(config) -> None:
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert set(config.to_json()) == {f.name for f in dataclasses.fields(Config)}


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().num_steps = 3  # type: ignore[misc]


def test_json_of_some_settings_only() -> None:
    assert Config.from_json({"num_steps": 3}) == Config(num_steps=3)


def test_signature_shows_the_settings() -> None:
    parameters = inspect.signature(Config).parameters
    assert list(parameters) == [f.name for f in dataclasses.fields(Config)]
    assert [parameters[name].default for name in ("num_steps", "burst", "coding")] == [1, 3, "differential"]


def test_copies() -> None:
    assert copy.copy(FULL) == copy.deepcopy(FULL) == pickle.loads(pickle.dumps(FULL)) == FULL
    assert Config(4, 3) == Config(num_steps=4, num_levels=3)


def test_steps_of_a_run() -> None:
    assert (Config(num_steps=5).steps_or(None), Config(num_steps=5).steps_or(7)) == (5, 7)
    wrongs: list[Any] = [0, True, 2.0, 4097]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match=r"num_steps=.* must be a whole number from 1 to 4096"):
            Config().steps_or(wrong)


def test_unknown_setting() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown setting 'num_step' \(did you mean 'num_steps'\?\); the settings"
    ) as error:
        Config.from_json({"num_step": 3})
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=r"unknown setting 'num_step' \(did you mean"):
        Config(num_step=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"unknown setting 'zzz'; the settings are num_steps, "):
        dataclasses.replace(Config(), zzz=3)  # type: ignore[call-arg]


BAD = [
    ("num_steps", [0, -1, 4097, 2.0, True, "8", None], "whole number from 1 to 4096"),
    ("num_levels", [0, 15, 1.0, False, "4"], "whole number from 1 to 14"),
    ("seed", [-1, 0.5, 2**63], "whole number from 0"),
    ("coding", ["phase", None, 3], "one of 'differential', 'rate'"),
    ("thresholds", ["best", None], "one of 'auto', 'iteration', 'iteration_paper', "),
    ("granularity", ["pixel", 1], "one of 'layer', 'channel', 'neuron', 'dim1'"),
    ("threshold_scale", [0, -1.0, math.nan, math.inf, "2", True], "number above 0"),
    ("quantile", [0.0, 1.01, math.nan, None], "number above 0 up to 1"),
    ("search_penalty", [-0.1, math.nan, "0"], "number from 0"),
    ("firing_boundary", [0.5, 1.01, math.nan], "number above 0.5 up to 1"),
    ("initial_potential", [-1.1, 1.1, math.nan], "number from -1 up to 1"),
    ("signed", [1, "no", None], "True or False"),
    ("encode_input", [0, "yes"], "True or False"),
    ("overrides", [[("a", None)], 3, {"a": 3}, {1: None}, {"a": "quantile"}], "overrides"),
]


@pytest.mark.parametrize(("field", "values", "words"), BAD, ids=[f for f, _, _ in BAD])
def test_out_of_range(field, values, words) -> None:
    for value in values:
        with pytest.raises(ConfigError) as error:
            Config(**{field: value})
        message = str(error.value)
        assert words in message
        assert field in message
        assert "\n" not in message
        assert isinstance(error.value, SpikecastError)
        with pytest.raises(ConfigError):
            Config.from_json({field: value})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"signed": False}, r"negative spike.*coding='rate'"),
        ({"initial_potential": 0.5}, r"initial_potential=0.5 with burst=3: .*at most 0.00390625 .*, or burst=1$"),
        ({"thresholds": "search", "threshold_scale": 2.0}, r"threshold_scale=2.0.*1.0"),
        ({"overrides": {"a": {"num_steps": 3}}}, r"\['a'\] sets 'num_steps'.*cannot differ by site"),
        ({"overrides": {"a": {"coding": "rate"}}}, r"'coding'.*cannot differ"),
        ({"overrides": {"a": {"colour": 3}}}, r"'colour'"),
        ({"overrides": {"a": {"num_levels": 0}}}, r"num_levels=0"),
        ({"overrides": {"a": {"signed": False}}}, r"negative spike"),
        ({"threshold_scale": 2.0, "overrides": {"a": {"thresholds": "search"}}}, r"threshold_scale=2.0"),
    ],
)
def test_settings_that_do_not_go_together(settings, words) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        Config(**settings)
    assert "\n" not in str(error.value)


def test_settings_of_one_site() -> None:
    own = FULL.at("stem.conv")
    assert (own.num_levels, own.thresholds, own.coding, own.overrides) == (1, "iteration", "rate", {})
    assert FULL.at("head.input") is None
    assert FULL.at("other") == dataclasses.replace(FULL, overrides={})
    assert FULL.at("STEM.conv").num_levels == 3  # case matters


def test_last_pattern_wins() -> None:
    config = Config(overrides={"*": None, "a.*": {"num_levels": 2}, "a.b": {"quantile": 0.5}, "a.b?": None})
    assert config.at("z") is None
    assert config.at("a.c").num_levels == 2
    assert (config.at("a.b").num_levels, config.at("a.b").quantile) == (8, 0.5)
    assert config.at("a.bc") is None


def test_every_site_field_can_be_set() -> None:
    other = {"num_levels": 2, "burst": 2, "thresholds": "quantile", "threshold_scale": 2.0, "granularity": "layer",
             "signed": False, "quantile": 0.5, "search_penalty": 1.0, "firing_boundary": 0.7,
             "initial_potential": 0.1, "leak": 0.5}  # fmt: skip
    assert set(other) == set(SITE_FIELDS)
    own = Config(coding="rate", overrides={"x": other}).at("x")
    assert {name: getattr(own, name) for name in SITE_FIELDS} == other
    assert all(getattr(Config(), name) != value for name, value in other.items())
