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


class Connection:
    """A connection that stays open. It reads just enough of HTTP for answers with a length."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        if self.reader is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await self.reader.readexactly(length)
        if b"\r\nconnection: close" in head:
            self.close()
        return int(head.split(b" ", 2)[1]), body

    def close(self) -> None:
        if self.reader is not None:
            self.writer.close()
            self.reader = None


def translate_request(q: Text) -> bytes:
    body = json.dumps({"q": q, "source": "fr", "target": "en"}).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    return head.encode() + b"\r\n\r\n" + body


HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def run_load(
    port: int,
    texts: Iterator[Text],
    *,
    clients: int,
    seconds: float,
    expected: dict[str, str] | None,
    is_short: Callable[[Text], bool] = lambda text: True,
) -> Load:
    """Let each client send one request after the other. Every answer is compared with the expected one."""
    load, start = Load(), time.perf_counter()
    end = start + seconds

    async def client() -> None:
        connection = Connection(port)
        while time.perf_counter() < end:
            q = next(texts)
            request, sent = translate_request(q), time.perf_counter()
            status, body = await connection.ask(request)
            took = time.perf_counter() - sent
            load.statuses[status] = load.statuses.get(status, 0) + 1
            if status != 200:
                continue
            load.latencies.append(took)
            if is_short(q):
                load.short.append(took)
            answer = json.loads(body)["translatedText"]
            pairs = [(q, answer)] if isinstance(q, str) else list(zip(q, answer, strict=True))
            load.texts += len(pairs)
            if expected is not None:
                load.wrong += [(text, found) for text, found in pairs if found != expected[text]]
        connection.close()

    async def ask_health() -> None:
        connection = Connection(port)
        while time.perf_counter() < end:
            sent = time.perf_counter()
            await connection.ask(HEALTH)
            load.health.append(time.perf_counter() - sent)
            await asyncio.sleep(HEALTH_INTERVAL)
        connection.close()

    await asyncio.gather(ask_health(), *(client() for _ in range(clients)))
    load.seconds = time.perf_counter() - start
    return load
