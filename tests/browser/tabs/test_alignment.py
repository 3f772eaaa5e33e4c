"""The front page in a browser: which source words each written word looked at.

Elements: sentence, text, send, source (form) · view, level, layer, head, cut, hide, beside (controls) · options, more ·
output-text, piece, probability · weights, weights-canvas, weights-table, weights-readout, weights-pin, weights-row,
weights-arc · links · beside-panel, beside-weights · waiting, note, alert.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page import expect_address, expect_address_without
from playwright.sync_api import Page, expect

from regard.look import Trace, merge_words
from regard.look.trace.attention_map import Map
from regard.look.trace.trace import Axis, Model, Token

from ...repeats import by_default

JANE = "Jane visite l'Afrique en septembre"
DEFAULTS = {"text=": JANE.replace(" ", "+"), "view=": "matrix"}
NASTY = [
    "<script>document.title='gone'</script>",
    '"><img src=x onerror="document.title=\'gone\'">',
    "</script>",
    "&lt;",
]


@pytest.fixture
def page(wide: Any, explorer: Any) -> Any:
    """Opens the tab with a state; what the server refuses on purpose is no error."""
    refused = []

    def go(state: str = "", refuses: int = 0) -> Page:
        refused.append(refuses)
        text, view = ("" if part in state else f"&{part}{value}" for part, value in DEFAULTS.items())
        wide.page.goto(f"{explorer.address}/#tab=alignment&more=1{text}{view}{state}")
        expect(wide.page.get_by_test_id("piece").first).to_be_visible()
        return wide.page

    yield go
    assert wide.blocked == []
    assert len([error for error in wide.errors if error.startswith("400")]) == refused[-1]
    assert [error for error in wide.errors if "400" not in error] == []


def headers(page: Page, testid: str = "weights-table") -> tuple[list[str], list[str]]:
    """The rows and columns as those hear them who listen to the page."""
    table = page.get_by_test_id(testid)
    return table.locator("tbody th").all_text_contents(), table.locator("thead th").all_text_contents()


def cells(page: Page, testid: str = "weights-table") -> np.ndarray:
    rows = page.get_by_test_id(testid).locator("tbody tr").all()
    return np.array([[float(cell) for cell in row.locator("td").all_text_contents()] for row in rows])


def best_weights(trace: Trace) -> np.ndarray:
    """What "best for alignment" shows."""
    assert trace.alignment is not None
    return trace.alignment.weights[0, 0]


def hover(page: Page, row: int, column: int, shape: tuple[int, int], testid: str = "weights-canvas") -> None:
    canvas = page.get_by_test_id(testid)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(
        box["x"] + (column + 0.5) * box["width"] / shape[1], box["y"] + (row + 0.5) * box["height"] / shape[0]
    )


def test_jane_is_aligned(page: Any) -> None:
    """E9, and the picture of D16."""
    shown = page()
    expect(shown.get_by_test_id("output-text")).to_have_text("Jane visits Africa in September")
    rows, columns = headers(shown)
    assert rows == ["Jane", "visits", "Africa", "in", "September", "</s>"]
    looked = {row: columns[place] for row, place in zip(rows, cells(shown).argmax(1), strict=True)}
    assert looked["Africa"] in ("Afrique", "l'Afrique", "l'")
    assert looked["September"] == "septembre"
    links = shown.get_by_test_id("links").locator("tbody tr").all()
    assert {row.locator("th").inner_text(): row.locator("td").first.inner_text() for row in links} == looked


def test_hover_reads_what_the_server_says_and_click_pins(page: Any, explorer: Any) -> None:
    shown = page()
    expect(shown.get_by_test_id("weights-canvas")).to_be_visible()
    trace = merge_words(Trace.from_dict(explorer.post("/api/trace", {"model": "fr-en", "text": JANE})))
    wanted = best_weights(trace)
    rows, columns = headers(shown)
    readout = shown.get_by_test_id("weights-readout")
    for row, column in ((2, 2), (3, 4), (0, 5)):
        hover(shown, row, column, wanted.shape)
        expect(readout).to_have_text(
            f"“{rows[row]}” attends to “{columns[column]}” with weight {wanted[row, column]:.4f}"
        )
    hover(shown, 2, 2, wanted.shape)
    shown.mouse.down()
    shown.mouse.up()
    shown.mouse.move(5, 5)
    expect(shown.get_by_test_id("weights-pin")).to_be_visible()
    expect(readout).to_contain_text(f"{wanted[2, 2]:.4f}")
    expect_address(shown, "pin=2.2")
    told = shown.get_by_test_id("weights-row").locator("li").evaluate_all("all => all.map(one => +one.dataset.weight)")
    np.testing.assert_allclose(told, wanted[2], atol=1e-6)
    shown.keyboard.press("Escape")
    expect(shown.get_by_test_id("weights-pin")).to_have_count(0)
    expect_address_without(shown, "pin")


def test_each_token_has_its_probability(page: Any, explorer: Any) -> None:
    shown = page()
    expect(shown.get_by_test_id("piece").first).to_be_visible()
    trace = explorer.post("/api/trace", {"model": "fr-en", "text": JANE})
    chosen = [next(one for one in step["candidates"] if one["token"] == step["chosen"]) for step in trace["steps"]]
    wanted = [f"{100 * np.exp(one['logp']):.1f} %" for one in chosen]
    assert shown.get_by_test_id("probability").all_text_contents() == wanted


def test_new_sentence_answers(page: Any, explorer: Any) -> None:
    shown = page()
    expect(shown.get_by_test_id("output-text")).to_have_text("Jane visits Africa in September")
    shown.get_by_test_id("text").fill("Le chat dort.")
    shown.keyboard.press("Enter")
    wanted = explorer.post("/api/trace", {"model": "fr-en", "text": "Le chat dort."})["output"]
    expect(shown.get_by_test_id("output-text")).to_have_text(wanted)
    expect_address(shown, "text=Le+chat+dort.")
    shown.reload()
    expect(shown.get_by_test_id("output-text")).to_have_text(wanted)


def test_empty_and_too_long_sentences_are_refused_and_the_last_one_stays(page: Any, explorer: Any) -> None:
    """Few characters may be many tokens, which only the server knows."""
    shown = page(refuses=1)
    longest = explorer.get("/api/models")["limits"]["characters"]
    refused = {
        "": "type a sentence first",
        "   ": "type a sentence first",
        "a" * (longest + 1): "shorten it",
        "♘" * 600: "tokens",
    }
    for text, why in refused.items():
        shown.get_by_test_id("text").fill(text)
        shown.get_by_test_id("send").click()
        expect(shown.get_by_role("alert")).to_contain_text(why)
        expect(shown.get_by_test_id("output-text")).to_have_text("Jane visits Africa in September")
        expect(shown.get_by_test_id("weights-canvas")).to_be_visible()


def test_pieces_words_heads_and_means(page: Any, explorer: Any) -> None:
    shown = page()
    expect(shown.get_by_test_id("weights-canvas")).to_be_visible()
    trace = Trace.from_dict(explorer.post("/api/trace", {"model": "fr-en", "text": JANE}))
    weights = trace.maps["cross"].weights
    shown.get_by_test_id("level").get_by_label("subwords").check()
    pieces = [[token.text.replace("▁", "·") for token in trace.axes[side].tokens] for side in ("target", "source")]
    assert list(headers(shown)) == pieces
    np.testing.assert_allclose(cells(shown), best_weights(trace), atol=6e-4)
    shown.get_by_test_id("head").select_option("mean")
    np.testing.assert_allclose(cells(shown), weights.mean((0, 1)), atol=6e-4)
    shown.get_by_test_id("head").select_option("max")
    np.testing.assert_allclose(cells(shown), weights.max((0, 1)), atol=6e-4)
    shown.get_by_test_id("layer").select_option("0")
    shown.get_by_test_id("head").select_option("1")
    np.testing.assert_allclose(cells(shown), weights[0, 1], atol=6e-4)
    shown.get_by_test_id("hide").check()
    np.testing.assert_allclose(cells(shown), weights[0, 1, :-1, :-1], atol=6e-4)


def test_arcs_are_the_weights(page: Any, explorer: Any) -> None:
    shown = page("&view=arcs&level=piece&head=mean")
    arcs = shown.get_by_test_id("weights-arc")
    expect(arcs.first).to_be_attached()
    weights = Trace.from_dict(explorer.post("/api/trace", {"model": "fr-en", "text": JANE})).maps["cross"].weights
    mean = weights.mean((0, 1))
    drawn = arcs.evaluate_all("all => all.map(one => +one.dataset.weight)")
    np.testing.assert_allclose(drawn, np.sort(mean[mean >= 0.02]), atol=1e-6)
    arcs.last.dispatch_event("click")
    expect(shown.get_by_test_id("weights-readout")).to_contain_text(f"{mean.max():.4f}")
    shown.get_by_test_id("weights-row-word").nth(1).focus()
    expect(shown.get_by_test_id("weights-readout")).to_contain_text(f"{mean[1].max():.4f}")
    shown.keyboard.press("Enter")
    expect_address(shown, f"pin=1.{mean[1].argmax()}")
    shown.keyboard.press("Escape")
    expect_address_without(shown, "pin")


def test_two_models_side_by_side(page: Any) -> None:
    shown = page("&beside=small-rnn")
    expect(shown.get_by_test_id("beside-weights")).to_be_visible()
    expect(shown.get_by_test_id("weights")).to_be_visible()
    _, columns = headers(shown, "beside-weights-table")
    assert columns[:2] == ["Jane", "visite"]
    shown.get_by_test_id("beside").select_option("")
    expect(shown.get_by_test_id("beside-weights")).to_have_count(0)


def test_model_without_attention_says_so_and_shows_its_steps(page: Any) -> None:
    shown = page("&model=no-attention")
    expect(shown.get_by_test_id("note")).to_contain_text("has no attention")
    expect(shown.get_by_test_id("probability").first).to_be_visible()


@pytest.mark.slow
def test_model_that_writes_on_its_own_looks_at_itself(page: Any) -> None:
    shown = page("&model=shakespeare")
    expect(shown.get_by_test_id("weights")).to_be_visible()
    expect(shown.get_by_test_id("weights-masked")).to_be_attached()


def write_trace(path: Path, rows: list[str], columns: list[str]) -> Path:
    weights = np.random.default_rng(0).dirichlet(np.ones(len(columns)), (1, 2, len(rows))).astype(np.float32)
    axes = {
        name: Axis(tuple(Token(text, i) for i, text in enumerate(texts)), tuple(texts))
        for name, texts in (("target", rows), ("source", columns))
    }
    model = Model(NASTY[0], "transformer", {"encoder": 1, "decoder": 1}, 2, {})
    maps = {"cross": Map("target", "source", weights)}
    return Trace(model, axes, maps, source=" ".join(columns), output=" ".join(rows)).save(path)


@pytest.mark.slow
@pytest.mark.parametrize("view", by_default({"matrix"}, ["matrix", "arcs"]))
def test_markup_in_tokens_is_text(view: str, page: Any, tmp_path: Path) -> None:
    shown = page()
    name = "<img src=x onerror=alert(1)>.json"
    shown.get_by_test_id("open-file").set_input_files(
        {
            "name": name,
            "mimeType": "application/json",
            "buffer": write_trace(tmp_path / "t.json", NASTY, NASTY[::-1]).read_bytes(),
        }
    )
    expect(shown.get_by_test_id("head-map")).to_be_visible()
    for tab in ("alignment", "compare", "decode", "heads"):
        shown.get_by_test_id(f"tab-{tab}").click()
        if tab == "alignment":
            shown.get_by_test_id("view").get_by_label(view).check()
            expect(shown.get_by_test_id("output-text")).to_have_text(" ".join(NASTY))
        expect(shown.get_by_test_id("source").locator("option:checked")).to_have_text(f"trace: {name}")
    assert shown.title() == "regard: look inside attention"
    assert shown.locator("img").count() == 0
    assert shown.locator("script").count() == 1


@pytest.mark.slow
def test_typed_markup_is_text(page: Any) -> None:
    shown = page()
    expect(shown.get_by_test_id("weights-canvas")).to_be_visible()
    shown.get_by_test_id("text").fill("Jane <script>alert(1)</script> dort")
    shown.get_by_test_id("send").click()
    expect(shown.get_by_test_id("weights-table").locator("thead")).to_contain_text("<script>alert(1)</script>")
    assert shown.locator("script").count() == 1


@pytest.mark.slow
def test_broken_links_open_something(page: Any) -> None:
    """Numbers out of range and names that nobody has."""
    shown = page("&pin=9.x&layer=99&head=-3&level=letter&view=round&beside=none")
    expect(shown.get_by_test_id("weights-canvas")).to_be_visible()
    for state in (
        "tab=heads&off=cross.1,nonsense.0.0&layer=1.5&head=99&map=none&pin=.",
        "tab=decode&force=x.1&step=-4&search=none&rank=x",
        "tab=compare&layer=x&head2=99&beside=none&map=none",
    ):
        shown.goto(f"{shown.url.split('#')[0]}#{state}")
        expect(shown.locator("main h1")).to_be_visible()
        expect(shown.get_by_test_id("piece").first).to_be_visible()


def test_python_of_each_view_runs(page: Any, explorer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shown = page()
    shown.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=explorer.address)
    states = {
        "alignment": "head=mean&layer=0",
        "heads": "off=cross.0.1",
        "inside": "stack=decoder&token=2",
        "decode": "search=sample&temperature=1.5&k=5&seed=3",
        "compare": "head2=max",
    }
    for tab, state in states.items():
        shown.goto(f"{shown.url.split('#')[0]}#tab={tab}&{state}")
        expect(shown.get_by_test_id("inside" if tab == "inside" else "piece").first).to_be_visible()
        shown.get_by_test_id("copy-code").click()
        expect(shown.get_by_text("is on the clipboard")).to_be_visible()
        capsys.readouterr()
        exec(compile(shown.evaluate("navigator.clipboard.readText()"), tab, "exec"), {})
        printed = capsys.readouterr().out
        if tab == "decode":
            assert printed.splitlines()[0] == shown.get_by_test_id("output-text").inner_text()
        assert printed


@pytest.mark.slow
def test_letters_from_right_to_left_and_chinese(page: Any, tmp_path: Path) -> None:
    shown = page()
    path = write_trace(tmp_path / "t.json", ["北京", "欢迎", "你"], ["مرحبا", "بكم", "في", "بكين"])
    shown.get_by_test_id("open-file").set_input_files(path)
    shown.get_by_test_id("tab-alignment").click()
    assert headers(shown) == (["北京", "欢迎", "你"], ["مرحبا", "بكم", "في", "بكين"])
    shown.get_by_test_id("view").get_by_label("arcs").check()
    places = shown.get_by_test_id("weights-col-word").evaluate_all("all => all.map(one => +one.getAttribute('x'))")
    assert places == sorted(places, reverse=True)  # the first word stands on the right
    places = shown.get_by_test_id("weights-row-word").evaluate_all("all => all.map(one => +one.getAttribute('x'))")
    assert places == sorted(places)


def test_long_sentence_scrolls_in_its_own_box(phone: Any, explorer: Any) -> None:
    words = "+".join(["chat"] * 40)
    for view in ("matrix", "arcs"):
        phone.page.goto(f"{explorer.address}/#tab=alignment&view={view}&text={words}")
        expect(phone.page.get_by_test_id("weights")).to_be_visible()
        assert phone.sideways() == 0
    assert (phone.errors, phone.blocked) == ([], [])


def test_attribution_stands_beside_attention(wide: Any, explorer: Any) -> None:
    """The panel shows the numbers of the server, for each method, and says what they can and cannot say."""
    page = wide.page
    page.goto(f"{explorer.address}/#tab=alignment&text=le+chat+noir+dort&attribution=1")
    panel = page.get_by_test_id("attribution")
    cells = panel.get_by_test_id("attribution-values-table").locator("td[data-value]")
    for method in ("occlusion", "gradient_times_input"):
        with page.expect_response("**/api/attribution") as asked:
            if method == "occlusion":
                page.reload()
            else:
                panel.get_by_role("radio", name="gradient × input").check()
        numbers = [number for row in asked.value.json()["values"] for number in row]
        assert len(numbers) > 12 and asked.value.request.post_data_json["method"] == method
        expect(cells.last).to_have_attribute("data-value", str(numbers[-1]))
        shown = [float(cell.get_attribute("data-value") or "nan") for cell in cells.all()]
        assert shown == pytest.approx(numbers)
    expect(panel).to_contain_text("It cannot say")
    expect(panel.get_by_test_id("attribution-agreement")).to_contain_text("Rank correlation")
    assert (wide.errors, wide.blocked) == ([], [])
