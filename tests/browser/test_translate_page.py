"""The page of `regard serve`: it translates while one types, shows where a word comes from, and asks for the key."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import expect

from regard.api.model_names import SHIPPED
from regard.serving.keys import KeyRing
from regard.serving.limits import ServiceLimits
from regard.serving.model_threads import ModelShelf
from regard.serving.service.app import create_service
from regard.serving.service.draining_server import service_config
from regard.serving.service.hosted_models import HostedModel, HostedModels, LoadOptions
from regard.serving.service.metrics import Metrics
from regard.serving.service.service import Service

KEY = "a-key-of-more-than-16-characters"
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a server with a key, which translates from French to English and back."""
    metrics = Metrics()
    names = ("fr-en", "en-fr")
    hosted = [HostedModel(name, SHIPPED / name, LoadOptions(), queue=64, metrics=metrics) for name in names]
    service = Service(HostedModels(hosted), metrics, ServiceLimits(), KeyRing.single(KEY))
    config = service_config(service, create_service(service, explorer=ModelShelf([])))
    config.port = 0
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.mark.filterwarnings("ignore::UserWarning")  # about texts that are not French
def test_the_page_from_the_key_to_the_alignment(browser: Any, address: str, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.goto(address)
    expect(page.locator("#message")).to_contain_text("requires an API key")
    page.fill("#key", KEY)
    page.click("#key-form button")
    expect(page.locator("#key-form")).to_be_hidden()
    expect(page.locator("#source option")).to_have_text(["French", "English"])
    page.fill("#text", "Jane visite l'Afrique en septembre")
    expect(page.locator("#translation")).to_have_text("Jane visits Africa in September")
    page.get_by_text("Africa", exact=True).hover()
    marked = page.locator("#mirror span")
    strongest = marked.evaluate_all(
        "spans => spans.reduce((a, b) => parseFloat(a.style.backgroundColor.split('/')[1] ?? 1) >= "
        "parseFloat(b.style.backgroundColor.split('/')[1] ?? 1) ? a : b).textContent"
    )
    assert "Afrique" in strongest
    assert page.locator("#mirror").evaluate("mirror => mirror.textContent") == "Jane visite l'Afrique en septembre"
    page.fill("#text", "Bonjour.\nIl pleut.")  # several parts: a stream
    expect(page.locator("#translation")).to_have_text("Good morning.\nIt's raining.")
    page.click("#swap")
    expect(page.locator("#text")).to_have_value("Good morning.\nIt's raining.")
    expect(page.locator("#target")).to_have_value("fr")
    expect(page.locator("#translation")).to_contain_text("Bonjour")
    page.fill("#text", HOSTILE)
    expect(page.locator("#translation")).to_contain_text("alert(1)")
    assert page.locator("main img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")  # no scrolling to the side
    page.fill("#text", "")
    expect(page.locator("#translation")).to_have_text("")
    page.click("#explore")
    expect(page).to_have_title("regard: look inside attention")
    assert problems == []
    page.close()


def test_a_language_that_nothing_translates_from_has_its_name(browser: Any, address: str) -> None:
    page = browser.new_page()
    languages = [{"code": "fr", "name": "French", "targets": ["fr", "en", "x_y"]}]
    page.route("**/languages", lambda route: route.fulfill(json=languages))
    page.goto(address)
    page.fill("#key", KEY)
    page.click("#key-form button")
    expect(page.locator("#target option")).to_have_text(["English", "x_y"])
    page.close()
