"""Import direction, and what importing the package costs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")
ENGINES = ["pyspark", "delta", "torch", "torchrec", "fbgemm_gpu", "petastorm", "horovod", "tritonclient", "pyarrow"]


def lint_imports(folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [LINT_IMPORTS, "--config", "pyproject.toml", "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
    )


@pytest.fixture
def copy(tmp_path) -> Path:
    """A copy of the package to plant violations in."""
    shutil.copytree(REPOSITORY / "rec", tmp_path / "rec", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    return tmp_path


def test_clean_code_passes():
    result = lint_imports(REPOSITORY)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("core/planted.py", "import rec.ops.op"),
        ("core/planted.py", "import pyspark"),
        ("ops/planted.py", "import pyspark"),
        ("bundle/planted.py", "import torch"),
        ("serve/planted.py", "import pyarrow"),
        ("train/planted.py", "import horovod"),
        ("data/planted.py", "import pyspark"),
        ("etl/planted.py", "import torch"),
        ("unlisted/__init__.py", ""),
    ],
)
def test_a_planted_violation_fails(copy, place, line):
    path = copy / "rec" / place
    path.parent.mkdir(exist_ok=True)
    path.write_text(line + "\n")
    result = lint_imports(copy)
    assert result.returncode != 0, result.stdout


@pytest.mark.parametrize("module", ["rec", "rec.cli", "rec.run"])
def test_importing_loads_no_engine(module):
    program = f"import sys, {module}; print(*[m for m in {ENGINES} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
