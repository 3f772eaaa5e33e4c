"""A connection of the server that is closed if its request does not arrive in time.

uvicorn closes connections that are idle after a response, but waits for ever for the first byte, the rest of the
headers or the rest of a body.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 30.0  # a connection whose request is still incomplete after this time is closed before the next check


class Connection(H11Protocol):
    """Checks every REQUEST_SECONDS whether the request that was incomplete at the last check still is."""

    incomplete: Any = False  # what was being received at the last check; False: nothing
    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._check()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        super().connection_lost(exc)

    def _check(self) -> None:
        receiving = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if receiving and self.incomplete is self.cycle:  # the cycle is None before the first request
            self.transport.close()
            return
        self.incomplete = self.cycle if receiving else False
        self.timer = self.loop.call_later(REQUEST_SECONDS, self._check)
