"""TCP ports of a server: given ones must be free, others are picked."""

import errno
import os
import socket
from pathlib import Path

from rec.core.errors import ServingError


def free_port(host: str) -> int:
    """Return a port that nothing listens on at this moment."""
    with socket.socket(_family(host)) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise _unusable_host(host, error) from None
        return probe.getsockname()[1]


def check_port(host: str, port: int, field: str) -> None:
    """Raise ServingError naming port, process and remedy where something already listens there, or nothing may."""
    with socket.socket(_family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                cause = f"in use by {_listener(port)}; stop that process or set {field} to another port"
            elif error.errno == errno.EACCES:
                cause = f"{error.strerror}; set {field} to 1024 or above"
            else:
                raise _unusable_host(host, error) from None
            raise ServingError(f"{field} {port}: {cause}") from None


def _unusable_host(host: str, error: OSError) -> ServingError:
    return ServingError(f"serve.host {host}: cannot be bound: {error.strerror}; set it to an address of this machine")


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
