"""The page and its server against strangers: texts and names with markup in them, foreign hosts, foreign scripts.

Elements: view-… (the open tab), text (the sentence), send, output-text, key, key-send.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from conftest import Watched, open_watched
from page import Explorer, start_explorer, stop_explorer
from playwright.sync_api import Browser, expect

from regard.look.trace.attention_map import Map
from regard.look.trace.search_steps import Candidate, Step
from regard.look.trace.trace import Axis, Model, Token, Trace

MARKUP = ('"><img src=x onerror="document.title=\'caught\'">', "<script>document.title='caught'</script>", "</script>")


def hostile_trace() -> Trace:
    """A trace whose every text is markup."""
    image, script, end = MARKUP
    axis = Axis((Token(image, 0), Token(script, 1), Token(end, 2)), MARKUP)
    weights = np.full((1, 1, 3, 3), 1 / 3)
    steps = tuple(
        Step(i, (Candidate(i, text, float(np.log(0.5))), Candidate(3, image, float(np.log(0.25)))), 0.25, 1.0)
        for i, text in enumerate(MARKUP)
    )
    return Trace(
        model=Model(image, "transformer", {"encoder": 1, "decoder": 1}, 1, {"model": 4}),
        axes={"source": axis, "target": axis, "read": axis},
        maps={"cross": Map("target", "source", weights), "enc_self": Map("source", "source", weights)},
        steps=steps,
        source=" ".join(MARKUP),
        output=" ".join(MARKUP),
        notes=(script,),
    )


@pytest.fixture(scope="module")
def hostile(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    """An explorer with a trace from a stranger, whose file name is markup too."""
    folder = tmp_path_factory.mktemp("hostile")
    path = folder / "<img src=x onerror=alert(1)>.json"
    hostile_trace().save(path)
    running = start_explorer(programs, path)
    yield running
    stop_explorer(running)


def is_clean(watched: Watched) -> None:
    """Nothing ran, nothing was fetched, nothing was refused by the policy, no element came of a text."""
    assert (watched.blocked, watched.errors) == ([], [])
    assert watched.page.title() != "caught"
    assert watched.page.locator("img[src=x], [onerror]").count() == 0
    assert watched.page.evaluate("[...document.scripts].map((one) => one.getAttribute('src'))") == ["app.js"]


def test_a_sentence_with_markup_is_shown_as_text(wide: Watched, explorer: Explorer) -> None:
    text = " ".join(MARKUP)
    wide.page.goto(explorer.address)
    expect(wide.page.get_by_test_id("output-text")).to_have_text("Mary bought a red car")  # the first one
    wide.page.get_by_test_id("text").fill(f"chat {text}")
    wide.page.get_by_test_id("send").click()
    wide.page.wait_for_load_state("networkidle")
    expect(wide.page.get_by_test_id("output-text")).not_to_have_text("Mary bought a red car")
    is_clean(wide)
    wide.page.reload()  # the sentence is in the address now
    wide.page.wait_for_load_state("networkidle")
    expect(wide.page.get_by_test_id("text")).to_have_value(f"chat {text}")
    is_clean(wide)


def test_a_trace_of_markup_is_shown_as_text(wide: Watched, hostile: Explorer) -> None:
    """In texts, attributes, titles and the file's name, on every tab that shows a trace."""
    for tab in ("alignment", "heads", "decode", "compare"):
        wide.page.goto(f"{hostile.address}/#tab={tab}")
        expect(wide.page.get_by_text("onerror").first).to_be_attached()
        wide.page.wait_for_load_state("networkidle")
        is_clean(wide)


def test_a_saved_page_of_markup_is_shown_as_text(wide: Watched, hostile: Explorer, planted: tuple[Path, str]) -> None:
    folder, address = planted
    wide.page.goto(f"{hostile.address}/#tab=alignment")
    expect(wide.page.get_by_text("onerror").first).to_be_attached()
    with wide.page.expect_download() as saved:
        wide.page.get_by_test_id("save-page").click()
    assert not set(saved.value.suggested_filename) & set('<>"/\\')
    saved.value.save_as(folder / "saved.html")
    wide.page.goto(f"{address}/saved.html")
    expect(wide.page.get_by_text("onerror").first).to_be_attached()
    assert (wide.blocked, wide.errors) == ([], [])
    assert wide.page.title() != "caught" and wide.page.locator("img[src=x], [onerror]").count() == 0


def test_the_page_asks_for_the_key(programs: Path, browser: Browser, tmp_path: Path) -> None:
    """It is kept for the tab alone, and stands in no address."""
    key = tmp_path / "key.txt"
    key.write_text("a-key-that-is-long-enough")
    running = start_explorer(programs, "fr-en", "--key-file", key)
    watched = open_watched(browser)
    page = watched.page
    try:
        page.goto(running.address)
        for given in ("another-key-of-the-same-kind", "a-key-that-is-long-enough"):
            expect(page.get_by_test_id("key")).to_have_attribute("type", "password")
            page.get_by_test_id("key").fill(given)
            page.get_by_test_id("key-send").click()
            page.wait_for_load_state("networkidle")
        expect(page.get_by_test_id("output-text")).to_have_text("Mary bought a red car", timeout=60_000)
        expect(page.get_by_test_id("key")).to_have_count(0)
        assert "long-enough" not in page.url and page.evaluate("localStorage.length + document.cookie.length") == 0
        page.reload()
        expect(page.get_by_test_id("output-text")).to_have_text("Mary bought a red car", timeout=60_000)
        assert all("401" in error for error in watched.errors)
    finally:
        page.close()
        stop_explorer(running)


def test_the_policy_keeps_foreign_scripts_out(browser: Browser, explorer: Explorer) -> None:
    """Were there a hole in the page, this is what would still stand between it and a stranger's script."""
    watched = open_watched(browser)
    page = watched.page
    page.goto(explorer.address)
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title=1\">')")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'document.title = 2'}))")
    assert page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')") == "refused"
    end = time.monotonic() + 60
    while sum("Content Security Policy" in error for error in watched.errors) < 3:
        assert time.monotonic() < end, watched.errors
        page.wait_for_timeout(20)
    assert page.title() not in ("1", "2")
    page.close()


def test_another_page_cannot_ask(planted: tuple[Path, str], browser: Browser, explorer: Explorer) -> None:
    """A page from another port of this machine, in a real browser."""
    folder, address = planted
    (folder / "index.html").write_text("<!doctype html><title>other</title>")
    watched = open_watched(browser)
    watched.page.goto(address)
    body = json.dumps({"model": "fr-en", "text": "Le chat dort."})
    ask = """async ([address, body, kind]) => {
      const options = body ? {method: "POST", body, headers: {"Content-Type": kind}} : {};
      try { return (await fetch(address, options)).status } catch { return "refused" }
    }"""
    for path, content, kind in (
        ("/api/models", "", ""),
        ("/api/trace", body, "application/json"),
        ("/api/trace", body, "text/plain"),
    ):
        assert watched.page.evaluate(ask, [explorer.address + path, content, kind]) == "refused"
    assert sum("blocked by CORS policy" in error for error in watched.errors) == 3
    watched.page.close()


def test_a_foreign_host_gets_403(explorer: Explorer) -> None:
    for path in ("/", "/api/models"):
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(explorer.address + path, headers={"Host": "evil.example"}), timeout=60)
        assert refused.value.code == 403
        assert "evil.example" in json.load(refused.value)["error"]
