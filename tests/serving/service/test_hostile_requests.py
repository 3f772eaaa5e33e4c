"""Requests that no client should send: too large, too slow, broken. Each is refused, and the server goes on."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from regard.serving import connection
from regard.serving.limits import ServiceLimits
from regard.serving.service.service import Service
from tests.serving.service.conftest import Running

FINE: dict[str, Any] = {"q": "Bonjour.", "source": "fr", "target": "en"}
BODY = json.dumps(FINE).encode()
FORM = "application/x-www-form-urlencoded"
WATCHDOG = 20


@pytest.fixture(autouse=True)
def _goes_on(server: Running, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """After each test, the server still translates, and it has reported no bug."""
    yield
    assert server.post("/translate", FINE).json == {"translatedText": "Good morning."}
    assert "Traceback" not in capfd.readouterr().err


def send(server: Running, content: bytes) -> bytes:
    """Send bytes, and return what the server answers before it closes the connection or the answer is complete."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=WATCHDOG) as client:
        client.sendall(content)
        client.settimeout(WATCHDOG)
        return client.recv(65536)


def request(head: str, body: bytes = b"", path: str = "/translate") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n\r\n".encode("latin-1") + body


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00\x01" * 100 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
        request("X-Long: " + "a" * 20_000),
        request("\r\n".join(f"X-{i}: {'a' * 100}" for i in range(300))),
        request("Content-Length: 5\r\nContent-Length: 50", b"a" * 50),
        request("Content-Length: -1"),
        request("Content-Length: 10\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
        request("Transfer-Encoding: chunked", b"zz\r\n"),
        request("X-Bad\x00: a"),
        b"POST /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
    ids=lambda content: content[:40],
)
def test_broken_and_huge_heads(server: Running, content: bytes) -> None:
    answer = send(server, content)
    assert answer.startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"q"',
        b"[" * 100_000,
        b'{"q":' * 50_000,
        b'{"q": "\xff"}',
        b'{"q": "a", "source": "fr", "target": "en", "alternatives": ' + b"9" * 5_000 + b"}",
        b'{"q": "a", "source": "fr", "target": "en", "alternatives": NaN}',
        b'{"q": "a", "source": "fr", "target": "en", "alternatives": 1e999}',
        b'{"q": "\\ud800", "source": "fr", "target": "en"}',
        b'{"q": "a", "source": {"a": 1}, "target": ["en"]}',
    ],
    ids=lambda body: body[:30],
)
@pytest.mark.parametrize(
    "path", ["/translate", "/detect", "/v2/translate", "/v1/completions", "/v1/chat/completions", "/v1/embeddings"]
)
def test_broken_json(server: Running, path: str, body: bytes) -> None:
    answer = server.ask("POST", path, body, {"Content-Type": "application/json"})
    assert 400 <= answer.status < 500 or (path == "/detect" and answer.status == 200)
    assert answer.json  # the error is JSON


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        (FORM, b"q=%ff&source=fr&target=en", 400),
        (FORM, b"&".join(b"q=a" for _ in range(300)), 400),
        (FORM, b"a" * 1000, 400),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n", 415),
        ("text/plain", BODY, 415),
        ("application/json", b"a" * (2**20 + 1), 413),
        (FORM, b"q=" + b"a" * 2**20, 413),
    ],
)
def test_broken_forms_and_large_bodies(server: Running, kind: str, body: bytes, status: int) -> None:
    assert server.ask("POST", "/translate", body, {"Content-Type": kind}).status == status


def test_a_body_that_is_larger_than_it_says(server: Running) -> None:
    chunk = f"{2**16:x}\r\n".encode() + b"a" * 2**16 + b"\r\n"
    answer = send(server, request("Transfer-Encoding: chunked\r\nContent-Type: application/json", chunk * 17))
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("DELETE", "/translate", 405),
        ("GET", "/translate", 405),
        ("POST", "/health", 405),
        ("GET", "/translate/", 404),
        ("GET", "/%2e%2e/keys.py", 404),
        ("GET", "/page.js%00", 404),
        ("POST", "/v1/none", 404),
        ("GET", "/v1/models/" + "x" * 5_000, 404),
    ],
)
def test_unknown_paths_and_wrong_methods(server: Running, method: str, path: str, status: int) -> None:
    answer = server.ask(method, path, {} if method == "POST" else None)
    assert answer.status == status and answer.json["error"]


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /translate HT",
        b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        request(f"Content-Type: application/json\r\nContent-Length: {len(BODY)}", BODY[:-1]),
    ],
)
def test_a_request_that_never_ends_is_closed(server: Running, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.1)
    assert send(server, begun) == b""


def test_there_is_a_limit_of_connections(start: Callable[..., Running], server: Running) -> None:
    service = server.service
    small = start(Service(service.models, service.metrics, ServiceLimits(connections=4)))
    opened = [socket.create_connection(("127.0.0.1", small.port), timeout=WATCHDOG) for _ in range(6)]
    end = time.monotonic() + WATCHDOG
    while small.get("/health").status != 503:
        assert time.monotonic() < end
    for each in opened:
        each.close()
    while small.get("/health").status != 200:
        assert time.monotonic() < end
