"""What leaves the page: pictures and the page itself as a file, which open again to the same view, and code that runs.

Elements: save-NAME-png, save-NAME-svg (on each figure), save-page, open, open-file, copy-code, toast.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread
from playwright.sync_api import Browser, Page, expect

import regard

from ..repeats import by_default

STATIC = Path(regard.__file__).parent / "look" / "page" / "static"
# What to open, the figure to save, and the element that reads a number out.
VIEWS = {
    "lab": ("tab=lab&k=2_1_-1*0_3_-1*1_1_0.25&cell=weights.1.2", "lab", "lab-explain"),
    "positions": ("tab=positions&preset=small&kind=rotary&pin=7.3", "positions", "positions-map-readout"),
    "features": ("tab=features&phi=optimal&features=32&pin=1.2", "features-corrected", "features-corrected-readout"),
    "alignment": ("tab=alignment&view=matrix&text=Jane+visite+l'Afrique&pin=2.2", "weights", "weights-readout"),
}


def opened(page: Page, explorer: Any, name: str) -> str:
    """Opens a view and gives back what it reads out."""
    state, _, element = VIEWS[name]
    explorer.wait_for("fr-en")
    page.goto(f"{explorer.address}/#{state}")
    expect(page.get_by_test_id(element)).to_have_text(re.compile(r"\d\.\d"))
    return page.get_by_test_id(element).text_content() or ""


def saved(page: Page, button: str, place: Path) -> Path:
    with page.expect_download() as waiting:
        page.get_by_test_id(button).click()
    path = place / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


KINDS = ("png", "svg")
ONE_KIND = [("positions", "svg"), ("lab", "png")]
OTHER_KIND = [(name, kind) for name in VIEWS for kind in KINDS if (name, kind) not in ONE_KIND]


@pytest.mark.parametrize(
    ("name", "kind"), [*ONE_KIND, *(pytest.param(*other, marks=pytest.mark.slow) for other in OTHER_KIND)]
)
def test_a_picture_opens_again_to_the_same_read_out(
    wide: Any, explorer: Any, tmp_path: Path, name: str, kind: str
) -> None:
    page = wide.page
    wanted = opened(page, explorer, name)
    path = saved(page, f"save-{VIEWS[name][1]}-{kind}", tmp_path)
    page.goto("about:blank")
    page.goto(f"{explorer.address}/#tab=lab")
    page.get_by_test_id("open-file").set_input_files(path)
    expect(page.get_by_test_id(VIEWS[name][2])).to_have_text(wanted)
    if kind == "png":
        pixels = imread(path)
        assert pixels.shape[0] > 300 and pixels.shape[1] > 300
        assert pixels[..., :3].min() < 0.3  # something is drawn


@pytest.mark.parametrize("name", by_default({"alignment"}, ["alignment", "large"]))
def test_a_picture_is_the_same_whatever_the_screen(explorer: Any, browser: Browser, tmp_path: Path, name: str) -> None:
    """Light colours on white paper, also where the page is dark, and where there is much to draw anew."""
    state, figure, _ = VIEWS.get(name, ("tab=positions", "positions", ""))
    explorer.wait_for("fr-en")
    pictures = []
    for scheme in ("light", "dark"):
        page = browser.new_context(color_scheme=scheme).new_page()
        page.goto(f"{explorer.address}/#{state}")
        (tmp_path / scheme).mkdir()
        pictures.append(imread(saved(page, f"save-{figure}-png", tmp_path / scheme)))
        page.context.close()
    assert pictures[0].shape == pictures[1].shape
    assert abs(pictures[0] - pictures[1]).max() < 0.02


def test_an_svg_stands_alone(wide: Any, explorer: Any, browser: Browser, tmp_path: Path) -> None:
    """Opened as a file it shows the words of the axes and the cells, in letters that fit onto its sheet."""
    opened(wide.page, explorer, "alignment")
    path = saved(wide.page, "save-weights-svg", tmp_path)
    page = browser.new_page()
    page.goto(path.as_uri())
    words = page.locator("text").all_text_contents()
    assert {"Jane", "visite", "visits", "Africa"} <= set(words)
    outside = page.evaluate("""() => {
        const sheet = document.documentElement.getBoundingClientRect()
        return [...document.querySelectorAll('text')].filter(one => {
            const box = one.getBoundingClientRect()
            return box.left < 0 || box.top < 0 || box.right > sheet.right + 1 || box.bottom > sheet.bottom + 1
        }).map(one => one.textContent)
    }""")
    assert outside == []
    assert page.locator("image").count() >= 1
    page.close()


@pytest.mark.parametrize("name", by_default({"alignment"}, ["lab", "alignment"]))
def test_the_page_as_a_file_works_offline(
    wide: Any, explorer: Any, browser: Browser, tmp_path: Path, name: str
) -> None:
    wanted = opened(wide.page, explorer, name)
    path = saved(wide.page, "save-page", tmp_path)
    context = browser.new_context(offline=True)
    page = context.new_page()
    problems: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    expect(page.get_by_test_id(VIEWS[name][2])).to_have_text(wanted)
    for tab in ("alignment", "heads", "inside", "decode", "compare", "lab", "positions", "features", "lecture"):
        page.get_by_test_id(f"tab-{tab}").click()
        expect(page.get_by_test_id(f"view-{tab}")).to_be_visible()
    again = saved_from_file(page, tmp_path)
    assert again == path.read_text("utf-8").replace(state_of(path.read_text("utf-8")), state_of(again))
    assert problems == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    context.close()


def saved_from_file(page: Page, place: Path) -> str:
    """A file that was saved from a file."""
    (place / "again").mkdir()
    return saved(page, "save-page", place / "again").read_text("utf-8")


def state_of(text: str) -> str:
    """The data that a file brings along."""
    found = re.search(r'<script type="application/json" id="regard-data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.slow
def test_a_file_runs_nothing_but_its_own_script(wide: Any, explorer: Any, browser: Browser, tmp_path: Path) -> None:
    """Its policy names the hash of its script; one that somebody puts in is not run."""
    opened(wide.page, explorer, "lab")
    path = saved(wide.page, "save-page", tmp_path)
    text = path.read_text("utf-8")
    assert "default-src 'none'" in text and "unsafe-inline" not in text
    start, _, end = text.rpartition("</body>")
    path.write_text(f"{start}<script>document.title = 'planted'</script></body>{end}", "utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    expect(page.get_by_test_id("lab-explain")).to_be_visible()
    assert page.title() != "planted"
    page.close()


def test_a_lecture_as_a_file_has_all_its_scenes(wide: Any, explorer: Any, browser: Browser, tmp_path: Path) -> None:
    """Those whose numbers came from a server are opened; the page computes all others itself."""
    wide.page.goto(f"{explorer.address}/#tab=lecture")
    expect(wide.page.get_by_test_id("lecture-question")).to_be_visible()
    path = saved(wide.page, "save-page", tmp_path)
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    scenes = json.loads((STATIC / "scenes" / "index.json").read_text("utf-8"))
    from_server = [i for i, scene in enumerate(scenes) if scene["trace"] or "tab=inside" in scene["state"]]
    assert len(from_server) > 10
    for number in from_server[::4]:
        page.get_by_test_id("lecture-scene").select_option(index=number)
        expect(page.get_by_test_id("lecture-place")).to_have_text(f"{number + 1} of {len(scenes)}")
        expect(page.get_by_test_id("lecture-stage").locator(":is(figure, canvas, p):visible").first).to_be_visible()
        assert page.get_by_test_id("lecture-stage").get_by_role("alert").count() == 0, number
    context.close()


STRANGE = {
    "empty.json": b"",
    "notes.json": b'{"a": 1}',
    "list.json": b"[1, 2]",
    "broken.json": b'{"format": "regard-trace/1", "axes": {}',
    "half.json": b'{"format": "regard-trace/1", "model": {}, "axes": {}}',
    "torn.json": b'{"format": "regard-trace/1", "model": {}, "axes": {"source": {}}, "maps": {}}',
    "picture.png": b"\x89PNG\r\n\x1a\n" + b"\0" * 40,
    "drawing.svg": b"<svg xmlns='http://www.w3.org/2000/svg'><text>hello</text></svg>",
    "page.html": b"<!doctype html><script id='regard-data'>nothing</script>",
    "packed.json.gz": gzip.compress(b"not a trace"),
    "torn.json.gz": gzip.compress(b'{"format": "regard-trace/1"}')[:-9],
}


def test_other_files_are_refused_with_a_word(wide: Any, explorer: Any) -> None:
    page = wide.page
    page.goto(f"{explorer.address}/#tab=lab")
    for name, content in STRANGE.items():
        page.get_by_test_id("open-file").set_input_files({"name": name, "mimeType": "text/plain", "buffer": content})
        expect(page.get_by_test_id("toast")).to_have_text(re.compile(f"^{re.escape(name)}.*not a trace"))
        expect(page.get_by_test_id("lab-raw-0-0")).to_have_text("3")
    assert wide.errors == []


def copied(page: Page) -> str:
    """The code that the button copies."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("navigator.clipboard.writeText('')")
    page.get_by_test_id("copy-code").click()
    page.wait_for_function("navigator.clipboard.readText().then(text => text !== '')")
    return page.evaluate("navigator.clipboard.readText()")


def test_copied_pytorch_gives_the_same_numbers(wide: Any, explorer: Any) -> None:
    page = wide.page
    page.goto(f"{explorer.address}/#tab=lab")
    for state in (
        "",
        "&score=scaled&temperature=2.5&mask=causal",
        "&preset=jane&score=general",
        "&preset=masked&score=additive&wq=1_0.5*0_2",
        "&preset=masked&mask=000",
    ):
        page.evaluate("state => { location.hash = state }", f"tab=lab{state}")
        expect(page.locator("main")).to_contain_text("temperature 2.5" if "2.5" in state else "each row sums to 1")
        code = copied(page)
        assert "regard" not in code  # torch alone
        names: dict[str, Any] = {}
        exec(code, names)
        for stage, tensor in (("weights", names["weights"]), ("out", names["Y"])):
            cells = page.get_by_test_id(f"lab-{stage}").locator("button")
            seen = cells.evaluate_all("all => all.map(one => Number(one.dataset.value))")
            assert seen == pytest.approx(tensor.flatten().tolist(), abs=1e-5), state


def test_copied_positions_run(wide: Any, explorer: Any) -> None:
    page = wide.page
    page.goto(f"{explorer.address}/#tab=positions&preset=small")
    for state in ("", "&kind=rotary&layout=halves", "&kind=rotary", "&kind=learned"):
        page.evaluate("state => { location.hash = state }", f"tab=positions&preset=small{state}")
        kind = "rotary" if "rotary" in state else "learned" if "learned" in state else "sinusoidal"
        expect(page.get_by_test_id("positions-about")).to_contain_text(kind.capitalize())
        names: dict[str, Any] = {}
        exec(copied(page), names)
        if kind != "learned":
            cells = page.get_by_test_id("positions-map-table").locator("td[data-value]")
            seen = cells.evaluate_all("all => all.map(one => Number(one.dataset.value))")
            assert seen == pytest.approx(names["table"].flatten().tolist(), abs=1e-5), state


@pytest.mark.parametrize(
    "state",
    by_default(
        {"&of=model&map=cross&layer=1&head=2"},
        ["&of=model&map=cross&layer=1&head=2", "&phi=optimal&normalize=1", "&of=unit&phi=elu"],
    ),
)
def test_copied_random_features_run(
    wide: Any, explorer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Exact weights are the page's; those of features have another draw."""
    monkeypatch.chdir(tmp_path)
    page = wide.page
    page.goto(f"{explorer.address}/#tab=features")
    page.evaluate("state => { location.hash = state }", f"tab=features&features=16{state}")
    expect(page.get_by_test_id("features-about")).to_contain_text(
        "keys of a head" if "model" in state else "length 1" if "unit" in state else "Five words"
    )
    expect(page.get_by_test_id("features-exact-canvas")).to_be_visible()
    names: dict[str, Any] = {}
    exec(copied(page), names)
    if "unit" not in state:
        cells = page.get_by_test_id("features-exact-table").locator("td[data-value]")
        seen = cells.evaluate_all("all => all.map(one => Number(one.dataset.value))")
        assert seen == pytest.approx(names["exact"].flatten().tolist(), abs=2e-3), state
    assert (tmp_path / "random-features.svg").exists()
