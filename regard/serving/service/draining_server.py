"""A server that finishes its requests before it stops: SIGTERM and Ctrl-C start the drain, SIGHUP reloads.

While it drains, /ready and new requests get 503, so that a balancer sends them to another server.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import uvicorn

from regard.serving.listener import server_config
from regard.serving.service.request_log import RequestLog
from regard.serving.service.service import Service
from regard.system.process_exit import stop_signals

MIN_DRAIN_SECONDS = 0.5  # so that requests that were just sent get their 503
SWITCH_SECONDS = 0.001  # between threads that run Python; with 5 ms, requests wait too long for the models' threads
CLOSE_SECONDS = 1  # for responses that are still running after the drain


def service_config(service: Service, app: RequestLog) -> uvicorn.Config:
    """Return the settings of the server."""
    config = server_config(app)
    config.limit_concurrency = service.limits.connections
    config.timeout_graceful_shutdown = CLOSE_SECONDS
    config.h11_max_incomplete_event_size = service.limits.header_bytes  # our Connection reads it
    return config


class DrainingServer(uvicorn.Server):
    """Stops when no request is running any more, at the latest after `drain_seconds`; a second signal stops at once."""

    def __init__(self, service: Service, app: RequestLog, drain_seconds: float) -> None:
        super().__init__(service_config(service, app))
        self.service, self.log, self.drain_seconds = service, app, drain_seconds
        self.stop_time = float("inf")
        self.exit_code = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the drain; called by uvicorn's signal handlers, and by ours before uvicorn installs them."""
        if self.service.stopping:
            self.should_exit = self.force_exit = True
        self.exit_code = 128 + sig
        self.service.stopping = True
        self.stop_time = time.monotonic()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop; uvicorn asks ten times a second."""
        drained = time.monotonic() - self.stop_time
        if drained > self.drain_seconds - CLOSE_SECONDS or (drained > MIN_DRAIN_SECONDS and not self.log.running):
            self.should_exit = True
        return await super().on_tick(counter)


def serve_until_stopped(
    service: Service, app: RequestLog, listening: socket.socket, *, begin: Callable[[], None], drain_seconds: float
) -> NoReturn:
    """Serve until SIGTERM or Ctrl-C, finish the running requests, and exit the process with code 143 or 130.

    `begin` starts the loading of the models, after the signal handlers are installed. As in `serve_until_interrupted`,
    the process exits without shutting the interpreter down.
    """
    server = DrainingServer(service, app, drain_seconds)
    hang_up = getattr(signal, "SIGHUP", None)  # Windows has none
    for number in stop_signals():
        if number != hang_up:
            signal.signal(number, server.handle_exit)
    if hang_up is not None:
        signal.signal(hang_up, lambda number, frame: service.reload())
    sys.setswitchinterval(SWITCH_SECONDS)
    begin()
    server.run(sockets=[listening])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(server.exit_code)
