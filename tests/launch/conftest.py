"""Ranks import their programs by name, so this folder is on their path."""

import os
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def _programs_on_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in (HERE, os.environ.get("PYTHONPATH")) if p))
