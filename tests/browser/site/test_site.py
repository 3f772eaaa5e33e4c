"""The site that `regard explore --export` writes, from a plain file server and from the disk, without a network."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from regard.cli.explore import explore_models
from regard.errors import UsageError
from regard.serving.site.browser_support import why_not

TABS = ("alignment", "heads", "inside", "decode", "compare", "embeddings", "recurrent", "lab", "positions", "features")


@pytest.fixture(params=["server", "disk"])
def address(request: pytest.FixtureRequest, site: Path, site_address: str) -> str:
    return site_address + "/" if request.param == "server" else (site / "index.html").as_uri()


def check_quiet(watched: Any) -> None:
    """No error on the console, and no request but to the site."""
    assert watched.errors == []
    assert [address for address in watched.blocked if not address.startswith("file:")] == []


def test_every_tab_lives(wide: Any, address: str) -> None:
    for tab in TABS:
        wide.page.goto("about:blank")
        wide.page.goto(f"{address}#tab={tab}")
        main = wide.page.get_by_test_id(f"view-{tab}")
        expect(main).to_be_visible()
        expect(main.locator("canvas, svg, table").first).to_be_visible()
        expect(main.get_by_role("alert")).to_have_count(0)
    check_quiet(wide)


def test_a_sentence_that_nobody_recorded(wide: Any, address: str) -> None:
    """A link opens for anybody: the model is loaded, and the pinned weight is read out."""
    wide.page.goto(f"{address}#text=Le+chat+noir+dort+dans+le+jardin&tab=alignment&pin=1.1")
    expect(wide.page.get_by_text("The black cat sleeps in the garden").first).to_be_visible()
    expect(wide.page.get_by_test_id("weights-readout")).to_have_text(re.compile(r"0\.\d"))
    check_quiet(wide)


@pytest.mark.slow
def test_every_scene_lives(wide: Any, address: str, site: Path) -> None:
    scenes = json.loads((site / "scenes" / "index.json").read_text("utf-8"))
    for scene in scenes:
        wide.page.goto("about:blank")
        wide.page.goto(f"{address}#tab=lecture&scene={scene['id']}&shown=1")
        main = wide.page.get_by_test_id("view-lecture")
        expect(main.locator("canvas, svg, table").filter(visible=True).first).to_be_visible()
        expect(main.get_by_role("alert")).to_have_count(0)
    check_quiet(wide)


def test_head_of_the_page(site: Path) -> None:
    page = (site / "index.html").read_text("utf-8")
    for needed in (
        "<title>regard",
        'property="og:image"',
        'rel="icon"',
        'name="description"',
        "Content-Security-Policy",
    ):
        assert needed in page
    assert (site / "picture.png").stat().st_size > 10_000
    assert "http://" not in page and "https://" not in page


def test_the_command(own_models: dict[str, Path], tmp_path: Path) -> None:
    """A model of one's own comes first; a folder that is no site is never emptied."""
    folder, small_translator = tmp_path / "site", own_models["plain"]
    explore_models([str(small_translator)], export=folder, address="https://example.org/explorer")
    content = json.loads((folder / "site.js").read_text("utf-8").removeprefix("window.regardSite=").rstrip(";\n"))
    assert content["models"][0]["name"] == small_translator.name and content["models"][0]["default"]
    assert 'content="https://example.org/explorer/picture.png"' in (folder / "index.html").read_text("utf-8")
    explore_models([str(small_translator)], export=folder)  # replaces the older site
    (folder / "regard-site.json").unlink()
    with pytest.raises(UsageError, match="no site of regard"):
        explore_models([str(small_translator)], export=folder)


def test_models_that_do_not_run_in_the_browser(tmp_path: Path) -> None:
    assert "kind 'image-classifier'" in str(why_not(tmp_path, {"kind": "image-classifier"}))
    (tmp_path / "tokenizer.model").write_bytes(b"")
    relative = {"kind": "transformer", "model": {"dim": 8, "position": "relative"}}
    assert "position = 'relative'" in str(why_not(tmp_path, relative))
