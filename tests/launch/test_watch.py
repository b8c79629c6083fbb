"""Verdicts from what ranks say and do not say, on a clock of the test's."""

import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client

import pytest

from rec.core.errors import LoaderError, RankError
from rec.launch.config import LaunchConfig
from rec.launch.watch import SETTLE_S, Watch
from rec.launch.watchdog import Watchdog
from rec.launch.wire import connect, receive, send

LIMITS = LaunchConfig(start_s=30, heartbeat_s=10, phase_s=20)
OWN_CODE = 'Current thread 0x1 (most recent call first):\n  File "/app/model.py", line 3 in forward\n'
IN_EXCHANGE = 'Thread 0x2 (most recent call first):\n  File "/x/horovod/torch/mpi_ops.py", line 9 in synchronize\n'


def _watch(num_proc=2):
    watch = Watch(num_proc, LIMITS, 0.0)
    for rank in range(num_proc):
        watch.hear(rank, {"kind": "hello", "host": f"node{rank}", "pid": 100 + rank}, 0.0)
        _beat(watch, rank, 0.0)
    return watch


def _beat(watch, rank, now, idle_s=0.0, step=5):
    beat = {"kind": "beat", "phase": "train", "step": step, "idle_s": idle_s, "limit_s": 20.0, "figures": {}}
    watch.hear(rank, beat, now)


def _error(rank, kind="ValueError", mendable=False, in_exchange=False):
    return {
        "kind": "error",
        "type": kind,
        "message": f"of {rank}",
        "mendable": mendable,
        "in_exchange": in_exchange,
        "traceback": f"Traceback of {rank}",
    }


def _answer(watch, rank, now, stacks, state="S"):
    watch.hear(rank, {"kind": "stacks", "text": stacks, "state": state, "phase": "train", "step": 6}, now)


def test_a_healthy_run_has_no_verdict():
    watch = _watch()
    for now in range(1, 100):
        _beat(watch, 0, float(now))
        _beat(watch, 1, float(now), idle_s=19.0)
        assert watch.verdict(float(now)) is None
        assert not watch.wants_stacks(float(now))


def test_the_cause_wins_over_the_broken_exchange_heard_before_it():
    watch = _watch()
    watch.hear(0, _error(0, "HorovodInternalError", in_exchange=True), 1.0)
    assert watch.verdict(1.5) is None
    watch.hear(1, {"kind": "exit", "code": -9, "phase": "train", "step": 7}, 2.0)
    text = str(watch.verdict(1.0 + SETTLE_S + 0.1))
    assert text.startswith("rank 1 (host node1, pid 101) was killed by SIGKILL in phase train at step 7")


def test_of_two_causes_the_first_is_told():
    watch = _watch()
    watch.hear(1, _error(1), 1.0)
    watch.hear(0, _error(0), 1.1)
    assert str(watch.verdict(4.0)) == (
        "rank 1 (host node1, pid 101) raised ValueError: of 1 in phase train at step 5\nTraceback of 1"
    )


def test_a_broken_exchange_alone_is_told():
    watch = _watch()
    watch.hear(0, _error(0, "RuntimeError", in_exchange=True), 1.0)
    assert "rank 0 (host node0, pid 100) raised RuntimeError" in str(watch.verdict(4.0))


def test_a_users_mistake_keeps_its_class_and_text():
    watch = _watch()
    watch.hear(1, _error(1, "LoaderError", mendable=True), 1.0)
    error = watch.verdict(4.0)
    assert type(error) is LoaderError
    assert str(error) == "of 1"
    assert type(error.__cause__) is RankError


def test_a_rank_is_not_blamed_for_how_it_ends_after_its_result():
    watch = _watch(1)
    watch.hear(0, {"kind": "result"}, 1.0)
    watch.hear(0, {"kind": "exit", "code": -11}, 2.0)
    watch.hear(0, {"kind": "lost"}, 2.0)
    assert watch.verdict(10.0) is None


def test_an_end_without_result_is_told_with_the_last_output():
    watch = _watch(1)
    watch.hear(0, {"kind": "alive", "state": "S", "lines": ["terminate called"]}, 1.0)
    watch.hear(0, {"kind": "exit", "code": -6}, 2.0)
    assert str(watch.verdict(2.1)) == (
        "rank 0 (host node0, pid 100) was killed by SIGABRT in phase train at step 5\nterminate called"
    )


def test_a_lost_supervisor_is_told():
    watch = _watch()
    watch.hear(1, {"kind": "lost"}, 1.0)
    assert "rank 1 (host node1, pid 101) was lost in phase train at step 5" in str(watch.verdict(4.0))


def test_silence_is_told_of_the_silent_rank_alone():
    watch = _watch()
    _beat(watch, 0, 11.0, idle_s=25.0)
    assert watch.verdict(11.0) is None
    assert watch.wants_stacks(11.0)
    assert not watch.wants_stacks(11.1)
    _answer(watch, 0, 11.2, IN_EXCHANGE)
    _answer(watch, 1, 11.3, "", state="T")
    text = str(watch.verdict(11.4))
    assert text.startswith(
        "rank 1 (host node1, pid 101) hung in phase train at step 6: it sent no sign of life for 11 s"
    )
    assert "its process is stopped" in text
    assert "rank 0" not in text


def test_a_late_rank_is_told_with_stacks_and_not_those_that_wait_for_it():
    watch = _watch(3)
    for rank in range(3):
        _beat(watch, rank, 5.0, idle_s=21.0)
    assert watch.wants_stacks(5.0)
    _answer(watch, 0, 5.1, IN_EXCHANGE)
    _answer(watch, 1, 5.1, OWN_CODE)
    assert watch.verdict(5.2) is None
    _answer(watch, 2, 5.3, IN_EXCHANGE)
    text = str(watch.verdict(5.4))
    assert text.startswith("rank 1 (host node1, pid 101) hung in phase train at step 6: it made no progress for 21 s")
    assert "line 3 in forward" in text
    assert "rank 0" not in text
    assert "rank 2" not in text


def test_ranks_that_wait_for_one_within_its_limit_are_asked_again_later():
    watch = _watch()
    _beat(watch, 0, 5.0, idle_s=21.0)
    _beat(watch, 1, 5.0, idle_s=3.0)
    assert watch.wants_stacks(5.0)
    _answer(watch, 0, 5.1, IN_EXCHANGE)
    _answer(watch, 1, 5.1, OWN_CODE)
    assert watch.verdict(5.2) is None
    assert not watch.wants_stacks(6.0)
    assert watch.wants_stacks(10.5)


def test_after_a_recovery_a_later_hang_is_told_by_its_own_stacks():
    watch = _watch()
    _beat(watch, 0, 20.0, idle_s=21.0)
    _beat(watch, 1, 20.0, idle_s=21.0)
    assert watch.wants_stacks(21.0)
    _answer(watch, 0, 21.5, IN_EXCHANGE)
    _answer(watch, 1, 21.5, OWN_CODE)
    # Before the verdict both go on, and much later it is rank 0 that spins.
    for now in (22.0, 300.0):
        _beat(watch, 0, now, step=9)
        _beat(watch, 1, now, step=9)
        assert watch.verdict(now) is None
    _beat(watch, 0, 330.0, idle_s=25.0, step=500)
    _beat(watch, 1, 330.0, idle_s=25.0, step=500)
    assert watch.verdict(330.0) is None
    assert watch.wants_stacks(330.0)
    _answer(watch, 0, 330.5, OWN_CODE)
    _answer(watch, 1, 330.5, IN_EXCHANGE)
    text = str(watch.verdict(331.0))
    assert text.startswith("rank 0 (host node0, pid 100) hung")
    assert "rank 1" not in text


def test_ranks_that_all_wait_for_each_other_are_all_told():
    watch = _watch()
    for rank in range(2):
        _beat(watch, rank, 5.0, idle_s=21.0)
    assert watch.wants_stacks(5.0)
    for rank in range(2):
        _answer(watch, rank, 5.1, IN_EXCHANGE)
    text = str(watch.verdict(5.2))
    assert "rank 0 (host node0" in text
    assert "rank 1 (host node1" in text


def test_a_pause_of_the_driver_is_forgiven():
    watch = _watch()
    watch.resume(600.0)
    assert not watch.wants_stacks(605.0)
    assert watch.wants_stacks(611.0)


def test_ranks_that_never_report_are_told():
    watch = Watch(2, LIMITS, 0.0)
    watch.hear(0, {"kind": "hello", "host": "node0", "pid": 100}, 1.0)
    _beat(watch, 0, 60.9)
    assert watch.verdict(60.9 - 1) is None
    assert r"ranks [1] did not report within twice start_s=30" in str(watch.verdict(61.0))


def test_the_listener_refuses_a_stranger_and_hears_a_supervisor():
    with Watchdog("127.0.0.1", "127.0.0.1", 1, LIMITS, lambda: None) as dog:
        with pytest.raises(AuthenticationError):
            Client(dog.address, authkey=b"guessed")
        assert dog.unheard() == [0]
        with connect(dog.address, dog.token) as supervisor:
            send(supervisor, "hello", rank=0, host="node0", pid=7)
            send(supervisor, **_error(0))
            assert receive(supervisor)["kind"] == "noted"
            send(supervisor, "exit", code=1)
            assert receive(supervisor)["kind"] == "stop"
    assert str(dog.verdict).startswith("rank 0 (host node0, pid 7) raised ValueError: of 0")
    with pytest.raises(ConnectionRefusedError):
        connect(dog.address, dog.token)


@pytest.mark.parametrize("error", [BrokenPipeError(32, "closed"), SystemExit(1)], ids=["error", "rich leaves"])
def test_a_progress_display_that_fails_does_not_end_the_watch(error, caplog):
    shown = []

    def display(view):
        shown.append(view.rank)
        raise error

    silent = LaunchConfig(start_s=30, heartbeat_s=1, phase_s=20)
    with Watchdog("127.0.0.1", "127.0.0.1", 1, silent, lambda: None) as dog:
        dog.on_beat = display
        supervisor = connect(dog.address, dog.token)
        send(supervisor, "hello", rank=0, host="node0", pid=1)
        for _ in range(2):
            send(supervisor, "beat", phase="train", step=5, idle_s=0.0, limit_s=20.0, figures={})
        # From then on it is silent: the watch must find that out and have it stopped.
        kinds = [receive(supervisor)["kind"] for _ in range(2)]
        supervisor.close()
    assert kinds == ["stacks", "stop"]
    assert "sent no sign of life" in str(dog.verdict)
    assert shown == [0]
    assert "progress is shown no more" in caplog.text


@pytest.mark.parametrize("place", ["hear", "wants_stacks", "verdict"])
def test_a_watch_that_fails_ends_the_run(monkeypatch, place):
    heard = Watch.hear

    def fail(_self, *arguments):
        if place != "hear" or arguments[1]["kind"] == "beat":
            raise RuntimeError("a fault of the watch")
        heard(_self, *arguments)

    monkeypatch.setattr(Watch, place, fail)
    cancelled = []
    with Watchdog("127.0.0.1", "127.0.0.1", 1, LIMITS, lambda: cancelled.append(1) or 1 / 0) as dog:
        supervisor = connect(dog.address, dog.token)
        send(supervisor, "hello", rank=0, host="node0", pid=1)
        for _ in range(3):
            send(supervisor, "beat", phase="train", step=5, idle_s=0.0, limit_s=20.0, figures={})
        deadline = time.monotonic() + 10
        while not cancelled and time.monotonic() < deadline:
            time.sleep(0.05)
        supervisor.close()
    assert cancelled == [1]
    assert str(dog.verdict) == (
        "the watch over the ranks failed, so the run was ended: RuntimeError('a fault of the watch')"
    )
