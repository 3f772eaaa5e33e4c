"""Take the picture of the explorer's start page for the README.

    python scripts/picture_explorer.py

It starts `regard explore`, waits until the model has answered and the arcs are drawn, and writes the picture into docs.
It needs Playwright and a Chromium; the variable CHROMIUM names one that is not found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

TARGET = Path(__file__).parents[1] / "docs" / "images" / "explorer.png"
SIZE = {"width": 1280, "height": 720}
DRAWN_AFTER = 3000  # milliseconds until all arcs are there
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def take_picture(address: str, target: Path = TARGET) -> None:
    """Write a picture of the page at this address, as it opens for somebody who has seen it before."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.add_init_script("localStorage.setItem('regard-tour', 'answered')")
        page.goto(address, wait_until="networkidle")
        page.get_by_test_id("waiting").wait_for(state="detached")
        page.wait_for_timeout(DRAWN_AFTER)
        page.screenshot(path=target)
        browser.close()


def main() -> None:
    command = [sys.executable, "-m", "regard", "explore", "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        take_picture(server.stdout.readline().strip())
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
