"""Decode in a browser: step by step, what was chosen from, by which search.

Elements: search, temperature, top-k, top-p, min-p, seed, width (controls) · back, play, next, step · piece ·
candidates, candidate (data-p, data-token), rest (data-p), entropy · step-attention · draw (data-draw, data-low,
data-high) · penalty, hypotheses, hypothesis, beam-tree, beam-node (data-state), pruned, search-again · unforce.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from page import expect_address
from playwright.sync_api import Page, expect

from regard.look import Trace

JANE = "Jane visite l'Afrique en septembre"


@pytest.fixture
def page(wide: Any, explorer: Any) -> Any:
    def go(state: str = "") -> Page:
        text = "" if "text=" in state or "model=" in state else f"&text={JANE.replace(' ', '+')}"
        wide.page.goto(f"{explorer.address}/#tab=decode{text}{state}")
        expect(wide.page.get_by_test_id("candidates")).to_be_visible()
        return wide.page

    yield go
    assert (wide.errors, wide.blocked) == ([], [])


def ask(explorer: Any, search: dict[str, Any], text: str = JANE, **wishes: Any) -> dict[str, Any]:
    return explorer.post("/api/trace", {"model": "fr-en", "text": text, "search": search, **wishes})


def bars(page: Page) -> list[float]:
    read = "all => all.map(one => +one.dataset.p)"
    return [
        *page.get_by_test_id("candidate").evaluate_all(read),
        *page.get_by_test_id("rest").evaluate_all(read),
    ]


def output(page: Page) -> str:
    return page.get_by_test_id("output-text").inner_text()


def settle(page: Page, search: str) -> None:
    """Pick a search and wait for what it gives."""
    with page.expect_response("**/api/trace"):
        page.get_by_test_id("search").get_by_label(search).check()
    expect(page.locator("main [aria-busy=true]")).to_have_count(0)


def test_bars_and_the_rest_sum_to_one_at_every_step(page: Any, explorer: Any) -> None:
    shown = page()
    trace = ask(explorer, {"name": "greedy"})
    for number, step in enumerate(trace["steps"]):
        expect(shown.get_by_test_id("step")).to_have_text(f"Step {number + 1} of {len(trace['steps'])}")
        drawn = bars(shown)
        assert sum(drawn) == pytest.approx(1, abs=1e-6)
        assert len(drawn) == 11
        np.testing.assert_allclose(drawn[:-1], np.exp([one["logp"] for one in step["candidates"]]), atol=1e-6)
        assert float(shown.get_by_test_id("entropy").inner_text()) == pytest.approx(step["entropy"], abs=6e-4)
        taken = shown.locator("tr.taken")
        assert int(taken.get_attribute("data-token") or "") == step["chosen"]
        if number + 1 < len(trace["steps"]):
            shown.get_by_test_id("next").click()
    expect(shown.get_by_test_id("next")).to_be_disabled()
    expect_address(shown, f"step={len(trace['steps']) - 1}")
    shown.reload()
    expect(shown.get_by_test_id("step")).to_have_text(f"Step {len(trace['steps'])} of {len(trace['steps'])}")


def test_attention_of_the_step(page: Any, explorer: Any) -> None:
    shown = page("&step=2")
    trace = Trace.from_dict(ask(explorer, {"name": "greedy"}))
    best = trace.best_head
    assert best is not None
    weights = trace.maps["cross"].weights[best.layer]
    row = (weights.mean(0) if best.head is None else weights[best.head])[2]
    words = shown.get_by_test_id("step-attention").locator("li")
    np.testing.assert_allclose(words.evaluate_all("all => all.map(one => +one.dataset.weight)"), row, atol=1e-6)
    assert words.locator("bdi").all_text_contents() == [
        one.text.replace("▁", "·") for one in trace.axes["source"].tokens
    ]


def test_steps_by_keys_and_play(page: Any) -> None:
    shown = page()
    step = shown.get_by_test_id("step")
    shown.keyboard.press("ArrowRight")
    expect(step).to_contain_text("Step 2 of")
    shown.keyboard.press("ArrowLeft")
    expect(step).to_contain_text("Step 1 of")
    shown.keyboard.press("Space")
    expect(step).to_contain_text("Step 3 of")
    shown.keyboard.press("Space")
    shown.get_by_test_id("text").press("ArrowLeft")  # keys of the field are the field's
    expect(step).to_contain_text("Step 3 of")


def test_same_seed_same_text_and_the_draw_falls_on_its_part(page: Any) -> None:
    shown = page("&search=sample&temperature=1.5&seed=2")
    first = output(shown)
    for _ in range(3):
        draw, low, high = (
            float(shown.get_by_test_id("draw").get_attribute(f"data-{name}") or "nan")
            for name in ("draw", "low", "high")
        )
        assert low <= draw < high
        shown.get_by_test_id("next").click()
    shown.get_by_test_id("seed").fill("3")
    shown.get_by_test_id("seed").press("Enter")
    expect(shown.get_by_test_id("output-text")).not_to_have_text(first)
    shown.goto("about:blank")
    shown.go_back()
    shown.get_by_test_id("seed").fill("2")
    shown.get_by_test_id("seed").press("Enter")
    expect(shown.get_by_test_id("output-text")).to_have_text(first)


def test_filters_reach_the_model(page: Any, explorer: Any) -> None:
    """Of one token nothing else can be drawn: top k = 1 is greedy, whatever the seed."""
    shown = page("&search=sample&temperature=1.5&seed=2&k=1")
    assert output(shown) == ask(explorer, {"name": "greedy"})["output"]
    shown = page("&search=sample&temperature=2&seed=5&minp=0.3&p=0.5")
    wanted = {"name": "sample", "temperature": 2, "top_k": 0, "top_p": 0.5, "min_p": 0.3, "seed": 5}
    expect(shown.get_by_test_id("output-text")).to_have_text(ask(explorer, wanted)["output"])


def test_beam_of_one_is_greedy(page: Any) -> None:
    for text in ("Jane+visite+l'Afrique+en+septembre", "Le+petit+chat+noir+dort+dans+le+jardin."):
        greedy = output(page(f"&text={text}"))
        shown = page(f"&text={text}&search=beam&width=1")
        expect(shown.get_by_test_id("beam-tree")).to_be_visible()
        assert output(shown) == greedy


def test_tree_has_every_node_and_the_slider_reorders_without_a_request(page: Any, explorer: Any) -> None:
    shown = page("&search=beam&width=4")
    tree = ask(explorer, {"name": "beam", "width": 4, "length_penalty": 1.0})["tree"]
    nodes = shown.get_by_test_id("beam-node")
    states = nodes.evaluate_all("all => all.map(one => one.dataset.state)")
    assert states == [node["state"] for node in tree["nodes"]]
    asked: list[str] = []
    shown.on("request", lambda request: asked.append(request.url) if "/api/" in request.url else None)
    lengths: list[int] = []
    for node in tree["nodes"]:
        lengths.append(1 if node["parent"] is None else lengths[node["parent"]] + 1)
    done = [i for i, node in enumerate(tree["nodes"]) if node["state"] == "done"]
    for penalty in (0.0, 0.5, 1.0, 2.0):
        shown.get_by_test_id("penalty").fill(str(penalty))
        ranked = sorted(done, key=lambda i: -tree["nodes"][i]["sum"] / lengths[i] ** penalty)
        told = [row.locator("td").nth(4).inner_text() for row in shown.get_by_test_id("hypothesis").all()]
        wanted = [tree["nodes"][i]["sum"] / lengths[i] ** penalty for i in ranked]
        assert [float(one.replace("−", "-")) for one in told] == pytest.approx(wanted, abs=6e-4)
    assert asked == []
    shown.get_by_test_id("pruned").uncheck()
    expect(nodes).to_have_count(len([state for state in states if state != "pruned"]))


def test_length_penalty_can_change_the_winner(page: Any, tmp_path: Any) -> None:
    """0 ranks by probability and favours the short, 2 the long: a tree made so that they differ."""
    from regard.look.trace.search_steps import Candidate, Node, Step, Tree
    from regard.look.trace.trace import Axis, Model, Token

    nodes = (
        Node(None, 5, "▁Yes", -0.5, -0.5, -0.5, "kept"),
        Node(0, 3, "</s>", -0.5, -1.0, -0.5, "done"),
        Node(0, 6, "▁indeed", -0.4, -0.9, -0.45, "kept"),
        Node(2, 3, "</s>", -0.3, -1.2, -0.4, "done"),
    )
    tokens = (Token("▁Yes", 0), Token("▁indeed", 1), Token("</s>", special=True))
    steps = tuple(Step(i, (Candidate(i, "x", 0.0),), 0.0, 0.0) for i in range(3))
    trace = Trace(
        Model("tiny", "transformer", {"decoder": 1}, 1, {}),
        {"target": Axis(tokens, ("Yes", "indeed"))},
        {},
        steps,
        Tree(2, 1.0, nodes, 3),
        output="Yes indeed",
    )
    shown = page()
    shown.get_by_test_id("open-file").set_input_files(trace.save(tmp_path / "tree.json"))
    shown.get_by_test_id("tab-decode").click()
    first = shown.get_by_test_id("hypothesis").first
    expect(first).to_contain_text("Yes indeed")
    shown.get_by_test_id("penalty").fill("0")
    expect(first).not_to_contain_text("indeed")
    shown.get_by_test_id("penalty").fill("2")
    expect(first).to_contain_text("Yes indeed")


def test_forced_token_goes_on_from_there(page: Any, explorer: Any) -> None:
    shown = page("&step=1")
    trace = ask(explorer, {"name": "greedy"})
    other = next(one for one in trace["steps"][1]["candidates"] if one["token"] != trace["steps"][1]["chosen"])
    shown.locator(f"[data-token='{other['token']}'] button").click()
    prefix = [trace["steps"][0]["chosen"], other["token"]]
    wanted = ask(explorer, {"name": "greedy"}, prefix=prefix)
    taken = shown.locator("tr.taken")
    expect(taken).to_have_attribute("data-token", str(other["token"]))
    expect(shown.get_by_test_id("output-text")).to_have_text(wanted["output"])
    assert [step["chosen"] for step in wanted["steps"][:2]] == prefix
    expect_address(shown, f"force={prefix[0]}.{prefix[1]}")
    # Once more, after the first one.
    shown.get_by_test_id("next").click()
    token = next(
        one["token"] for one in wanted["steps"][2]["candidates"] if one["token"] != wanted["steps"][2]["chosen"]
    )
    shown.locator(f"[data-token='{token}'] button").click()
    wanted = ask(explorer, {"name": "greedy"}, prefix=[*prefix, token])
    expect(taken).to_have_attribute("data-token", str(token))
    expect(shown.get_by_test_id("output-text")).to_have_text(wanted["output"])
    shown.get_by_test_id("unforce").click()
    expect(shown.get_by_test_id("output-text")).to_have_text(trace["output"])


@pytest.mark.slow
def test_token_of_a_writer_is_forced_after_its_prompt(page: Any, explorer: Any) -> None:
    shown = page("&model=shakespeare&text=Once")
    body = {"model": "shakespeare", "text": "Once", "search": {"name": "greedy"}}
    trace = explorer.post("/api/trace", body)
    given = len([step for step in trace["steps"] if step.get("given")])
    assert shown.locator("[data-testid=candidate] button").count() == 0  # the prompt is as it is
    shown.get_by_test_id("piece").nth(given + 1).click()
    step = trace["steps"][given + 1]
    token = next(one["token"] for one in step["candidates"] if one["token"] != step["chosen"])
    shown.locator(f"[data-token='{token}'] button").click()
    wanted = explorer.post("/api/trace", {**body, "prefix": [trace["steps"][given]["chosen"], token]})
    expect(shown.get_by_test_id("output-text")).to_have_text(wanted["output"], use_inner_text=True)


def test_searches_follow_the_choice(page: Any) -> None:
    shown = page()
    settle(shown, "sample")
    expect(shown.get_by_test_id("draw")).to_be_visible()
    settle(shown, "beam")
    expect(shown.get_by_test_id("beam-tree")).to_be_visible()
    expect(shown.get_by_test_id("draw")).to_have_count(0)


def test_model_without_attention_has_steps(page: Any) -> None:
    shown = page("&model=no-attention")
    assert sum(bars(shown)) == pytest.approx(1, abs=1e-6)
    expect(shown.get_by_test_id("note")).to_contain_text("has no attention")
