"""Command line: a verb for each stage. User mistakes print one line and exit with 2."""

import errno
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from rec.core.errors import RecError
from rec.launch.interrupt import interruptible

RecipePath = Annotated[Path, typer.Argument(help="A recipe, such as conf/criteo_demo.yaml.", metavar="RECIPE")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="path=value, such as train.seed=2; may be repeated.", metavar="SETTING"),
]
SparkConf = Annotated[
    Path | None,
    typer.Option(help="A spark-defaults file. Under spark-submit, leave it out and give --properties-file there."),
]

FULL_DISK = "No space left on device"
UNUSABLE = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}
)

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)


def main(argv: list[str] | None = None) -> int:
    """Run one verb; return 0, or 2 after one line that says what to mend. ``--debug`` shows the traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("rec").setLevel(logging.DEBUG if debug else logging.INFO)
    try:
        with interruptible():
            return app(arguments, prog_name="rec", standalone_mode=False) or 0
    except (RecError, TyperException) as error:
        if debug:
            raise
        text = error.format_message() if isinstance(error, TyperException) else str(error)
        # Without a verb the help was printed, and there is no more to say.
        if text:
            typer.echo(f"error: {text}", err=True)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("interrupted", err=True)
        return 130
    except Exception as error:
        remedy = _remedy(error)
        if debug or remedy is None:
            raise
        typer.echo(f"error: {remedy}", err=True)
        return 2


def _remedy(error: Exception) -> str | None:
    """Return what to mend where the machine and no bug is at fault; None for anything else."""
    # From Python, Arrow or the JVM.
    if FULL_DISK in str(error):
        return f"{FULL_DISK}: free some below the recipe's root or SPARK_LOCAL_DIRS, and run it again"
    if isinstance(error, OSError) and error.errno in UNUSABLE and error.filename:
        return f"{error.filename}: {error.strerror}; check the path and who may write there"
    return None


@app.command()
def run(recipe: RecipePath, settings: Settings = None, spark_conf: SparkConf = None) -> None:
    """Run every stage: features, training, evaluation, push, parity, report."""
    from rec.launch.commands import next_commands
    from rec.run import load_recipe, open_stages, run_all

    loaded = load_recipe(recipe, settings)
    report = run_all(open_stages(loaded, spark_conf))
    typer.echo(f"report: {report}")
    for command in next_commands(recipe, settings or [], spark_conf, loaded.train.seed):
        typer.echo(f"try next: {command}")


@app.command()
def etl(
    recipe: RecipePath,
    settings: Settings = None,
    spark_conf: SparkConf = None,
    explain: Annotated[
        bool, typer.Option(help="Write no table; say, and keep a record of, what a GPU would run.")
    ] = False,
) -> int:
    """Raw rows to a feature table, with a ledger of every line."""
    from rec.run import explain_etl, load_recipe, open_stages, run_etl

    loaded = load_recipe(recipe, settings)
    if not explain:
        run_etl(open_stages(loaded, spark_conf))
        return 0
    receipt = explain_etl(loaded, spark_conf)
    for fallback in receipt.fallbacks:
        typer.echo(f"stays on the CPU: {fallback.operator}: {fallback.reason}")
    typer.echo(
        f"{receipt.num_queries} queries, {receipt.num_plans} plans, {receipt.num_gpu_operators} operators on the GPU, "
        f"{len(receipt.fallbacks)} on the CPU"
    )
    if not receipt.is_explained:
        typer.echo("not every query was explained: of the others nothing is known; see that RAPIDS' log level is WARN")
    return 0 if receipt.is_whole else 1


@app.command()
def train(recipe: RecipePath, settings: Settings = None, spark_conf: SparkConf = None) -> None:
    """Feature table to a checkpoint, by ranks inside Spark executors."""
    from rec.run import load_recipe, open_stages, run_train

    run_train(open_stages(load_recipe(recipe, settings), spark_conf))


@app.command()
def evaluate(recipe: RecipePath, settings: Settings = None, spark_conf: SparkConf = None) -> None:
    """Exact AUC, log loss and normalized entropy of the newest checkpoint, beside the baselines."""
    from rec.run import load_recipe, open_stages, run_evaluate

    run_evaluate(open_stages(load_recipe(recipe, settings), spark_conf))


@app.command()
def push(recipe: RecipePath, settings: Settings = None, spark_conf: SparkConf = None) -> None:
    """Checkpoint to a verified bundle, served as a new version, its scores compared with the table's rows."""
    from rec.run import load_recipe, open_stages, run_push

    run_push(open_stages(load_recipe(recipe, settings), spark_conf))


@app.command()
def rollback(
    recipe: RecipePath,
    settings: Settings = None,
    version: Annotated[int | None, typer.Option(help="One that was served; by default the one before.")] = None,
) -> None:
    """Serve an earlier version again."""
    from rec.run import load_recipe
    from rec.serve.push import rollback as roll_back

    served = roll_back(version=version, config=load_recipe(recipe, settings).serve)
    typer.echo(f"model {served.model_name}: version {served.version} is served")
    served.stop()


@app.command()
def serve(recipe: RecipePath, settings: Settings = None) -> None:
    """Run a tritonserver on the recipe's model repository until interrupted."""
    from rec.run import load_recipe
    from rec.serve.server import Server

    with Server(load_recipe(recipe, settings).serve) as server:
        typer.echo(f"serving at {server.url}; Ctrl-C ends it")
        server.wait()


@app.command()
def score(
    recipe: RecipePath,
    rows: Annotated[Path, typer.Argument(help="A file, folder or glob of raw rows.")],
    out: Annotated[Path, typer.Argument(help="A CSV file to write: file, line, prob, logit.")],
    settings: Settings = None,
    spark_conf: SparkConf = None,
) -> None:
    """Ask a running server for the score of every row of a file; count the lines that are none."""
    from rec.launch.score import check_out, score_file, server_url
    from rec.run import load_recipe, open_stages

    loaded = load_recipe(recipe, settings)
    # Told before a session starts.
    check_out(rows, out)
    server_url(loaded.serve)
    scored = score_file(open_stages(loaded, spark_conf).spark, loaded.placed_source, rows, loaded.serve, out)
    typer.echo(f"{scored}; {out}")


@app.command()
def doctor() -> int:
    """Check what this machine has of what each stage needs, and say how to mend the rest."""
    from rich.console import Console

    from rec.launch.doctor import examine

    console, failed = Console(), 0
    for finding in examine():
        mark = {True: "[green]ok[/]", False: "[red]missing[/]", None: "[yellow]absent[/]"}[finding.ok]
        remedy = f"  → {finding.remedy}" if not finding.ok else ""
        console.print(f"{mark:>20}  [bold]{finding.name}[/]: {finding.detail}{remedy}", soft_wrap=True)
        failed += finding.ok is False
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
