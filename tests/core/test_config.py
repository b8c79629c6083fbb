"""Recipes: unknown keys with the nearest name, wrong types, overrides."""

import pytest

from rec.core.config import Config, load_config, parse_config
from rec.core.errors import ConfigError
from rec.core.tables import Days


class Inner(Config):
    freq_threshold: int = 1
    name: str = "x"


class Outer(Config):
    days: Days
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()


GOOD = {"days": {"train": [0]}}


def test_a_file_is_read_and_overrides_win(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("days: {train: [0, 1], valid: [2]}\ninner: {freq_threshold: 3}\n")
    config = load_config(Outer, path, ["inner.freq_threshold=7", "days.test=[5]", "inner.name=abc"])
    assert config.inner == Inner(freq_threshold=7, name="abc")
    assert config.days == Days(train=(0, 1), valid=(2,), test=(5,))


def test_a_range_is_days():
    assert Days(train=range(3), valid=[3]).train == (0, 1, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**GOOD, "iner": {}}, "unknown key 'iner'; did you mean 'inner'?"),
        ({**GOOD, "inner": {"freq_treshold": 2}}, "unknown key 'inner.freq_treshold'; did you mean 'freq_threshold'?"),
        ({**GOOD, "many": [{"nam": 2}]}, "unknown key 'many.0.nam'; did you mean 'name'?"),
        ({**GOOD, "inner": {"zzz": 2}}, "unknown key 'inner.zzz'; known are freq_threshold, name"),
        ({**GOOD, "inner": {"freq_threshold": "many"}}, "inner.freq_threshold = 'many'"),
        ({}, "'days' is required"),
        ({"days": {"train": []}}, "days.train is empty"),
        ({"days": {"train": [1], "test": [1]}}, "day 1 appears twice"),
        ({"days": {"train": [1], "tset": [2]}}, "unknown key 'days.tset'; did you mean 'test'?"),
    ],
)
def test_a_fault_is_named(content, message):
    with pytest.raises(ConfigError) as fault:
        parse_config(Outer, content, "recipe r.yaml")
    assert message in str(fault.value)
    assert str(fault.value).startswith("recipe r.yaml: ")
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: [1", "not YAML"), ("- 1\n", "expected a mapping"), (None, "no such file")],
)
def test_a_file_that_is_no_recipe(tmp_path, text, message):
    path = tmp_path / "recipe.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(Outer, path)


@pytest.mark.parametrize("override", ["days", "=3", "days.train.first=1"])
def test_an_override_that_does_not_hold(tmp_path, override):
    path = tmp_path / "recipe.yaml"
    path.write_text("days: {train: [0]}\n")
    with pytest.raises(ConfigError, match="--set"):
        load_config(Outer, path, [override])
