"""A place to listen, and a server that listens there until it is told to end."""

from __future__ import annotations

import errno
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from regard.errors import UsageError

TRIES = 20  # ports, one after the other
DRAIN = 10  # seconds for what is under way when the server ends


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own, which no other can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket at this port, or where it is in use at one of the next. Port 0 is any that is free."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UsageError(f"--host {host}: {error.strerror or error}") from error
    except UnicodeError as error:  # Python's way to say so
        raise UsageError(f"--host {host} cannot be a name: a part between its dots is empty or too long") from error
    family, kind, protocol, _, address = found[0]
    for number in range(port, min(port + TRIES, 2**16)) if port else (0,):
        place = socket.socket(family, kind, protocol)
        try:
            # Connections of a server that has just ended may linger; elsewhere than on Windows this lets them.
            if hasattr(signal, "SIGHUP"):
                place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind((address[0], number, *address[2:]))
            place.listen(128)
            return place
        except OSError as error:
            place.close()
            if error.errno != errno.EADDRINUSE:
                raise UsageError(f"cannot listen at {host}, port {number}: {error.strerror or error}") from error
    raise UsageError(f"the ports {port} to {number} are all in use: choose another with --port, or any free one with 0")


def serve_until_told(app: Any, place: socket.socket, *, begin: Callable[[], None]) -> NoReturn:
    """Answer requests until Ctrl-C or SIGTERM comes; then let those under way end, and end the process with 130 or 143.

    `begin` starts the models' threads. One of them may be inside PyTorch at the end, whose C++ does not survive the end
    of Python around it. So Python does not end: the process does; and no thread begins before signals are obeyed.
    """
    import uvicorn

    server = uvicorn.Server(
        uvicorn.Config(
            app, log_level="warning", access_log=False, ws="none", server_header=False, timeout_graceful_shutdown=DRAIN
        )
    )
    code = 0

    def told(number: int, frame: object) -> None:
        nonlocal code
        code = 128 + number
        server.should_exit = True  # also when it comes before uvicorn listens for signals itself

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, told)  # uvicorn obeys them while it runs, and hands them on at its end
    begin()
    server.run(sockets=[place])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
