"""A listening socket, and a server that runs until it is interrupted."""

from __future__ import annotations

import errno
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import uvicorn

from regard.errors import UsageError
from regard.serving.connection import Connection
from regard.system import allow_port_reuse
from regard.system.process_exit import stop_signals

PORTS_TRIED = 20  # consecutive ports
DRAIN_SECONDS = 10  # for running requests when the server stops


def is_loopback(host: str) -> bool:
    """Return whether a name or an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int, *, ports: int | None = None) -> socket.socket:
    """Open a socket at this port, or at one of the next ports if it is in use, `ports` in all. Port 0: any free one."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UsageError(f"--host {host}: {error.strerror or error}") from error
    except UnicodeError as error:  # raised by the IDNA codec
        raise UsageError(
            f"--host {host} is not a valid host name: a part between its dots is empty or too long"
        ) from error
    family, kind, protocol, _, address = addresses[0]
    for number in range(port, min(port + (ports or PORTS_TRIED), 2**16)) if port else (0,):
        listening = socket.socket(family, kind, protocol)
        try:
            allow_port_reuse(listening)
            listening.bind((address[0], number, *address[2:]))
            listening.listen(128)
            return listening
        except OSError as error:
            listening.close()
            if error.errno != errno.EADDRINUSE:
                raise UsageError(f"cannot listen on {host}, port {number}: {error.strerror or error}") from error
    in_use = f"port {port} is" if number == port else f"ports {port} to {number} are all"
    raise UsageError(f"{in_use} in use: choose another with --port, or use --port 0 for any free port")


def server_config(app: Any) -> uvicorn.Config:
    """Return the settings of the server."""
    return uvicorn.Config(
        app,
        http=Connection,
        log_level="warning",
        access_log=False,
        ws="none",
        server_header=False,
        proxy_headers=False,  # nothing here depends on the client's address
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )


def serve_until_interrupted(app: Any, listening: socket.socket, *, begin: Callable[[], None]) -> NoReturn:
    """Serve until Ctrl-C or SIGTERM, finish running requests, and exit the process with code 130 or 143.

    `begin` starts the threads of the models; it runs after the signal handlers are installed. A thread may still be
    inside PyTorch at the end, and its C++ code does not survive the shutdown of the interpreter. So the process exits
    without shutting the interpreter down.
    """
    server = uvicorn.Server(server_config(app))
    code = 0

    def stop(number: int, frame: object) -> None:
        nonlocal code
        code = 128 + number
        server.should_exit = True  # also if the signal arrives before uvicorn handles signals itself

    for number in stop_signals():
        signal.signal(number, stop)  # uvicorn handles them while it runs and raises them again at its end
    begin()
    server.run(sockets=[listening])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
