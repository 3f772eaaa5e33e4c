"""Access rules for all routes: host names, origins, the API key and the size of requests.

A web page may try to reach a server on its visitor's machine through the visitor's browser. Then `Origin` contains the
address of that page. If the page uses DNS rebinding (its own name resolves to 127.0.0.1), `Host` contains that name.
Both are refused. A request for an image has no `Origin`; then the browser says in `Sec-Fetch-Site` that the page is
another one.
"""

from __future__ import annotations

import json
import secrets
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serving.keys import ANONYMOUS, Key, KeyRing
from regard.serving.waiting import CLIENT_CLOSED

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # an old cached page must not talk to a newer server
}


SCHEMES = ("bearer", "deepl-auth-key")
ANY_HOST = "*"


def refusal(status: int, message: str, **headers: str) -> Response:
    """Return an error response as JSON."""
    return Response(json.dumps({"error": message}), status, headers, media_type="application/json")


def plain_refusal(path: str, status: int, message: str, **headers: str) -> Response:
    return refusal(status, message, **headers)


Refuse = Callable[..., Response]  # path, status, message, **headers -> the error response of that path
BodyKey = Callable[[Scope, bytes], str]  # returns the key in a request's body, or an empty text


class Guard:
    """Middleware for all routes.

    `hosts` are the names of this server, "*" for any; `open_paths` can be read, and `open_posts` sent to, without a
    key. Pages of other `origins` may send requests (CORS). A request has at most `max_bytes`, or as many as `larger`
    says for its path. On the paths of `body_keys`, clients may also send the key in the body.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        keys: KeyRing | None,
        open_paths: Collection[str],
        open_posts: Collection[str] = (),
        max_bytes: int,
        larger: Mapping[str, int],
        origins: Collection[str] = (),
        body_keys: Mapping[str, BodyKey] | None = None,
        refuse: Refuse = plain_refusal,
    ) -> None:
        self.app, self.max_bytes, self.larger, self.keys = app, max_bytes, larger, keys
        self.hosts, self.open_paths, self.origins = frozenset(hosts), frozenset(open_paths), frozenset(origins)
        self.open_posts = frozenset(open_posts)
        self.body_keys, self.refuse = body_keys or {}, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # startup and shutdown; there are no web sockets
            await self.app(scope, receive, send)
            return
        started = False
        headers = Headers(scope=scope)
        fixed = {**HEADERS, "X-Request-Id": request_id(scope), **self._cors(headers)}

        async def send_marked(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message).update(fixed)
            await send(message)

        try:
            refused = self._refused(scope, headers)
            receive = self._limited(receive, self.larger.get(scope["path"], self.max_bytes))
            if refused is None:
                key, receive = await self._key(scope, headers, receive)
                scope["regard.key"] = key
                refused = None if key is not None else self._without_key(scope)
            await (self.app if refused is None else refused)(scope, receive, send_marked)
        except HTTPException as error:  # of a body that the guard has read
            await self.refuse(scope["path"], error.status_code, str(error.detail))(scope, receive, send_marked)
        except ClientDisconnect:  # in the middle of the body
            await Response(status_code=CLIENT_CLOSED)(scope, receive, send_marked)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            if not started:
                message = "this is a bug in regard: see the traceback in the terminal of the server"
                await self.refuse(scope["path"], 500, message)(scope, receive, send_marked)

    def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        path, host = scope["path"], headers.get("host", "")
        if len(headers.getlist("host")) > 1:
            return self.refuse(path, 400, "the request has several Host headers")
        if ANY_HOST not in self.hosts and host_name(host) not in self.hosts:
            names = ", ".join(sorted(self.hosts))
            return self.refuse(path, 403, f"the Host {host[:100]!r} is not one of this server's names ({names})")
        origin = headers.get("origin")
        if origin in self.origins:
            is_preflight = scope["method"] == "OPTIONS" and "access-control-request-method" in headers
            return Response(status_code=204) if is_preflight else None
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return self.refuse(path, 403, f"pages from {origin[:100]!r} may not use this server, only its own page")
        if is_foreign(scope, headers):
            return self.refuse(path, 403, "pages from elsewhere may not use this server, only its own page")
        return None

    def _cors(self, headers: Headers) -> dict[str, str]:
        """Return the headers by which the browser lets a page of another origin read the response."""
        if (origin := headers.get("origin")) not in self.origins or origin is None:
            return {}
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Allow-Headers": "Authorization, Content-Type, X-Request-Id",
            "Access-Control-Expose-Headers": "X-Request-Id, X-Ignored-Fields, X-Pivot, Retry-After",
            "Access-Control-Max-Age": "600",
            "Vary": "Origin",
        }

    async def _key(self, scope: Scope, headers: Headers, receive: Receive) -> tuple[Key | None, Receive]:
        """Return the key of the client, None if it may not pass, and what the application then receives."""
        if self.keys is None:
            return ANONYMOUS, receive
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if scheme.lower() in SCHEMES:
            key = self.keys.find(text.strip())
        elif (read_key := self.body_keys.get(scope["path"])) is not None:
            body = await read_body(receive)
            key, receive = self.keys.find(read_key(scope, body)), replay(body, receive)
        else:
            key = None
        reads = scope["path"] in self.open_paths and scope["method"] in ("GET", "HEAD")
        if key is None and (reads or (scope["path"] in self.open_posts and scope["method"] == "POST")):
            return ANONYMOUS, receive
        return key, receive

    def _without_key(self, scope: Scope) -> Response:
        message = "this server requires an API key: send the header `Authorization: Bearer KEY`"
        return self.refuse(scope["path"], 401, message, **{"WWW-Authenticate": "Bearer"})

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


def request_id(scope: Scope) -> str:
    """Return the id of a request; every response contains it."""
    if "regard.id" not in scope:
        scope["regard.id"] = secrets.token_hex(8)
    identifier: str = scope["regard.id"]
    return identifier


async def read_body(receive: Receive) -> bytes:
    """Read a whole body, which `receive` limits."""
    chunks, more = [], True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(chunks)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that begins with a body that was read already."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


def is_foreign(scope: Scope, headers: Headers) -> bool:
    """Return whether a browser sends this request for another page. A link from there to our page is allowed."""
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return False
    return scope["path"].startswith(("/api", "/explore/api")) or headers.get("sec-fetch-mode") != "navigate"


def host_name(host: str) -> str:
    """Return the host name of a Host header in lower case, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
