"""Servers of `regard serve` inside the test's process, with the shipped translators."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from regard.api.model_names import SHIPPED
from regard.api.translator import Translator
from regard.serving.keys import KeyRing
from regard.serving.limits import ServiceLimits
from regard.serving.service.app import create_service
from regard.serving.service.draining_server import service_config
from regard.serving.service.hosted_models import HostedModel, HostedModels, LoadOptions
from regard.serving.service.metrics import Metrics
from regard.serving.service.service import Service
from tests.serving.conftest import WATCHDOG, Client

KEY = "a-key-of-more-than-16-characters"
OTHER_KEY = "another-key-with-a-limit-per-minute"


class Running(Client):
    """A client of a server, with its service."""

    service: Service

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def make_service(
    folders: dict[str, Path], *, limits: ServiceLimits | None = None, keys: KeyRing | None = None, **options: Any
) -> Service:
    metrics, limits = Metrics(), limits or ServiceLimits()
    hosted = [
        HostedModel(name, folder, LoadOptions(**options), queue=limits.queue, metrics=metrics)
        for name, folder in folders.items()
    ]
    return Service(HostedModels(hosted), metrics, limits, keys)


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[..., Running]]:
    """Start a server for a service, with these arguments of `create_service`."""
    servers = []

    def start(service: Service, **options: Any) -> Running:
        config = service_config(service, create_service(service, **options))
        config.port = 0
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        servers.append((server, thread))
        end = time.monotonic() + WATCHDOG
        while not server.started:
            assert thread.is_alive() and time.monotonic() < end
            time.sleep(0.005)
        client = Running(server.servers[0].sockets[0].getsockname()[1])
        client.service = service
        return client

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(WATCHDOG)


@pytest.fixture(scope="session")
def translators() -> dict[str, Path]:
    return {name: SHIPPED / name for name in ("fr-en", "en-fr")}


@pytest.fixture(scope="session")
def server(start: Callable[..., Running], translators: dict[str, Path]) -> Running:
    """A server without keys that translates French to English and back."""
    return start(make_service(translators))


@pytest.fixture(scope="session")
def translator(server: Running) -> Translator:
    """The server's own model from French to English."""
    model = server.service.models.get("fr-en")
    assert model is not None
    return model.load()


@pytest.fixture(scope="session")
def locked(start: Callable[..., Running], server: Running, tmp_path_factory: pytest.TempPathFactory) -> Running:
    """A server with the same models and two keys, the second of which may send three texts per minute."""
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    path.write_text(f"# clients\nanna:{KEY}\n\nbert:{OTHER_KEY}:limit=3/min\n")
    service = server.service
    return start(Service(service.models, service.metrics, service.limits, KeyRing.from_file(path)))
