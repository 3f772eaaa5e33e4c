"""Who may use the server: keys, their limits, and pages of other origins."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.routing import Route

from regard.errors import UsageError
from regard.serving.keys import Allowance, KeyRing
from regard.serving.limits import ServiceLimits
from regard.serving.model_threads import ModelShelf
from regard.serving.service.app import all_routes
from regard.serving.service.service import Service
from tests.serving.service.conftest import KEY, OTHER_KEY, Running, make_service

ASK = {"q": "Bonjour.", "source": "fr", "target": "en"}
SECRET = "a-secret-key-that-nobody-may-see"


def methods_and_paths(service: Service) -> list[tuple[str, str]]:
    routes = all_routes(service)
    assert all(isinstance(route, Route) for route in routes)
    return [(method, route.path.replace("{id}", "x")) for route in routes for method in route.methods or ()]


def test_the_list_of_routes_is_complete(server: Running) -> None:
    assert {path for _, path in methods_and_paths(server.service)} >= {"/translate", "/languages", "/metrics", "/ready"}


def test_without_a_key_every_route_but_the_open_ones_denies(locked: Running, start: Callable[..., Running]) -> None:
    opened = set()
    for method, path in methods_and_paths(locked.service):
        for headers in ({}, {"Authorization": "Bearer wrong-key-wrong-key"}, {"Authorization": f"Basic {KEY}"}):
            answer = locked.ask(method, path, {} if method == "POST" else None, headers)
            if answer.status == (403 if path.startswith("/v2/") else 401):
                assert "WWW-Authenticate".lower() in answer.headers and KEY not in answer.content.decode()
            else:
                opened.add(path)
    assert opened == {"/health", "/ready"}
    assert "models" not in locked.get("/ready").json
    assert "models" in locked.get("/ready", Authorization=f"Bearer {KEY}").json
    explored = start(locked.service, explorer=ModelShelf([]))
    for path in ("/", "/page.js", "/page.css", "/explore/", "/explore/app.js"):
        assert explored.get(path).status == 200
    for path in ("/explore/api/models", "/explore/api/trace", "/page.html", "/explore/none", "//", "/../keys.py"):
        assert explored.get(path).status == 401, path
    assert explored.get("/explore/api/models", Authorization=f"Bearer {KEY}").json["models"] == []
    for body in ({**ASK, "api_key": "wrong"}, {**ASK, "api_key": [KEY]}, b"{", b"\xff" * 100, b"[" * 100_000):
        assert locked.post("/translate", body).status == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "DeepL-Auth-Key"])
def test_a_key_opens(locked: Running, scheme: str) -> None:
    assert locked.post("/translate", ASK, Authorization=f"{scheme} {KEY}").status == 200


def test_a_key_in_the_fields_opens(locked: Running) -> None:
    assert locked.post("/translate", {**ASK, "api_key": KEY}).status == 200
    assert locked.post(f"/translate?api_key={KEY}", ASK).status == 200
    assert locked.post(f"/v1/models?api_key={KEY}", {}).status == 401  # there it would get into logs of proxies


def test_a_key_has_a_limit_of_its_own(locked: Running) -> None:
    header = {"Authorization": f"Bearer {OTHER_KEY}"}
    assert locked.post("/translate", {**ASK, "q": ["a", "b"]}, **header).status == 200
    refused = locked.post("/translate", {**ASK, "q": ["a", "b"]}, **header)
    assert refused.status == 429 and "this key may send 3 texts per minute" in refused.error
    assert 1 <= int(refused.headers["retry-after"]) <= 20
    assert locked.post("/translate", ASK, Authorization=f"Bearer {KEY}").status == 200


def test_an_allowance_refills() -> None:
    allowance = Allowance(60)
    assert allowance.seconds_until(60) == 0 and allowance.seconds_until(10) == pytest.approx(10, abs=0.5)
    allowance.updated -= 10  # seconds pass
    assert allowance.seconds_until(10) == 0 and allowance.seconds_until(2) == pytest.approx(2, abs=0.5)
    allowance.updated -= 10_000
    assert allowance.seconds_until(61) == math.inf  # never more than those of a minute
    assert allowance.seconds_until(60) == 0


def test_keys_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(f"anna:{KEY}\nbert:{OTHER_KEY}:limit=3/min\n")
    ring = KeyRing.from_file(path)
    before = ring.find(OTHER_KEY)
    path.write_text(f"bert:{OTHER_KEY}:limit=3/min\ncarl:{SECRET}\n")
    ring.reread()
    after = ring.find(OTHER_KEY)
    assert before is not None and after is not None and after.allowance is before.allowance
    assert ring.find(KEY) is None and ring.find(SECRET) is not None
    path.write_text("")
    with pytest.raises(UsageError, match="it contains no key"):
        ring.reread()
    assert ring.find(SECRET) is not None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it contains no key"),
        (f"a b:{SECRET}", "line 1: the name before the colon"),
        (f"\n{'x' * 65}:{SECRET}", "line 2: the name before the colon"),
        ("anna:short", "line 1: a key has at least 16 characters"),
        (f"anna:{SECRET} x", "line 1: a key has at least 16 characters"),
        (f"anna:{SECRET}:limit=0/min", "after the key only its limit may follow"),
        (f"anna:{SECRET}:60", "after the key only its limit may follow"),
        (f"anna:{SECRET}:limit=1/min:x", "after the key only its limit may follow"),
        (f"anna:{SECRET}\nanna:{KEY}", "two keys have the name 'anna'"),
        (f"änna:{SECRET}", "not ASCII"),
    ],
)
def test_a_wrong_key_file_is_explained_without_its_keys(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        KeyRing.from_file(path)
    assert message in str(error.value) and SECRET not in str(error.value)


def test_keys_are_nowhere_in_memory_logs_and_metrics(locked: Running, capfd: pytest.CaptureFixture[str]) -> None:
    answers = [
        locked.post("/translate", {**ASK, "api_key": KEY}),
        locked.get("/metrics", Authorization=f"Bearer {KEY}"),
    ]
    assert [answer.status for answer in answers] == [200, 200]
    assert KEY not in repr(vars(locked.service.keys)) + "".join(capfd.readouterr())
    metrics = answers[1].content.decode()
    assert 'regard_texts_total{key="anna"}' in metrics and KEY not in metrics


def test_pages_of_allowed_origins_may_use_the_server(start: Callable[..., Running], server: Running) -> None:
    origin = "https://editor.example"
    opened = start(server.service, origins=[origin])
    preflight = opened.ask("OPTIONS", "/translate", None, {"Origin": origin, "Access-Control-Request-Method": "POST"})
    assert preflight.status == 204 and preflight.headers["access-control-allow-origin"] == origin
    assert "Authorization" in preflight.headers["access-control-allow-headers"]
    answer = opened.post("/translate", ASK, Origin=origin, **{"Sec-Fetch-Site": "cross-site"})
    assert answer.status == 200 and answer.headers["access-control-allow-origin"] == origin
    for other in ("https://evil.example", "null", "https://editor.example.evil.example"):
        refused = opened.post("/translate", ASK, Origin=other)
        assert refused.status == 403 and "access-control-allow-origin" not in refused.headers
    assert server.post("/translate", ASK, Origin=origin).status == 403


def test_hosts_and_pages_from_elsewhere_are_refused_on_every_route(server: Running) -> None:
    for method, path in methods_and_paths(server.service):
        for headers in ({"Host": "evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            assert server.ask(method, path, {} if method == "POST" else None, headers).status == 403, path
    anywhere = {"Host": "10.0.0.7"}
    assert server.get("/health", **anywhere).status == 403


def test_any_host_can_be_allowed(start: Callable[..., Running], server: Running) -> None:
    """As behind a balancer, which asks by changing addresses."""
    assert start(server.service, hosts=["*"]).get("/health", Host="10.0.0.7:8791").status == 200


def test_a_full_queue_refuses_and_says_when_to_come_back(
    start: Callable[..., Running], translators: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service({"fr-en": translators["fr-en"]}, limits=ServiceLimits(queue=2))
    model = service.models.get("fr-en")
    assert model is not None
    entered, release = threading.Event(), threading.Event()
    translator = model.load()
    plain = translator.translate

    def slow(*args: object, **options: object) -> object:
        entered.set()
        assert release.wait(20)
        return plain(*args, **options)

    monkeypatch.setattr(translator, "translate", slow)
    busy = start(service)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(busy.post("/translate", ASK))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert entered.wait(20)
    while len(model.batcher) < 2:
        pass
    assert busy.get("/ready").status == 503 and busy.get("/ready").json["status"] == "a queue is full"
    refused = busy.post("/translate", ASK)
    assert refused.status == 503 and int(refused.headers["retry-after"]) >= 1
    assert busy.get("/health").status == 200
    release.set()
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [200, 200] and busy.get("/ready").status == 200
    assert b'regard_rejected_total{reason="queue"} 1.0' in busy.get("/metrics").content


def test_a_request_that_takes_too_long_is_ended(
    start: Callable[..., Running], translators: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service({"fr-en": translators["fr-en"]}, limits=ServiceLimits(seconds=0.2))
    model = service.models.get("fr-en")
    assert model is not None
    release = threading.Event()
    translator = model.load()
    plain = translator.translate
    monkeypatch.setattr(translator, "translate", lambda texts, **options: release.wait(20) and plain(texts, **options))
    server = start(service)
    answer = server.post("/translate", ASK)
    assert answer.status == 504 and "took more than 0.2 seconds" in answer.error
    assert server.get("/ready").json["models"]["fr-en"]["queue"] == 0
    release.set()
