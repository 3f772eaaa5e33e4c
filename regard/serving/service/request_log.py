"""The outermost middleware of `regard serve`: request ids, the time limit, the access log, and metrics."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serving.keys import ANONYMOUS, Key
from regard.serving.service.errors import refuse
from regard.serving.service.metrics import Metrics
from regard.serving.waiting import CLIENT_CLOSED

REQUEST_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
OPERATIONS = ("/health", "/ready", "/metrics")  # answered while the server stops, too

LogFormat = Literal["json", "text", "off"]


@dataclass
class RequestRecord:
    """What the access log tells about a request. It never contains texts or keys."""

    id: str
    started: float = field(default_factory=time.monotonic)
    status: int = 0
    texts: int = 0
    prompt_tokens: int = 0
    written_tokens: int = 0
    queued: float = 0.0  # seconds that its texts waited
    worked: float = 0.0  # seconds from the first batch with one of its texts to the last


class RequestLog:
    """Gives each request an id and a record, ends it when its time is over, and logs and counts it.

    `routes` are the known paths; others count as "other". While `stopping()` is true, new requests are refused.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        seconds: float,
        routes: Collection[str],
        stopping: Callable[[], bool],
        log: LogFormat,
    ) -> None:
        self.app, self.metrics, self.seconds, self.stopping, self.log = app, metrics, seconds, stopping, log
        self.routes = frozenset(routes)
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = Headers(scope=scope).get("x-request-id", "")
        scope["regard.id"] = sent if REQUEST_ID.fullmatch(sent) else secrets.token_hex(8)
        scope["regard.record"] = record = RequestRecord(scope["regard.id"])

        async def send_recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
            await send(message)

        self.running += 1
        try:
            await self._answer(scope, receive, send_recorded, record)
        finally:
            self.running -= 1
            self._count(scope, record)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, record: RequestRecord) -> None:
        path = scope["path"]
        if self.stopping() and path not in OPERATIONS:
            self.metrics.rejected.labels("stopping").inc()
            await refuse_stopping(path)(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.seconds):
                await self.app(scope, receive, send)
        except TimeoutError:
            self.metrics.rejected.labels("time").inc()
            if record.status:
                raise  # in the middle of a response: uvicorn closes the connection
            message = f"the request took more than {self.seconds:g} seconds: send fewer or shorter texts"
            await refuse(path, 504, message)(scope, receive, send)
        except asyncio.CancelledError:  # the drain is over, and this request has not been answered
            if not record.status:
                await refuse_stopping(path)(scope, receive, send)
            raise

    def _count(self, scope: Scope, record: RequestRecord) -> None:
        route, seconds = self._route(scope["path"]), time.monotonic() - record.started
        key: Key = scope.get("regard.key") or ANONYMOUS
        self.metrics.requests.labels(route, record.status).inc()
        self.metrics.request_seconds.labels(route).observe(seconds)
        if record.status == CLIENT_CLOSED:
            self.metrics.cancelled.inc()
        if record.texts:
            self.metrics.texts.labels(key.name).inc(record.texts)
            self.metrics.tokens.labels("prompt").inc(record.prompt_tokens)
            self.metrics.tokens.labels("written").inc(record.written_tokens)
        if self.log == "off" or route in OPERATIONS:
            return
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "id": record.id,
            "method": scope["method"],
            "route": route,
            "status": record.status,
            "ms": round(1000 * seconds, 1),
            "ms_queued": round(1000 * record.queued, 1),
            "ms_worked": round(1000 * record.worked, 1),
            "texts": record.texts,
            "tokens": record.prompt_tokens + record.written_tokens,
            "key": key.name,
        }
        line = json.dumps(entry) if self.log == "json" else " ".join(f"{name}={value}" for name, value in entry.items())
        sys.stderr.write(f"{line}\n")

    def _route(self, path: str) -> str:
        if path in self.routes:
            return path
        return next((route for route in self.routes if route != "/" and path.startswith(f"{route}/")), "other")


def refuse_stopping(path: str) -> Response:
    return refuse(path, 503, "the server is stopping", **{"Retry-After": "1", "Connection": "close"})
