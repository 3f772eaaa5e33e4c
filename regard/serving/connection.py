"""A connection of the server: its limits of time and size, and how it sends.

uvicorn closes connections that are idle after a response. But it waits for ever for the first byte, the rest of the
headers or the rest of a body, and accepts headers of any size.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_SECONDS = 30.0  # a connection whose request is still incomplete after this time is closed before the next check
MAX_HEAD_BYTES = 2**14  # of the address and the headers of a request, unless the server's settings say otherwise


class HeadTooLargeError(Exception):
    """Raised inside the parser, which then refuses the request."""


class Connection(HttpToolsProtocol):
    """Checks every REQUEST_SECONDS whether the request that was incomplete at the last check still is."""

    incomplete: Any = False  # what was being received at the last check; False: nothing
    timer: asyncio.TimerHandle | None = None
    in_head = True  # whether the next bytes belong to the address and headers of a request
    head_bytes = 0  # of the headers that the parser has completed
    unparsed_bytes = 0  # received for the request whose headers are not complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        self._check()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.unparsed_bytes += len(data)
        super().data_received(data)
        if self.in_head and self.unparsed_bytes > self.max_head_bytes and not self.transport.is_closing():
            self.send_400_response("the headers are too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.head_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.in_head = False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.in_head, self.unparsed_bytes = True, 0

    @property
    def max_head_bytes(self) -> int:
        return self.config.h11_max_incomplete_event_size or MAX_HEAD_BYTES

    def _count_head(self, size: int) -> None:
        self.head_bytes += size
        if self.head_bytes > self.max_head_bytes:
            raise HeadTooLargeError

    def _check(self) -> None:
        receives_body = not self.in_head
        receiving = receives_body or self.cycle is None or self.cycle.response_complete
        if receiving and self.incomplete is self.cycle:  # the cycle is None before the first request
            self.transport.close()
            return
        self.incomplete = self.cycle if receiving else False
        self.timer = self.loop.call_later(REQUEST_SECONDS, self._check)


class JoinedWrites:
    """A transport that sends the headers of a response together with the beginning of its body."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport, self.loop = transport, loop
        self.headers = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def write(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 ") and not self.headers:
            self.headers = data
            self.loop.call_soon(self.flush)  # if the body takes longer
        else:
            headers, self.headers = self.headers, b""
            self.transport.write(headers + data)

    def flush(self) -> None:
        if self.headers:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self.transport.close()
