"""The page of the slow tests says what ran, what failed, what was cut off, and on which commit."""

import subprocess
import sys
from pathlib import Path

import pytest
from slow_report import commit

SLOW_REPORT = Path(__file__).with_name("slow_report.py")
HEAD = "import os, pytest\npytestmark = pytest.mark.slow\n"
PASSES = "def test_passes(record_property):\n    record_property('share', 0.75)\n"
FAILS = "def test_fails():\n    assert 1 == 2\n"
BREAKS = "@pytest.fixture\ndef broken():\n    yield\n    raise OSError\ndef test_breaks(broken):\n    pass\n"
INTERRUPTED = "def test_interrupted():\n    raise KeyboardInterrupt\n"
KILLED = "def test_killed():\n    os.kill(os.getpid(), 9)\n"


def run(folder: Path, *tests: str) -> tuple[int, str, dict[str, list[str]]]:
    """Run some made tests; return exit code, the line that says on what, and the page's rows by test."""
    (folder / "test_made.py").write_text(HEAD + "\n".join(tests))
    page = folder / "slow.md"
    command = [sys.executable, SLOW_REPORT, page, "--rootdir", folder, folder / "test_made.py"]
    code = subprocess.run(command, cwd=folder, capture_output=True).returncode
    lines = page.read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[6:]]
    return code, lines[2], {name.strip("`").rpartition("::")[2]: rest for name, *rest in cells}


def test_all_passed(tmp_path):
    code, head, rows = run(tmp_path, PASSES)
    assert code == 0
    assert "finished after 0 minutes" in head
    assert rows == {"test_passes": ["passed", "0.0", "share 0.75"]}


def test_a_failure_is_on_the_page_and_in_the_exit_code(tmp_path):
    code, head, rows = run(tmp_path, FAILS, BREAKS, PASSES)
    assert code == 1
    assert "finished" in head
    assert [(name, row[0]) for name, row in rows.items()] == [
        ("test_fails", "failed"),
        ("test_breaks", "failed"),
        ("test_passes", "passed"),
    ]


def test_a_file_that_cannot_be_read_is_on_the_page(tmp_path):
    code, _, rows = run(tmp_path, "import nothing_of_this_name", PASSES)
    assert code != 0
    assert rows["test_made.py"][0] == "failed"


@pytest.mark.parametrize(("cut", "word"), [(INTERRUPTED, "interrupted"), (KILLED, "unfinished")])
def test_a_run_cut_off_keeps_what_it_found(tmp_path, cut, word):
    code, head, rows = run(tmp_path, PASSES, cut, FAILS)
    assert code != 0
    assert word in head
    assert [row[0] for row in rows.values()] == ["passed", "not run", "not run"]


def test_uncommitted_changes_are_named(tmp_path):
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    page, other = tmp_path / "docs/slow.md", tmp_path / "é other.py"
    page.parent.mkdir()
    page.write_text("")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    clean = commit(tmp_path, page)
    page.write_text("written anew")
    assert commit(tmp_path, page) == clean
    other.write_text("")
    assert commit(tmp_path, page) == f"{clean} with uncommitted changes (`é other.py`)"
    (tmp_path / "z.py").write_text("")
    assert commit(tmp_path, page).endswith("(`z.py` and 1 more)")
    git("add", ".")
    git("commit", "-m", "second")
    assert "uncommitted" not in commit(tmp_path, page) != clean
