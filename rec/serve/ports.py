"""TCP ports of a server: given ones must be free, others are picked."""

import errno
import os
import socket
from pathlib import Path

from rec.core.errors import ServingError


def free_port(host: str) -> int:
    """Return a port that nothing listens on at this moment."""
    with socket.socket(_family(host)) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def check_port(host: str, port: int, field: str) -> None:
    """Raise ServingError naming port, process and remedy where something already listens there."""
    with socket.socket(_family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                cause = f"in use by {_listener(port)}"
            else:
                cause = f"cannot be bound on {host}: {os.strerror(error.errno or 0)}"
            raise ServingError(f"{field} {port}: {cause}; stop that process or set {field} to another port") from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _listener(port: int) -> str:
    """Return "process PID (command)" of what listens on a port, as far as this user may see it."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:] if Path(table).exists() else []:
            fields = line.split()
            # Columns: 1 local address (hex ip:port), 3 state (0A listening), 9 inode.
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(fd) in inodes for fd in (process / "fd").iterdir()):
                return f"process {process.name} ({(process / 'comm').read_text().strip()})"
        except OSError:
            continue
    return "another user's process"
