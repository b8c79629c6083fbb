"""Run a command for as long as another process lives: ``python supervise.py OWNER_PID COMMAND...``.

A child that dies with its parent by PR_SET_PDEATHSIG dies with the parent's *thread*; a server started from a thread
of a notebook or of Spark would go with that thread. This process watches the owner instead, and the command dies with
this process. It loads nothing but the standard library.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

GRACE_S = 10.0
_TURN_S = 0.2
_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    owner, command = int(argv[0]), argv[1:]
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: stopping.append(received))
    libc = ctypes.CDLL(None)
    child = subprocess.Popen(command, preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))
    while not stopping and os.getppid() == owner:
        try:
            return child.wait(_TURN_S)
        except subprocess.TimeoutExpired:
            continue
    return _stop(child)


def _stop(child: subprocess.Popen) -> int:
    """End the command: asked first, killed after the grace period."""
    child.terminate()
    deadline = time.monotonic() + GRACE_S
    while child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    child.kill()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
