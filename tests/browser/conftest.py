"""A Chromium that sees this machine and nothing else, and servers for what it is to show."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserType, Error, Page, Request, ViewportSize, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))  # for page.py

from page import Explorer, install_wheel, make_folders, start_explorer, stop_explorer

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WATCHDOG = 60  # seconds; how long the page takes is measured by benchmarks/commands/explore.py
WAIT_FOR_WHEEL = 120  # seconds
ATTEMPTS = 3  # to start the browser
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
FLAGS += ["--js-flags=--single-threaded", "--num-raster-threads=1"]  # the other core has tests of its own
FLAGS += ["--in-process-gpu", "--disable-features=SpareRendererForSitePerProcess"]  # processes that no test needs
# No name but this machine's has an address. A route of Playwright could refuse requests too, but turns the cache off.
FLAGS += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


def launch(chromium: BrowserType, path: str) -> Browser:
    """Start the browser. It dies at its start once in many hundred times (a segmentation fault of its own)."""
    for _ in range(ATTEMPTS - 1):
        try:
            return chromium.launch(executable_path=path, args=FLAGS)
        except Error as error:
            print(f"Chromium did not start: {error}", file=sys.stderr)
    return chromium.launch(executable_path=path, args=FLAGS)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        pytest.skip("no Chromium here; `make test` finds or installs one, or says how to")
    expect.set_options(timeout=1000 * WATCHDOG)
    with sync_playwright() as playwright:
        browser = launch(playwright.chromium, chromium)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page and what went wrong on it."""

    page: Page
    blocked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def note(self, request: Request) -> None:
        """Write down a request to another machine."""
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and address.hostname != "127.0.0.1":
            self.blocked.append(request.url)

    def sideways(self) -> int:
        """By how many pixels the page can be scrolled to the side."""
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def fits(self) -> bool:
        """Whether the page cannot be scrolled to the side; a busy machine may lay it out some time after a change."""
        end = time.monotonic() + 10
        while self.sideways() != 0 and time.monotonic() < end:
            self.page.wait_for_timeout(20)
        return self.sideways() == 0


DESK: ViewportSize = {"width": 1280, "height": 900}


def open_watched(browser: Browser, size: ViewportSize = DESK) -> Watched:
    """A new page that can reach nothing but this machine, and writes down errors and requests to others."""
    page = browser.new_page(viewport=size)
    watched = Watched(page)
    page.on("request", watched.note)
    page.on("console", lambda message: watched.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: watched.errors.append(str(error)))
    page.on("response", lambda r: watched.errors.append(f"{r.status} {r.url}") if r.status >= 400 else None)
    return watched


def reuse(watched: Watched) -> Iterator[Watched]:
    """The same page for the next test, emptied: a new window costs Chromium more than most tests do."""
    page = watched.page
    page.goto("about:blank")
    watched.errors.clear()
    watched.blocked.clear()
    yield watched
    page.evaluate("() => { try { localStorage.clear(); sessionStorage.clear() } catch { /* about:blank has none */ } }")
    page.context.clear_permissions()
    page.unroute_all()


@pytest.fixture(scope="session")
def wide_window(browser: Browser) -> Iterator[Watched]:
    watched = open_watched(browser)
    yield watched
    watched.page.close()


@pytest.fixture
def wide(wide_window: Watched) -> Iterator[Watched]:
    """A page as on a desk, without errors so far."""
    yield from reuse(wide_window)


@pytest.fixture
def phone(wide: Watched) -> Iterator[Watched]:
    """A page as on a phone."""
    wide.page.set_viewport_size({"width": 390, "height": 844})
    yield wide
    wide.page.set_viewport_size(DESK)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def serve(folder: Path) -> Iterator[str]:
    """The address of a server on this machine that shows a folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs that the wheel installs, once for all workers."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    place, path = shared / "installed", shared / "installed.path"
    try:
        place.mkdir()
    except FileExistsError:  # another worker installs it
        end = time.monotonic() + WAIT_FOR_WHEEL
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.1)
    else:
        (shared / "installing").write_text(str(install_wheel(place)))
        (shared / "installing").rename(path)
    return Path(path.read_text())


@pytest.fixture(scope="session")
def explorer(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    """`regard explore` with fr-en and small models of the other kinds; see page.py."""
    running = start_explorer(programs, "fr-en", *make_folders(tmp_path_factory.mktemp("explored")))
    try:
        running.wait_for("fr-en")
        yield running
    finally:
        stop_explorer(running)


@pytest.fixture(scope="session")
def docs_address(built_docs: Path) -> Iterator[str]:
    yield from serve(built_docs)


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder for pages that a test writes, and its address."""
    for address in serve(tmp_path):
        yield tmp_path, address
