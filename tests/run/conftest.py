"""Rows and a recipe that tests change."""

from pathlib import Path

import pytest
from small_road import CONFIG, Road

from rec.datasets.criteo_like import write_criteo_like


@pytest.fixture(scope="session")
def raw_days(tmp_path_factory) -> Path:
    """Three generated files, a day each."""
    folder = tmp_path_factory.mktemp("raw")
    write_criteo_like(folder, CONFIG)
    return folder


@pytest.fixture
def road(tmp_path, raw_days, spark) -> Road:
    return Road(tmp_path, raw_days)
