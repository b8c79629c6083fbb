"""Run the tests marked slow and write what ran to a page: commit, machine, minutes, result.

The page is written anew after every test, so that an interrupted run keeps what it found.
"""

import platform
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass
class Outcome:
    """A test's result over set-up, call and clean-up; ``figures`` are what it recorded with ``record_property``."""

    result: str = "not run"
    seconds: float = 0.0
    figures: dict[str, object] = field(default_factory=dict)

    def add(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        self.figures |= dict(report.user_properties)
        if self.result != "failed" and (report.when == "call" or report.outcome != "passed"):
            self.result = report.outcome

    def row(self, node: str) -> str:
        figures = ", ".join(f"{name} {value}" for name, value in self.figures.items())
        return f"| `{node}` | {self.result} | {self.seconds / 60:.1f} | {figures} |"


class Page:
    """A plugin that keeps the page true to what has run so far."""

    def __init__(self, path: Path, repository: Path) -> None:
        self._path, self._repository = path, repository
        self._commit, self._start = commit(repository, path), time.monotonic()
        self._outcomes: dict[str, Outcome] = {}
        self._end = "unfinished"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._outcomes[report.nodeid] = Outcome("failed")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._outcomes |= {item.nodeid: Outcome() for item in session.items}
        self._write()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._outcomes[report.nodeid].add(report)
        self._write()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.INTERRUPTED:
            self._end = "interrupted"
        elif all(outcome.result != "not run" for outcome in self._outcomes.values()):
            self._end = "finished"
        if (now := commit(self._repository, self._path)) != self._commit:
            self._end += f" at {now}"
        self._write()

    def _write(self) -> None:
        if not self._outcomes:
            return
        minutes = (time.monotonic() - self._start) / 60
        python = f"Python {platform.python_version()}"
        head = f"Commit {self._commit}, {machine()}, {python}, {self._end} after {minutes:.0f} minutes."
        rows = [outcome.row(node) for node, outcome in self._outcomes.items()]
        lines = ["# Slow tests", "", head, "", "| test | result | minutes | figures |", "|---|---|---|---|", *rows, ""]
        self._path.write_text("\n".join(lines), encoding="utf-8")


def machine() -> str:
    """Processor, cores and memory of this machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    kib = int(Path("/proc/meminfo").read_text().split()[1])
    return f"{models[0] if models else platform.machine()}, {len(models)} cores, {kib / 2**20:.0f} GiB"


def commit(repository: Path, page: Path) -> str:
    """The checkout's commit, and which files differ from it beside the page itself."""

    def git(*arguments: str) -> str:
        return subprocess.check_output(["git", *arguments], cwd=repository, text=True)

    # Paths as they are, relative to the repository: NUL-separated ones are never quoted.
    entries = git("status", "--porcelain", "--no-renames", "--untracked-files=all", "-z").split("\0")
    changed = [path for path in (e[3:] for e in entries if e) if (repository / path).resolve() != page.resolve()]
    head = f"`{git('rev-parse', '--short=12', 'HEAD').strip()}`"
    if not changed:
        return head
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"{head} with uncommitted changes (`{changed[0]}`{more})"


if __name__ == "__main__":
    code = pytest.main(["-m", "slow", *sys.argv[2:]], plugins=[Page(Path(sys.argv[1]), REPOSITORY)])
    sys.exit(code)
