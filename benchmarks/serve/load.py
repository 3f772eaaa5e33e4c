"""Send requests to a server from many clients at a time, over connections that stay open, and time the answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

HEALTH_INTERVAL = 0.1  # seconds between two requests for /health
Text = str | list[str]


@dataclass
class Load:
    """What the clients saw."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)  # seconds of each answered request
    short: list[float] = field(default_factory=list)  # of those, the requests with a short text
    health: list[float] = field(default_factory=list)
    texts: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list)  # (text, wrong translation)
    statuses: dict[int, int] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """Return throughput and latencies, in texts per second and milliseconds."""
        p50, p99 = percentiles(self.latencies)
        return {
            "texts_per_second": round(self.texts / self.seconds, 1),
            "p50_ms": p50,
            "p99_ms": p99,
            "short_p50_ms": percentiles(self.short)[0],
            "health_p99_ms": percentiles(self.health)[1],
            "requests": len(self.latencies),
            "wrong": len(self.wrong),
            "statuses": self.statuses,
        }


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile in milliseconds."""
    if len(seconds) < 2:
        return 0.0, 0.0
    cuts = quantiles(seconds, n=100, method="inclusive")
    return round(1000 * cuts[49], 2), round(1000 * cuts[98], 2)


def translate_request(q: Text) -> bytes:
    body = json.dumps({"q": q, "source": "fr", "target": "en"}).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    return head.encode() + b"\r\n\r\n" + body


HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Client(asyncio.Protocol):
    """Sends one request after the other over a connection that stays open, with as little work of its own as it can.

    It reads just enough of HTTP for answers with a length. `next_request` returns None at the end; `on_answer` gets the
    status, the body and the seconds. If the server closes the connection, the client opens another one.
    """

    def __init__(
        self, port: int, next_request: Callable[[], bytes | None], on_answer: Callable[[int, bytes, float], None]
    ) -> None:
        self.port, self.next_request, self.on_answer = port, next_request, on_answer
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self.loop.create_future()
        self.received = bytearray()
        self.waits = False  # for an answer

    async def run(self) -> None:
        """Send all requests."""
        await self._connect()
        await self.done

    async def _connect(self) -> None:
        await self.loop.create_connection(lambda: self, "127.0.0.1", self.port)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.send()

    def send(self) -> None:
        request = self.next_request()
        if request is None:
            self.done.set_result(None)
            self.transport.close()
            return
        self.waits, self.sent = True, time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head_end = self.received.find(b"\r\n\r\n") + 4
        if head_end < 4:
            return
        head = self.received[:head_end].lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(self.received) < head_end + length:
            return
        body = bytes(self.received[head_end:])
        self.received.clear()
        self.waits = False
        self.on_answer(int(head.split(b" ", 2)[1]), body, time.perf_counter() - self.sent)
        if b"\r\nconnection: close" in head:
            self.transport.close()
        else:
            self.send()

    def connection_lost(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if self.waits:
            self.done.set_exception(error or ConnectionError("the server closed the connection without an answer"))
        else:
            self.loop.create_task(self._connect())


async def run_load(
    port: int,
    texts: Iterator[Text],
    *,
    clients: int,
    seconds: float,
    expected: dict[str, str] | None,
    is_short: Callable[[Text], bool] = lambda text: True,
) -> Load:
    """Let each client send one request after the other. After the load, every answer is compared with the expected."""
    load, start = Load(), time.perf_counter()
    end = start + seconds
    answers: list[tuple[Text, bytes]] = []

    def client() -> Client:
        q: Text = ""

        def next_request() -> bytes | None:
            nonlocal q
            if time.perf_counter() > end:
                return None
            q = next(texts)
            return translate_request(q)

        def on_answer(status: int, body: bytes, took: float) -> None:
            load.statuses[status] = load.statuses.get(status, 0) + 1
            if status == 200:
                load.latencies.append(took)
                answers.append((q, body))
                if is_short(q):
                    load.short.append(took)

        return Client(port, next_request, on_answer)

    await asyncio.gather(ask_health(port, load, end), *(client().run() for _ in range(clients)))
    load.seconds = time.perf_counter() - start
    for q, body in answers:
        compare(q, json.loads(body)["translatedText"], load, expected)
    return load


async def ask_health(port: int, load: Load, end: float) -> None:
    """Ask for /health at fixed intervals, each time with a connection of its own, as a probe does."""
    while time.perf_counter() < end:
        requests = iter([HEALTH])
        await Client(port, lambda: next(requests, None), lambda status, body, took: load.health.append(took)).run()  # noqa: B023
        await asyncio.sleep(HEALTH_INTERVAL)


def compare(q: Text, answer: Any, load: Load, expected: dict[str, str] | None) -> None:
    """Count the texts of an answer, and keep those whose translation differs from the expected one."""
    pairs = [(q, answer)] if isinstance(q, str) else list(zip(q, answer, strict=True))
    load.texts += len(pairs)
    if expected is not None:
        load.wrong += [(text, found) for text, found in pairs if found != expected[text]]
