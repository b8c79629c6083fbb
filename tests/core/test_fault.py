"""Faults in plain words: no name of a class, a union or a branch."""

from typing import Annotated

import pytest
from pydantic import Field, RootModel

from rec.core.config import Config, LocalFolder, LocalPath, load_config, parse_config
from rec.core.errors import ConfigError


class Chain(Config):
    columns: str | list[str] = "I*"
    ops: list[str | dict[str, dict | None]] = Field(default_factory=list)


class Chains(RootModel[dict[str, Chain]]):
    pass


class Outer(Config):
    chains: Chains = Chains({})
    cuts: tuple[Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0, le=1)], ...] = ()
    rate: float = 0.1
    widths: tuple[int, ...] = ()
    refit: bool = False
    name: str = "x"
    root: LocalPath = "lake"
    folder: LocalFolder | None = None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"chains": 5}, "chains = 5: expected a section of keys and values"),
        ({"chains": {"a": 5}}, "chains.a = 5: expected a section with columns, ops"),
        ({"chains": {"a": {"column": "I*"}}}, "unknown key 'chains.a.column'; did you mean 'columns'?"),
        ({"chains": {"a": {"columns": 5}}}, "chains.a.columns = 5: expected text or a list"),
        ({"chains": {"a": {"ops": [{"clip": 0}]}}}, "chains.a.ops.0.clip = 0: expected a section of keys and values"),
        ({"chains": {"a": {"ops": [5]}}}, "chains.a.ops.0 = 5: expected text or a section of keys and values"),
        (
            {"chains": {"a": {"ops": [{"clip": {"min": float("nan")}}]}}},
            "chains.a.ops.0.clip.min = nan: expected a",
        ),
        ({"cuts": [0]}, "cuts.0 = 0: expected a number above 0"),
        ({"cuts": [1, 2.5]}, "cuts.1 = 2.5: expected a whole number or a number of at most 1"),
        ({"cuts": [True]}, "cuts: [True]: true and false are not taken here"),
        ({"widths": [True]}, "widths: [True]: true and false are not taken here"),
        ({"rate": True}, "rate: True: true and false are not taken here"),
        ({"rate": float("inf")}, "rate = inf: expected a finite number"),
        ({"name": True}, "name: True: true and false are not taken here; give a number, or put a text in quotes"),
        ({"refit": 1}, "refit: 1 is neither true nor false"),
        ({"refit": "on"}, "refit: 'on' is neither true nor false"),
        ({"root": ""}, "root: '': an empty path"),
        ({"folder": ""}, "folder: '': an empty path"),
        ({"root": "~no_such_user/lake"}, "root: '~no_such_user/lake': no home folder of that user"),
    ],
)
def test_a_fault_is_said_in_plain_words(content, message):
    with pytest.raises(ConfigError) as fault:
        parse_config(Outer, content, "recipe")
    assert str(fault.value).startswith(f"recipe: {message}")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_are_finite_in_python_too(number):
    with pytest.raises(ValueError, match="finite number"):
        Outer(rate=number)


def test_a_home_folder_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/home/of/user")
    config = Outer(root="~/lake", folder="~/models")
    assert config.root == "/home/of/user/lake"
    assert str(config.folder) == "/home/of/user/models"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("name: a\nrate: 0.5\nname: b\n", "key 'name' is given twice, on lines 1 and 3"),
        ("chains:\n  a: {columns: I*}\n  'a': {}\n", "key 'a' is given twice, on lines 2 and 3"),
        ("chains: {a: {columns: I*, columns: C*}}\n", "key 'columns' is given twice, on lines 1 and 1"),
    ],
)
def test_a_key_that_is_given_twice(tmp_path, text, lines):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=lines) as fault:
        load_config(Outer, path)
    assert str(path) in str(fault.value)


def test_merged_keys_may_be_given_again(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("chains:\n  a: &a {columns: I*, ops: [log]}\n  b: {<<: *a, columns: C*}\n")
    chains = load_config(Outer, path).chains.root
    assert (chains["b"].columns, chains["b"].ops) == ("C*", ["log"])


def test_a_key_that_is_given_twice_in_a_setting(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("name: a\n")
    with pytest.raises(ConfigError, match=r"--set .*key 'columns' is given twice"):
        load_config(Outer, path, ["chains.a={columns: I*, columns: C*}"])
