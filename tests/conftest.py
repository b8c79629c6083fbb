"""Fixtures shared by the tests: one Spark session for the whole run, real rows where there are any."""

import os
import tempfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


# Each half of the tests has a Spark session of its own; what looks at processes of ranks and servers is in the other.
SPARK_FOLDERS = {"contract", "etl"}
# Starts JVMs of its own, and is where the halves come out even.
OTHER_HALF = {"test_receipt.py"}


# First: pytest-xdist reads the marks in a hook of the same name.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Under ``-n 2 --dist loadgroup`` two processes share the tests, in halves that take about as long."""
    for item in items:
        folder = item.path.relative_to(REPOSITORY / "tests").parts[0]
        half = "spark" if folder in SPARK_FOLDERS and item.path.name not in OTHER_HALF else "ranks"
        item.add_marker(pytest.mark.xdist_group(half))


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory):
    """Temporary files of this run alone: no test reads lines that an earlier one parsed."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    kept, tempfile.tempdir, os.environ["TMPDIR"] = tempfile.tempdir, folder, folder
    yield
    tempfile.tempdir = kept


@pytest.fixture(scope="session")
def spark():
    """One local session as conf/spark/local.conf makes it: starting one takes longer than most tests."""
    from rec.etl.session import spark_session

    session = spark_session(REPOSITORY / "conf/spark/local.conf")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of small trouble inputs with their expected values."""
    return REPOSITORY / "tests/cases"


@pytest.fixture(scope="session")
def criteo_dir() -> Path:
    """Folder of real Criteo rows; they are never part of the repository."""
    folder = os.environ.get("REC_CRITEO_DIR")
    if not folder:
        pytest.skip("REC_CRITEO_DIR is not set: no real Criteo rows here")
    return Path(folder)


@pytest.fixture(scope="session")
def one_rank():
    """A process that is a group of its own; see tests/process_group.py."""
    yield from _rank_pool(1)


@pytest.fixture(scope="session")
def two_ranks():
    """Two processes joined by gloo."""
    yield from _rank_pool(2)


@pytest.fixture(scope="session")
def three_ranks():
    """Three processes joined by gloo."""
    yield from _rank_pool(3)


def _rank_pool(world_size: int):
    from process_group import RankPool

    pool = RankPool(world_size)
    yield pool
    pool.close()
