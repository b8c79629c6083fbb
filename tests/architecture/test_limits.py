"""House limits: files, functions and constructors stay small, packages stay empty at the door."""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 40
MAX_CONSTRUCTOR_ARGUMENTS = 5
SOURCES = sorted([*REPOSITORY.glob("rec/**/*.py"), *REPOSITORY.glob("jobs/*.py")])


def oversized(source: str) -> list[str]:
    """Return what breaks a limit in one file's text, a line each."""
    found = []
    num_lines = len(source.splitlines())
    if num_lines > MAX_FILE_LINES:
        found.append(f"{num_lines} lines, allowed {MAX_FILE_LINES}")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                found.append(f"function {node.name}: {length} lines, allowed {MAX_FUNCTION_LINES}")
            num_arguments = len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) - 1
            if node.name == "__init__" and num_arguments > MAX_CONSTRUCTOR_ARGUMENTS:
                found.append(f"constructor: {num_arguments} arguments, allowed {MAX_CONSTRUCTOR_ARGUMENTS}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_file_keeps_the_limits(path):
    assert oversized(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "x = 1\n" * (MAX_FILE_LINES + 1),
        "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES,
        "class A:\n    def __init__(self, a, b, c, d, e, f):\n        pass\n",
        "class A:\n    def __init__(self, a, b, c, *, d, e, f):\n        pass\n",
    ],
    ids=["file", "function", "constructor", "keyword-only"],
)
def test_a_planted_excess_is_found(source):
    assert oversized(source)


def test_packages_are_empty_but_for_the_public_api():
    filled = [p for p in REPOSITORY.glob("rec/**/__init__.py") if p.read_text().strip()]
    assert filled == [REPOSITORY / "rec/__init__.py"]


def test_freq_threshold_stays_with_the_operators():
    """Only its consequence, num_embeddings, travels on to training and serving."""
    allowed = ("rec/ops/", "rec/etl/")
    places = {str(p.relative_to(REPOSITORY)) for p in SOURCES if "freq_threshold" in p.read_text(encoding="utf-8")}
    assert [p for p in sorted(places) if not p.startswith(allowed) and p != "rec/core/ids.py"] == []
