"""Command line: a verb for each stage. User mistakes print one line and exit with 2."""

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rec.core.errors import RecError

RecipePath = Annotated[Path, typer.Argument(help="A recipe, such as conf/criteo_demo.yaml.", metavar="RECIPE")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="path=value, such as train.seed=2; may be repeated.")]
SparkConf = Annotated[
    Path, typer.Option(help="A spark-defaults file; under spark-submit give it by --properties-file instead.")
]
DEFAULT_SPARK_CONF = Path("conf/spark/local.conf")

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code: 0, or 2 after a line that says what to mend."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("rec").setLevel(logging.DEBUG if debug else logging.INFO)
    try:
        return app(arguments, prog_name="rec", standalone_mode=False) or 0
    except RecError as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except typer._click.exceptions.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, typer._click.exceptions.Abort):
        return 130
