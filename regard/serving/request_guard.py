"""Access rules for all routes: host names, origins, the API key and the size of requests.

A web page may try to reach a server on its visitor's machine through the visitor's browser. Then `Origin` contains the
address of that page. If the page uses DNS rebinding (its own name resolves to 127.0.0.1), `Host` contains that name.
Both are refused. A request for an image has no `Origin`; then the browser says in `Sec-Fetch-Site` that the page is
another one.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
import traceback
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # an old cached page must not talk to a newer server
}


def refusal(status: int, message: str, **headers: str) -> Response:
    """Return an error response as JSON."""
    return Response(json.dumps({"error": message}), status, headers, media_type="application/json")


class Guard:
    """Middleware for all routes. `hosts` are the names of this server; `open_paths` need no key.

    A request has at most `max_bytes`, or as many as `larger` says for its path.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        key: str | None,
        open_paths: Collection[str],
        max_bytes: int,
        larger: Mapping[str, int],
    ) -> None:
        self.app, self.max_bytes, self.larger = app, max_bytes, larger
        self.hosts, self.open_paths = frozenset(hosts), frozenset(open_paths)
        self.key = None if key is None else key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # startup and shutdown; there are no web sockets
            await self.app(scope, receive, send)
            return
        started = False

        async def send_marked(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers.update({**HEADERS, "X-Request-Id": secrets.token_hex(8)})
            await send(message)

        if (refused := self._refused(scope)) is not None:
            await refused(scope, receive, send_marked)
            return
        try:
            await self.app(scope, self._limited(receive, self.larger.get(scope["path"], self.max_bytes)), send_marked)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            if not started:
                answer = refusal(500, "this is a bug in regard: see the traceback in the terminal of the server")
                await answer(scope, receive, send_marked)

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host_name(host) not in self.hosts:
            names = ", ".join(sorted(self.hosts))
            return refusal(403, f"the Host {host[:100]!r} is not one of this server's names ({names})")
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return refusal(403, f"pages from {origin[:100]!r} may not use this server, only its own page")
        if is_foreign(scope, headers):
            return refusal(403, "pages from elsewhere may not use this server, only its own page")
        if not self._may_pass(scope, headers.get("authorization", "")):
            message = "this server requires an API key: send the header `Authorization: Bearer KEY`"
            return refusal(401, message, **{"WWW-Authenticate": "Bearer"})
        return None

    def _may_pass(self, scope: Scope, authorization: str) -> bool:
        if self.key is None or (scope["path"] in self.open_paths and scope["method"] in ("GET", "HEAD")):
            return True
        scheme, _, key = authorization.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(key.strip().encode(), self.key)

    def _limited(self, receive: Receive, max_bytes: int) -> Receive:
        """Wrap `receive` and count the bytes of the body; the Content-Length header cannot be trusted."""
        count = 0

        async def receive_counted() -> Any:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > max_bytes:
                raise HTTPException(413, f"the request is larger than {max_bytes:,} bytes: send a smaller one")
            return message

        return receive_counted


def is_foreign(scope: Scope, headers: Headers) -> bool:
    """Return whether a browser sends this request for another page. A link from there to our page is allowed."""
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return False
    return scope["path"].startswith("/api") or headers.get("sec-fetch-mode") != "navigate"


def host_name(host: str) -> str:
    """Return the host name of a Host header in lower case, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
