"""A class votes with two phones, and the lecturer's page shows the votes as bars.

Elements: vote-open, vote, vote-address, vote-total, vote-close, vote-bar-0 … (data-count).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, expect

from regard.serving.app import create_app
from regard.serving.ballot import Ballot
from regard.serving.listener import server_config
from regard.serving.model_threads import ModelShelf

WATCHDOG = 60  # seconds
PHONE: Any = {"width": 390, "height": 844}


@pytest.fixture
def hall() -> Iterator[Ballot]:
    """The address of voters on a server that a class can reach."""
    ballot = Ballot()
    config = server_config(create_app(ModelShelf([], default=None), ballot=ballot))
    config.port = 0
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + WATCHDOG
    while not server.started:
        assert thread.is_alive() and time.monotonic() < end
        time.sleep(0.01)
    ballot.address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/vote"
    yield ballot
    server.should_exit = True
    thread.join(WATCHDOG)


def test_two_phones_vote(wide: Any, browser: Browser, hall: Ballot) -> None:
    page = wide.page
    page.goto(hall.address.replace("/vote", "/#tab=lecture&scene=d6"))
    page.get_by_test_id("vote-open").click()
    expect(page.get_by_test_id("vote-address")).to_have_text(hall.address)
    image = page.locator("[data-testid=vote] img")
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    for number, choice in enumerate(("k1", "k3")):
        context = browser.new_context(viewport=PHONE)  # a device of its own
        phone = context.new_page()
        phone.goto(hall.address)
        phone.get_by_role("button", name=choice).click()
        expect(phone.get_by_role("status")).to_contain_text("Your vote is counted")
        assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        expect(page.get_by_test_id("vote-total")).to_have_text("1 vote" if number == 0 else "2 votes")
        assert page.get_by_test_id("vote-bar-0").count() == 0, "the first votes do not lead the others"
        if number == 1:
            page.keyboard.press("PageDown")  # the answer ends the vote
            expect(phone.get_by_role("status")).to_have_text("The vote is closed.")
        context.close()
    for i, count in enumerate("101"):
        expect(page.get_by_test_id(f"vote-bar-{i}")).to_have_attribute("data-count", count)
    assert (wide.errors, wide.blocked) == ([], [])
