"""Servers inside the test's process, and a client that sends exactly what it is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn

from regard.api.model_names import SHIPPED
from regard.serving.app import create_app
from regard.serving.limits import LIMITS
from regard.serving.listener import server_config
from regard.serving.model_threads import ModelShelf, ServedModel

WATCHDOG = 60  # seconds


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def error(self) -> str:
        """The text of an error, which holds nothing else."""
        assert self.headers["content-type"] == "application/json"
        (text,) = self.json.values()
        assert list(self.json) == ["error"] and self.status >= 400
        return text


class Client(NamedTuple):
    """Asks a server on this machine; the Host is the right one unless another is given."""

    port: int

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """One request. A body that is not bytes is sent as JSON."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WATCHDOG)
        plain = body is None or isinstance(body, bytes)
        content = body if plain else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, content, {**kind, **(headers or {})})
        answer = connection.getresponse()
        found = Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        connection.close()
        return found

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.ask("POST", path, body, headers)


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that stands for the built page, with a secret beside it."""
    beside = tmp_path_factory.mktemp("page")
    (beside / "secret.txt").write_text("secret")
    folder = beside / "static"
    (folder / "scenes").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>page</title>")
    (folder / "app.js").write_text("export {}")
    (folder / "scenes/index.json").write_text("[]")
    return folder


@pytest.fixture(scope="session")
def serve(page: Path) -> Iterator[Callable[..., Client]]:
    """Start a server with these arguments of `create_app`."""
    servers = []

    def start(shelf: ModelShelf, **options: Any) -> Client:
        config = server_config(create_app(shelf, page=page, **options))
        config.port = 0
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        servers.append((server, thread))
        end = time.monotonic() + WATCHDOG
        while not server.started:
            assert thread.is_alive() and time.monotonic() < end
            time.sleep(0.005)
        return Client(server.servers[0].sockets[0].getsockname()[1])

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(WATCHDOG)


@pytest.fixture(scope="session")
def client(serve: Callable[..., Client]) -> Client:
    """A server with the shipped models, none of which is loaded before it is asked."""
    names = ("fr-en", "shakespeare")
    shelf = ModelShelf([ServedModel(name, SHIPPED / name, queue_size=LIMITS.queue) for name in names], default="fr-en")
    return serve(shelf)


@pytest.fixture(scope="session")
def sequences(serve: Callable[..., Client]) -> Client:
    """A server with models for the tabs Recurrent and Embeddings."""
    names = ("shakespeare-lstm", "demo-rnn-seq2seq", "demo-encoder")
    return serve(ModelShelf([ServedModel(name, SHIPPED / name) for name in names], default=names[0]))
