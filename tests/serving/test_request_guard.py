"""The rules that hold for every route: Host, Origin, key, size, headers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.routing import BaseRoute, Mount, Route

from regard.serving.app import create_app
from regard.serving.limits import Limits
from regard.serving.model_threads import ModelShelf
from regard.serving.request_guard import host_name

KEY = "a-key-of-more-than-16-characters"
EMPTY = ModelShelf([])


def all_routes(routes: list[BaseRoute]) -> Iterator[tuple[str, str]]:
    """Method and path of every route of an app, those of included routers too."""
    for route in routes:
        if isinstance(route, Mount):
            continue  # the page, which is checked file by file
        inner = getattr(route, "original_router", None)
        if isinstance(route, Route):
            yield from ((method, route.path) for method in sorted(route.methods or []))
        elif inner is not None:
            yield from all_routes(inner.routes)
        else:
            raise AssertionError(f"a kind of route that this test does not know: {route}")


@pytest.fixture(scope="module")
def locked(serve: Callable[..., Any]) -> Any:
    return serve(EMPTY, key=KEY)


def routes_of(page: Path) -> list[tuple[str, str]]:
    app: FastAPI = create_app(EMPTY, page=page)
    return list(all_routes(app.routes))


def test_the_list_of_routes_sees_them(page: Path) -> None:
    paths = {path for _, path in routes_of(page)}
    assert paths == {
        "/health",
        "/api/models",
        "/api/traces/{name}",
        "/api/trace",
        "/api/inside",
        "/api/parameters",
        "/api/recurrent",
        "/api/gradients",
        "/api/embeddings",
        "/api/similarity",
        "/api/attribution",
        "/api/examples",
        "/api/input",
    }


def test_without_the_key_all_routes_but_health_and_the_page_deny(locked: Any, page: Path) -> None:
    for method, path in routes_of(page):
        answer = locked.ask(method, path.replace("{name}", "x"), {} if method == "POST" else None)
        assert answer.status == (200 if path == "/health" else 401), path
    assert "Authorization: Bearer" in locked.get("/api/models").error
    for path in ("/", "/index.html", "/app.js", "/scenes/index.json"):
        assert locked.get(path).status == 200
    for path in ("/secret.txt", "/no-such-file", "/scenes/", "/openapi.json", "//", "/app.js/"):
        assert locked.get(path).status == 401
    assert locked.ask("POST", "/").status == 401


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}], ids=str
)
def test_every_route_refuses_pages_from_elsewhere(client: Any, page: Path, headers: dict[str, str]) -> None:
    for method, path in routes_of(page):
        body = {} if method == "POST" else None
        assert client.ask(method, path.replace("{name}", "x"), body, headers).status == 403, path


def test_the_key_opens(locked: Any) -> None:
    assert locked.get("/api/models", Authorization=f"Bearer {KEY}").status == 200
    assert locked.get("/api/models", Authorization=f"bearer  {KEY} ").status == 200
    for wrong in (KEY, f"Basic {KEY}", f"Bearer {KEY}x", "Bearer", "Bearer ", f"Bearer {KEY[:-1]}", "Bearer \xe9"):
        assert locked.get("/api/models", Authorization=wrong).status == 401


def test_without_a_key_none_is_asked_for(client: Any) -> None:
    assert client.get("/api/models").status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.2", "", "[::2]", "localhost.", "["]
)
def test_a_foreign_host_is_refused(client: Any, host: str) -> None:
    for path in ("/", "/health", "/api/models"):
        answer = client.get(path, Host=host)
        assert answer.status == 403
        assert "not one of this server's names (127.0.0.1, ::1, localhost)" in answer.error


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost", "LOCALHOST:80", "[::1]:8790"])
def test_names_of_this_machine_are_taken(client: Any, host: str) -> None:
    assert client.get("/api/models", Host=host).status == 200


def test_another_name_can_be_allowed(serve: Callable[..., Any]) -> None:
    there = serve(EMPTY, hosts=("box.example",))
    assert there.get("/health", Host="Box.example:99").status == 200
    assert there.get("/health").status == 403


def test_a_host_without_name_has_none() -> None:
    assert host_name("") == host_name(":80") == host_name("[") == ""


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1", "http://localhost:{port}", "x", "http://[",
               "://127.0.0.1:{port}", "127.0.0.1:{port}", "ftp://127.0.0.1:{port}", ""]
)  # fmt: skip
def test_a_foreign_origin_is_refused(client: Any, origin: str) -> None:
    """Also another port of this machine: another program may have a page there."""
    headers = {"Origin": origin.format(port=client.port)}
    for answer in (client.post("/api/inside", {}, **headers), client.get("/api/models", **headers)):
        assert answer.status == 403
        assert "may not use this server" in answer.error
        assert not any(name.startswith("access-control") for name in answer.headers)


def test_the_own_origin_passes(client: Any) -> None:
    answer = client.get("/api/models", Origin=f"http://127.0.0.1:{client.port}")
    assert answer.status == 200
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_that_a_browser_sends_for_another_page_are_refused(client: Any, site: str) -> None:
    """An image or a script has no Origin. A link to the page is allowed, as is a request without a browser."""
    for path in ("/api/models", "/api/parameters?model=fr-en&name=x", "/app.js", "/health"):
        answer = client.get(path, **{"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"})
        assert answer.status == 403
        assert "pages from elsewhere may not use this server" in answer.error
    link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", **link).status == 200
    assert client.get("/api/models", **link).status == 403
    for own in ("same-origin", "none"):
        assert client.get("/api/models", **{"Sec-Fetch-Site": own}).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("POST", "/no-such", 404, "unknown path '/no-such'"),
        ("DELETE", "/api/no-such", 404, "unknown path '/api/no-such'"),
        ("GET", "/api/no-such", 404, "unknown path '/api/no-such'"),
        ("GET", "/api/trace", 405, "/api/trace cannot be used with GET, only with POST"),
        ("DELETE", "/api/models", 405, "/api/models cannot be used with DELETE, only with GET"),
        ("POST", "/health", 405, "/health cannot be used with POST, only with GET, HEAD"),
        ("POST", "/app.js", 405, "/app.js cannot be used with POST, only with GET, HEAD"),
    ],
)
def test_a_path_that_is_unknown_and_a_method_that_is_wrong_are_told_apart(
    client: Any, method: str, path: str, status: int, message: str
) -> None:
    answer = client.ask(method, path, {} if method == "POST" else None)
    assert (answer.status, answer.error) == (status, message)


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HT", b"POST /api/trace HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{"],
    ids=["nothing", "half a header", "half a body"],
)
def test_a_connection_without_a_whole_request_is_closed(
    client: Any, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr("regard.serving.connection.REQUEST_SECONDS", 0.1)
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as line:
        line.sendall(sent)
        while line.recv(1000):  # it may say why; then it closes
            pass
    assert client.get("/health").status == 200


def test_a_slow_answer_is_waited_for(serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.serving.connection.REQUEST_SECONDS", 0.05)

    class Slow(ModelShelf):
        def __iter__(self) -> Any:
            time.sleep(0.5)
            return iter(())

    assert serve(Slow([])).get("/api/models").status == 200


def test_every_response_has_the_headers(client: Any) -> None:
    answers = [
        client.get("/"),
        client.get("/api/models"),
        client.get("/no-such"),
        client.get("/", Host="evil.example"),
        client.post("/api/trace", b"{"),
        client.ask("DELETE", "/api/models"),
    ]
    assert [answer.status for answer in answers] == [200, 200, 404, 403, 400, 405]
    for answer in answers:
        policy = answer.headers["content-security-policy"].split("; ")
        assert {"default-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} < set(policy)
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)


def test_a_body_that_is_too_large_is_refused(client: Any) -> None:
    answer = client.post("/api/trace", b" " * (2**20 + 1))
    assert answer.status == 413
    assert "larger than 1,048,576 bytes" in answer.error
    assert client.post("/api/inside", b" " * 2**20).status == 400


def test_a_body_of_untold_length_is_counted(serve: Callable[..., Any]) -> None:
    there = serve(EMPTY, limits=Limits(bytes=100))
    with socket.create_connection(("127.0.0.1", there.port), timeout=60) as line:
        line.sendall(
            b"POST /api/trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(3):
            line.sendall(b"32\r\n" + b" " * 50 + b"\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "path",
    ["/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/scenes/../../secret.txt", "/%5c..%5csecret.txt",
     "//secret.txt", "/%00", "/scenes/..%5c..%5csecret.txt", "/" + "a" * 5000],
)  # fmt: skip
def test_no_path_leads_out_of_the_page(client: Any, path: str) -> None:
    answer = client.get(path)
    assert answer.status == 404
    assert b"secret" not in answer.content or answer.error


def test_a_bug_of_ours_is_told_and_kept_from_the_client(serve: Callable[..., Any], capfd: Any) -> None:
    class Broken(ModelShelf):
        def __iter__(self) -> Any:
            raise KeyError("something private")

    there = serve(Broken([]))
    answer = there.get("/api/models")
    assert answer.status == 500
    assert "bug in regard" in answer.error and "private" not in answer.error
    assert answer.headers["x-request-id"]
    assert "something private" in capfd.readouterr().err
    assert there.get("/health").status == 200
