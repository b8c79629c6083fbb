"""Messages between driver, supervisors and ranks: JSON in length-prefixed frames, both ends proved by a token."""

import ctypes
import json
import os
import signal
import socket
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from typing import Any

NOTE_BYTES = 256
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the driver hands to each supervisor: where to report, what to run, and within which limits."""

    address: tuple[str, int]
    token: bytes
    program: bytes
    num_threads: int | None
    python_path: str


def send(connection: Connection, kind: str, **content: Any) -> None:
    """Send one message. Raises OSError when the other end is gone."""
    connection.send_bytes(json.dumps({"kind": kind, **content}).encode())


def receive(connection: Connection) -> dict[str, Any]:
    """Return the next message. Raises EOFError or OSError when the other end is gone."""
    return json.loads(connection.recv_bytes())


def connect(address: tuple[str, int], token: bytes) -> Connection:
    """Connect to the driver and prove the token to each other."""
    connection = Client(address, authkey=token)
    bound_silence(connection)
    return connection


def bound_silence(connection: Connection, seconds: int = 20) -> None:
    """Let the kernel break a connection whose other host stopped answering."""
    with socket.socket(fileno=os.dup(connection.fileno())) as view:
        view.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            view.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000)


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when process ``parent``, which started it, ends for whatever reason."""
    if hasattr(ctypes.CDLL(None), "prctl"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It ended before the request was made: the kernel sends nothing for that.
        os._exit(1)
