"""Heads in a browser: thumbnails and the large map, badges, rollout, heads switched off.

Elements: map, level, cut, hide, stretch, rollout, head-on, all-on (controls) · head-button (data-layer, data-head),
badge · head-map, head-map-canvas, head-map-table, head-map-masked · before-after, before-text, after-text, output-text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page import expect_address
from playwright.sync_api import Page, expect

from regard.look import Trace, head_statistics, rollout
from regard.look.trace.attention_map import Map
from regard.look.trace.trace import Axis, Model, Token

from ...repeats import by_default

JANE = "Jane visite l'Afrique en septembre"
SENTENCE = "Le petit chat noir dort dans le jardin."


@pytest.fixture
def page(wide: Any, explorer: Any) -> Any:
    def go(state: str = "") -> Page:
        text = "" if "text=" in state or "model=" in state else f"&text={JANE.replace(' ', '+')}"
        wide.page.goto(f"{explorer.address}/#tab=heads{text}{state}")
        expect(wide.page.get_by_test_id("head-map")).to_be_visible()
        return wide.page

    yield go
    assert (wide.errors, wide.blocked) == ([], [])


def ask(explorer: Any, text: str = JANE, **wishes: Any) -> Trace:
    return Trace.from_dict(explorer.post("/api/trace", {"model": "fr-en", "text": text, **wishes}))


def cells(page: Page) -> np.ndarray:
    """What the large map tells those who listen; NaN where it is masked."""
    rows = page.get_by_test_id("head-map-table").locator("tbody tr").all()
    read = [row.locator("td").all_text_contents() for row in rows]
    return np.array([[np.nan if cell == "masked" else float(cell) for cell in row] for row in read])


def size(page: Page, testid: str) -> list[int]:
    """Rows and columns that a canvas is painted with."""
    return page.get_by_test_id(testid).evaluate("one => [one.height, one.width]")


def test_every_head_has_a_button_and_a_map(page: Any, explorer: Any) -> None:
    shown = page()
    trace = ask(explorer)
    for title, name in (("Encoder", "enc_self"), ("Decoder", "dec_self"), ("Cross", "cross")):
        shown.get_by_test_id("map").get_by_label(title).check()
        weights = trace.maps[name].weights
        layers, heads, rows, columns = weights.shape
        buttons = shown.get_by_test_id("head-button")
        expect(buttons).to_have_count(layers * heads)
        assert size(shown, "head-map-canvas") == [rows, columns]
        assert (rows == columns) == (name != "cross")  # a translation has another length
        assert buttons.first.locator("canvas").evaluate("one => [one.height, one.width]") == [rows, columns]
        expect(shown.get_by_test_id("head-map-masked")).to_have_count(int(name == "dec_self"))
        for layer, head in ((0, 0), (layers - 1, heads - 1)):
            buttons.nth(layer * heads + head).click()
            seen = cells(shown)
            np.testing.assert_allclose(np.nan_to_num(seen), weights[layer, head], atol=6e-4)
            barred = (
                np.triu(np.ones((rows, columns), bool), 1) if name == "dec_self" else np.zeros((rows, columns), bool)
            )
            np.testing.assert_array_equal(np.isnan(seen), barred)
            assert (weights[layer, head][barred] == 0).all()
    expect_address(shown, f"layer={layers - 1}", f"head={heads - 1}")


def test_badges_are_those_of_the_library(page: Any, explorer: Any) -> None:
    shown = page(f"&text={SENTENCE.replace(' ', '+')}")
    trace = ask(explorer, SENTENCE)
    named = set()
    for title, name in (("Encoder", "enc_self"), ("Decoder", "dec_self"), ("Cross", "cross")):
        shown.get_by_test_id("map").get_by_label(title).check()
        found = head_statistics(trace.maps[name])
        layers, heads = found.entropy.shape
        wanted = [found.badges(layer, head) for layer in range(layers) for head in range(heads)]
        buttons = shown.get_by_test_id("head-button")
        read = "all => all.map(one => [...one.querySelectorAll('[data-testid=badge]')].map(badge => badge.textContent))"
        assert buttons.evaluate_all(read) == wanted
        named |= {badge for badges in wanted for badge in badges}
    assert named  # a sentence that none has a badge for would prove nothing


def test_threshold_and_hidden_tokens(page: Any, explorer: Any) -> None:
    shown = page("&map=cross")
    weights = ask(explorer).maps["cross"].weights[0, 0]
    shown.get_by_test_id("cut").fill("0.1")
    np.testing.assert_allclose(cells(shown), np.where(weights < 0.1, 0, weights), atol=6e-4)
    shown.get_by_test_id("hide").check()
    assert cells(shown).shape == (weights.shape[0] - 1, weights.shape[1] - 1)


def test_rollout_is_that_of_the_library(page: Any, explorer: Any) -> None:
    shown = page("&map=enc_self")
    wanted = rollout(ask(explorer).maps["enc_self"])
    layers = len(wanted)
    shown.get_by_test_id("rollout").check()
    for layer in (0, layers - 1):
        shown.locator(f"[data-testid=head-button][data-layer='{layer}']").first.click()
        np.testing.assert_allclose(cells(shown), wanted[layer], atol=6e-4)
    shown.get_by_test_id("map").get_by_label("Cross").check()
    expect(shown.get_by_test_id("rollout")).to_have_count(0)  # only self-attention can be multiplied up


def test_switching_off_changes_the_output_and_on_restores_it(page: Any, explorer: Any) -> None:
    shown = page("&map=cross")
    trace = ask(explorer)
    layers, heads = trace.maps["cross"].weights.shape[:2]
    before = shown.get_by_test_id("output").inner_html()
    off = [{"map": "cross", "layer": layer, "head": head} for layer in range(layers) for head in range(heads)]
    state = "off=" + "%2C".join(f"cross.{one['layer']}.{one['head']}" for one in off)
    shown = page(f"&map=cross&{state.rpartition('%2C')[0]}")
    shown.locator(f"[data-testid=head-button][data-layer='{layers - 1}'][data-head='{heads - 1}']").click()
    shown.get_by_test_id("head-on").uncheck()
    without = ask(explorer, off=off)
    assert without.output != trace.output  # nothing of the source gets through
    expect(shown.get_by_test_id("after-text")).to_have_text(without.output)
    expect(shown.get_by_test_id("before-text")).to_have_text(trace.output)
    chosen = [next(one for one in step.candidates if one.token == step.chosen) for step in without.steps]
    told = shown.get_by_test_id("after").get_by_test_id("probability").all_text_contents()
    assert [float(one.split()[0]) for one in told] == pytest.approx(
        [100 * np.exp(one.logp) for one in chosen], abs=0.06
    )
    expect_address(shown, state)
    shown.get_by_test_id("all-on").click()
    expect(shown.get_by_test_id("before-after")).to_have_count(0)
    assert shown.get_by_test_id("output").inner_html() == before


@pytest.mark.slow
def test_head_off_and_on_by_its_switch(page: Any) -> None:
    shown = page("&map=enc_self")
    before = shown.get_by_test_id("output").inner_html()
    shown.get_by_test_id("head-on").uncheck()
    expect(shown.get_by_test_id("after")).to_be_visible()
    shown.get_by_test_id("head-on").check()
    expect(shown.get_by_test_id("before-after")).to_have_count(0)
    assert shown.get_by_test_id("output").inner_html() == before


@pytest.mark.parametrize(
    ("model", "name"),
    by_default(
        {("small-rnn", "Recurrent")},
        [("shakespeare", "Decoder"), ("small-encoder", "Encoder"), ("small-rnn", "Recurrent")],
    ),
)
def test_other_kinds_of_models(model: str, name: str, page: Any) -> None:
    shown = page(f"&model={model}")
    assert shown.get_by_test_id("map").locator("label").all_text_contents() == [name]


def long_trace(path: Path, length: int = 512) -> Path:
    """A Transformer on texts of 512 tokens, with steps of which each token was chosen from ten."""
    from regard.look.trace.search_steps import Candidate, Step

    random = np.random.default_rng(0)
    weights = random.gamma(0.3, size=(1, 4, length, length))
    causal = np.tri(length, dtype=bool)
    own = weights * causal + 1e-9 * causal
    axes = {
        name: Axis(tuple(Token(f"{name}{i}", i) for i in range(length)), tuple(f"{name}{i}" for i in range(length)))
        for name in ("source", "target", "read")
    }
    maps = {
        "enc_self": Map("source", "source", (weights / weights.sum(-1, keepdims=True)).astype(np.float32)),
        "dec_self": Map("target", "read", (own / own.sum(-1, keepdims=True)).astype(np.float32), mask=causal),
        "cross": Map("target", "source", (weights / weights.sum(-1, keepdims=True)).astype(np.float32)),
    }
    logps = np.log(np.full(10, 0.09))
    candidates = tuple(Candidate(i, f"token{i}", float(logp)) for i, logp in enumerate(logps))
    steps = tuple(Step(0, candidates, 0.1, 2.0) for _ in range(length))
    model = Model("long", "transformer", {"encoder": 1, "decoder": 1}, 4, {})
    return Trace(model, axes, maps, steps, source="a long text", output="a long text too").save(path)


def test_512_tokens_are_drawn_with_few_nodes(page: Any, tmp_path: Path) -> None:
    shown = page()
    shown.get_by_test_id("open-file").set_input_files(long_trace(tmp_path / "long.json"))
    expect(shown).to_have_url(re.compile("trace=long.json"))
    expect(shown.get_by_test_id("head-button")).to_have_count(4)
    for tab, canvas in (
        ("alignment", "weights-canvas"),
        ("heads", "head-map-canvas"),
        ("decode", None),
        ("compare", "map-a-canvas"),
    ):
        shown.get_by_test_id("tab-lab").click()
        expect(shown.get_by_test_id("lab-raw")).to_be_visible()
        shown.get_by_test_id(f"tab-{tab}").click()
        expect(shown.get_by_test_id(f"view-{tab}")).to_be_visible()
        if canvas:
            assert size(shown, canvas) == [512, 512]
        assert shown.evaluate("document.querySelectorAll('*').length") < 2000, tab
    shown.get_by_test_id("tab-alignment").click()
    shown.get_by_test_id("weights-canvas").click()
    expect(shown.get_by_test_id("weights-row")).to_be_visible()
    shown.get_by_test_id("view").get_by_label("arcs").check()
    assert shown.evaluate("document.querySelectorAll('*').length") < 2000
