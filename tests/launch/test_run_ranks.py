"""Ranks inside real Spark tasks: what they exchange, and how a run ends when one of them fails."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import rank_programs

from rec.core.errors import LoaderError, RankError, TrainingError
from rec.launch.config import LaunchConfig
from rec.launch.spark import run_ranks

LIMITS = LaunchConfig(heartbeat_s=8, phase_s=6)
# One whole run on two busy cores: Spark tasks, two torch imports, the longest limit, the stop.
ENDS_WITHIN_S = 60.0
# pytest-xdist gives each of its processes a name, which their children inherit.
TEST_PROCESS = "PYTEST_XDIST_WORKER"


def _listening_ports():
    return {c.laddr.port for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN}


def _wait_gone(pids, seconds=15.0):
    deadline = time.monotonic() + seconds
    while (alive := [p for p in pids if psutil.pid_exists(p)]) and time.monotonic() < deadline:
        time.sleep(0.2)
    return alive


def _rank_processes():
    """Return pids of ranks, their supervisors and what they started, of anybody's run but another test process's."""
    found = set()
    for process in psutil.process_iter(["pid", "cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        is_of_a_rank = any(part in line for part in ("rec.launch.rank", "gloo_exec_fn", "time.sleep(300)"))
        if is_of_a_rank and _test_process(process) in (None, os.environ.get(TEST_PROCESS)):
            found.add(process.info["pid"])
    return found


def _test_process(process):
    try:
        return process.environ().get(TEST_PROCESS)
    except psutil.Error:
        return None


@pytest.fixture
def leaves_nothing(spark):
    """Demand after a run: no process, no port, the caller's signal handlers, a usable session."""
    spark.range(1).count()
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    ports, hook, processes = _listening_ports(), threading.excepthook, _rank_processes()
    yield
    assert _wait_gone(_rank_processes() - processes) == []
    assert _listening_ports() - ports == set()
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert threading.excepthook is hook
    assert spark.range(10).count() == 10


def _fail(spark, tmp_path, kind, guilty, error=RankError):
    start = time.monotonic()
    with pytest.raises(error) as caught:
        run_ranks(spark, rank_programs.misbehave, [kind, guilty, str(tmp_path)], num_proc=2, config=LIMITS)
    assert time.monotonic() - start < ENDS_WITHIN_S
    pids = {int(p.name): p.read_text().split()[0] for p in tmp_path.iterdir()}
    return caught.value, str(caught.value), pids


def test_two_ranks_exchange_and_report(spark, leaves_nothing):
    beats = []
    results = run_ranks(
        spark, rank_programs.exchange, ["é"], num_proc=2, on_beat=lambda v: beats.append((v.rank, v.phase, v.step))
    )
    assert [r["rank"] for r in results] == [(0, 2, 0), (1, 2, 1)]
    assert len({r["pid"] for r in results} | {os.getpid()}) == 3
    for result in results:
        assert result["reduced"] == [[1.5] * 3, [0.0, 1.5], [0.5, 0.5], [[0.5, 0.5]] * 2, [3]]
        assert result["gathered"] == [{"rank": 0, "text": ""}, {"rank": 1, "text": "é"}]
        assert result["torch_group"][1:] == (2, "2")
        assert result["threads"][0] == int(result["threads"][1]) >= 1
    assert [r["arrived"] for r in results] == [[0, 10, 11, 12], [1, 2, 13]]
    assert {(0, "train", 1), (1, "train", 1)} <= set(beats)


def test_one_rank_is_a_world_of_its_own(spark, leaves_nothing):
    assert run_ranks(spark, rank_programs.alone, num_proc=1) == [([2.0], ["x"], [0, 1])]


def test_raise_ends_the_run_with_that_ranks_traceback(spark, tmp_path, leaves_nothing):
    _, text, pids = _fail(spark, tmp_path, "raise", 1)
    first, *rest = text.splitlines()
    assert first.startswith("rank 1 (host ")
    assert f"pid {pids[1]}) raised KeyError: 'no such thing' in phase train at step 2" in first
    assert any("rank_programs.py" in line and "_raise" in line for line in rest)


def test_a_users_mistake_found_by_rank_0_is_raised_as_itself(spark, tmp_path, leaves_nothing):
    error, text, _ = _fail(spark, tmp_path, "raise_mendable", 0, LoaderError)
    assert text == "num_streams=16: 3 ranks do not divide it; use 1, 2, 4, 8 or 16"
    assert str(error.__cause__).startswith("rank 0 (host ")


def test_killed_rank_is_named_with_signal_and_step(spark, tmp_path, leaves_nothing):
    _, text, pids = _fail(spark, tmp_path, "kill", 1)
    assert text.startswith("rank 1 (host ")
    assert f"pid {pids[1]}) was killed by SIGKILL in phase train at step 2" in text


def test_stopped_rank_is_named_and_killed(spark, tmp_path, leaves_nothing):
    _, text, pids = _fail(spark, tmp_path, "stop", 1)
    assert text.startswith("rank 1 (host ")
    assert f"pid {pids[1]}) hung in phase train at step 2: it sent no sign of life" in text
    assert "its process is stopped and gives no stacks" in text
    assert "rank 0" not in text


def test_spinning_rank_is_named_with_its_stacks(spark, tmp_path, leaves_nothing):
    _, text, pids = _fail(spark, tmp_path, "spin", 1)
    assert text.startswith("rank 1 (host ")
    assert f"pid {pids[1]}) hung in phase train at step 2: it made no progress for" in text
    assert "in _spin" in text
    assert "rank 0" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("exit", "ended by itself with exit code 3 in phase train at step 2, before its function returned\nleaving"),
        ("kill_supervisor", "was lost in phase"),
        ("stop_supervisor", "nothing answers on its host"),
    ],
)
def test_rank_that_leaves_without_a_word_is_named(spark, tmp_path, leaves_nothing, kind, expected):
    _, text, _ = _fail(spark, tmp_path, kind, 1)
    assert text.startswith("rank 1 (host ")
    assert expected in text


@pytest.mark.slow
def test_ranks_that_wait_for_a_long_phase_are_not_hung(spark, leaves_nothing):
    assert len(run_ranks(spark, rank_programs.long_phase, num_proc=2, config=LIMITS)) == 2


def test_too_few_slots_are_refused_before_anything_starts(spark):
    before = _rank_processes()
    with pytest.raises(TrainingError, match=r"num_proc=64.*local\[\d+\] has \d+ task slots; set spark.master to local"):
        run_ranks(spark, rank_programs.alone, num_proc=64)
    assert _rank_processes() <= before


def test_no_rank_at_all_is_refused(spark):
    with pytest.raises(TrainingError, match="num_proc=0: training needs at least one rank"):
        run_ranks(spark, rank_programs.alone, num_proc=0)


def test_a_function_that_ranks_cannot_import_is_refused(spark):
    with pytest.raises(TrainingError, match="cannot be imported by a rank"):
        run_ranks(spark, lambda ranks: None, num_proc=1)


def test_another_thread_than_the_main_one_is_refused(spark):
    raised = []

    def call():
        try:
            run_ranks(spark, rank_programs.alone, num_proc=1)
        except TrainingError as error:
            raised.append(str(error))

    thread = threading.Thread(target=call, name="worker-7")
    thread.start()
    thread.join()
    assert "thread 'worker-7'" in raised[0]


DRIVER = """
import sys
import rank_programs
from rec.etl.session import spark_session
from rec.launch.spark import run_ranks
spark = spark_session(sys.argv[1])
try:
    run_ranks(spark, rank_programs.wait_for_ever, [sys.argv[2]], num_proc=2)
except KeyboardInterrupt:
    assert spark.range(3).count() == 3
    sys.exit(77)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 77), (signal.SIGKILL, -signal.SIGKILL)])
def test_ranks_end_with_their_driver(tmp_path, number, code):
    conf = Path(__file__).parents[2] / "conf/spark/local.conf"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(conf), str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 90
        while len(list(tmp_path.iterdir())) < 2:
            assert driver.poll() is None, driver.returncode
            assert time.monotonic() < deadline
            time.sleep(0.2)
        time.sleep(1.0)
        pids = [int(p) for file in tmp_path.iterdir() for p in file.read_text().split()]
        assert all(psutil.pid_exists(p) for p in pids)
        driver.send_signal(number)
        assert driver.wait(60) == code
        assert _wait_gone(pids) == []
    finally:
        driver.kill()
        driver.wait()
