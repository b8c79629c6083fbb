"""Commands that a run prints, and those of the Makefile, hold what they were given."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from rec.cli import app
from rec.core.config import load_config
from rec.launch import commands
from rec.launch.commands import next_commands
from rec.run import Recipe

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPE = Path("my conf/recipe.yaml")
SETTINGS = ["source.path='/with space/it''s.txt'", "train.seed=7"]
CONF = Path("my conf/local.conf")


def parsed(command: str) -> dict[str, object]:
    """Return what the command line makes of a printed command: its verb and the values of its options."""
    words = shlex.split(command)
    _, verb, *arguments = words
    context = typer.main.get_command(app).commands[verb].make_context(verb, arguments)
    return {"verb": verb, **context.params}


@pytest.fixture
def no_jar(tmp_path, monkeypatch):
    """A checkout without the RAPIDS jar."""
    monkeypatch.setattr("sys.argv", ["rec"])
    monkeypatch.setattr(commands, "JARS_FOLDER", tmp_path / "jars")
    monkeypatch.setattr(commands, "rapids_jar", lambda real=commands.rapids_jar: real(tmp_path / "jars/gpu"))
    return tmp_path


def test_printed_commands_hold_settings_and_conf(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["/a place/rec"])
    monkeypatch.setattr(commands, "rapids_jar", lambda: tmp_path)
    serve, explain, again = [parsed(c) for c in next_commands(RECIPE, SETTINGS, CONF, 7)]
    assert [c["verb"] for c in (serve, explain, again)] == ["serve", "etl", "run"]
    assert all(Path(c["recipe"]) == RECIPE for c in (serve, explain, again))
    assert [*serve["settings"]] == [*explain["settings"]] == SETTINGS
    assert [*again["settings"]] == [*SETTINGS, "train.seed=8"]
    assert explain["explain"]
    assert explain["spark_conf"] is None
    assert Path(again["spark_conf"]) == CONF


@pytest.mark.parametrize("here", [True, False])
def test_the_rapids_jar_is_fetched_first_where_it_is_not_there(no_jar, monkeypatch, here):
    shutil.copy(REPOSITORY / "Makefile", no_jar)
    monkeypatch.chdir(no_jar if here else no_jar.parent)
    explain = next_commands(RECIPE, [], None, 1)[1]
    fetch = "make gpu-jar && " if here else f"make -C {no_jar} gpu-jar && "
    assert explain.startswith(fetch)
    assert parsed(explain.removeprefix(fetch))["explain"]


def test_without_a_checkout_nothing_fetches_the_jar(no_jar):
    assert next_commands(RECIPE, [], None, 1)[1].startswith("rec etl ")


def test_a_module_is_run_as_one(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/rec/cli.py"])
    assert " -m rec.cli serve " in next_commands(RECIPE, [], None, 1)[0]


@pytest.mark.parametrize(
    "name",
    ["/with space/train.txt", "it's #1.txt", "a: b.txt", "[x], {y}.txt", "$HOME `id` $$.txt", 'say "hi".txt', "~", "5"],
)
def test_make_demo_takes_any_name_of_a_file(name):
    done = subprocess.run(
        ["make", "-n", "demo", f"DATA={name}"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(".venv/bin/rec ")]
    assert [shlex.split(line)[1] for line in lines] == ["etl", "run"]
    for line in lines:
        given = parsed(line)
        recipe = load_config(Recipe, REPOSITORY / given["recipe"], [*given["settings"]])
        assert recipe.source.path == str(Path(name).expanduser())
