"""What to run after a run, as lines to copy into a shell."""

import os
import shlex
import sys
from pathlib import Path

from rec.core.errors import MissingDependencyError
from rec.etl.receipt import rapids_jar
from rec.etl.session import JARS_FOLDER


def next_commands(recipe: Path, settings: list[str], spark_conf: Path | None, seed: int) -> tuple[str, ...]:
    """Return commands that hold the run's settings: serve, what a GPU would run, and a run of another seed.

    A run's Spark conf is not that of the cluster which ``--explain`` asks about.
    """
    given = [str(recipe), *[word for setting in settings for word in ("--set", setting)]]
    conf = ["--spark-conf", str(spark_conf)] if spark_conf else []
    return (
        _command("serve", *given),
        _fetching_rapids(_command("etl", *given, "--explain")),
        _command("run", *given, "--set", f"train.seed={seed + 1}", *conf),
    )


def _command(*words: str) -> str:
    program = [sys.executable, "-m", "rec.cli"] if sys.argv[0].endswith(".py") else [sys.argv[0]]
    return shlex.join([*program, *words])


def _fetching_rapids(command: str) -> str:
    """Put what fetches the RAPIDS jar before a command where it is not there."""
    try:
        rapids_jar()
    except MissingDependencyError:
        checkout = JARS_FOLDER.parent
        if (checkout / "Makefile").is_file():
            place = [] if Path(os.getcwd()) == checkout else ["-C", str(checkout)]
            return f"{shlex.join(['make', *place, 'gpu-jar'])} && {command}"
    return command
