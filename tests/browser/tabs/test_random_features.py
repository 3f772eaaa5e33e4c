"""Random features in a browser: errors that fall, a bias that stays, the library's numbers, and heads of models.

Elements: features-exact, features-plain, features-corrected (matrices, with -canvas, -readout, -table; the last two
with -error), features-errors, features-costs (curves), features-meeting, features-example, features-map, features-draw,
features-count, features-seed, features-normalize, features-about, features-noise, features-misfit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from page import expect_address
from page_arithmetic import feature_weights
from playwright.sync_api import Page, expect


@pytest.fixture
def features(wide: Any, explorer: Any) -> Any:
    """Opens Random features with a state."""

    def go(state: str = "") -> Page:
        wide.page.goto("about:blank")
        wide.page.goto(f"{explorer.address}/#tab=features{state}")
        expect(wide.page.get_by_test_id("features-exact-canvas")).to_be_visible()
        return wide.page

    yield go
    assert (wide.errors, wide.blocked) == ([], [])


def number(page: Page, element: str) -> float:
    return float(page.get_by_test_id(element).inner_text().replace("−", "-"))


def table(page: Page, name: str) -> list[float]:
    cells = page.get_by_test_id(f"features-{name}-table").locator("td[data-value]")
    return cells.evaluate_all("all => all.map(one => Number(one.dataset.value))")


@pytest.mark.parametrize(
    ("example", "name"),
    [
        ("jane", "optimal"),
        *(
            pytest.param(*other, marks=pytest.mark.slow)
            for other in (("jane", "trig"), ("unit", "trig"), ("unit", "hyperbolic"))
        ),
    ],
)
def test_more_features_have_a_smaller_error(features: Any, example: str, name: str) -> None:
    """At 512 below that at 16: of the draw that is shown, and of the medians."""
    page = features(f"&of={example}&phi={name}&features=16")
    few = number(page, "features-corrected-error")
    medians = table(page, "errors")[:7]
    page.get_by_test_id("features-count").fill("5")
    expect_address(page, "features=512")
    expect(page.get_by_role("heading", name=f"Corrected ({name}), F = 512")).to_be_visible()
    assert number(page, "features-corrected-error") < few
    assert medians[5] < medians[0] / 2


def test_the_lectures_formula_keeps_its_bias(features: Any) -> None:
    """F3: with infinitely many features it is off by 0.2827, and the corrected one is not."""
    page = features("&features=0")
    assert page.get_by_test_id("features-plain-error").inner_text() == "0.2827"
    assert page.get_by_test_id("features-corrected-error").inner_text() == "0.0000"
    corrected, plain, slope, limit = np.array(table(page, "errors")).reshape(4, 7)
    assert np.allclose(limit, 0.28266, atol=1e-5) and abs(plain[-1] - limit[-1]) < 0.03 < limit[-1] - corrected[-1]
    assert np.allclose(slope, corrected[-1] * np.sqrt(1024 / 2.0 ** np.arange(4, 11)))
    page.get_by_test_id("features-normalize").check()
    expect(page.get_by_test_id("features-plain-error")).to_have_text("0.0000")  # all keys have one length now


def test_normalised_plain_and_trig_are_the_same(features: Any) -> None:
    page = features("&normalize=1&seed=4")
    assert table(page, "plain") == pytest.approx(table(page, "corrected"), abs=1e-12)
    page.get_by_test_id("features-normalize").uncheck()
    expect(page.get_by_test_id("features-plain-error")).not_to_have_text(
        page.get_by_test_id("features-corrected-error").inner_text()
    )


@pytest.mark.slow
def test_a_cell_reads_out_all_three_and_the_url_keeps_the_view(features: Any) -> None:
    page = features()
    canvas = page.get_by_test_id("features-corrected-canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 1.5 / 5, "y": box["height"] * 2.5 / 5})
    at = 2 * 5 + 1
    exact, plain, corrected = (table(page, name)[at] for name in ("exact", "plain", "corrected"))
    line = f"“l'Afrique” attends to “visite”: exact {exact:.4f}, lecture {plain:.4f}, trig {corrected:.4f}"
    for name in ("exact", "plain", "corrected"):
        expect(page.get_by_test_id(f"features-{name}-readout")).to_have_text(line)
    page.get_by_test_id("features-seed").fill("7")
    page.get_by_test_id("features-seed").press("Enter")
    page.get_by_test_id("features-map").get_by_label("optimal").check()
    page.get_by_test_id("features-draw").get_by_label("independent").check()
    expect(page.get_by_test_id("features-corrected-readout")).to_contain_text("optimal")
    expect_address(page, "pin=2.1", "seed=7", "phi=optimal", "draw=independent")
    seen = table(page, "corrected")
    page.reload()
    expect(page.get_by_test_id("features-corrected-readout")).to_contain_text("optimal")
    assert table(page, "corrected") == seen


def test_curves_by_keyboard(features: Any) -> None:
    page = features()
    page.get_by_test_id("features-errors").get_by_role("group").focus()
    page.keyboard.press("End")
    expect(page.get_by_test_id("features-errors-readout")).to_contain_text("F = 1024: trig ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Corrected (trig), F = 1024")).to_be_visible()
    page.get_by_test_id("features-costs").get_by_role("group").focus()
    page.keyboard.press("End")
    d, M, F, L = 3, 512, 1024, 65536
    times = 2 * d * L * L / (2 * L * M * d + 2 * L * F * (d + 1))
    readout = page.get_by_test_id("features-costs-readout")
    expect(readout).to_contain_text(f"1024 features 7.4·10⁸, {times:.1f} times fewer")
    assert number(page, "features-meeting") == math.ceil((2 * M * d + 2 * F * (d + 1)) / (2 * d))


def test_too_long_vectors_are_noise_and_it_says_so(features: Any) -> None:
    page = features("&of=normal&phi=positive")
    expect(page.get_by_test_id("features-noise")).to_contain_text("larger than the weights")
    page.get_by_test_id("features-normalize").check()
    expect(page.get_by_test_id("features-noise")).to_have_count(0)
    assert number(page, "features-corrected-error") < 0.5


# The page's arithmetic against the library's, with the page's own rows W.


def normal_numbers(seed: int) -> Callable[[], float]:
    """The page's N(0, 1), once more: mulberry32 and Box-Muller."""
    state = seed

    def uniform() -> float:
        nonlocal state
        state = (state + 0x6D2B79F5) % 2**32
        mixed = (state ^ state >> 15) * (state | 1) % 2**32
        mixed ^= (mixed + (mixed ^ mixed >> 7) * (mixed | 61)) % 2**32
        return ((mixed ^ mixed >> 14) + 0.5) / 2**32

    return lambda: math.sqrt(-2 * math.log(uniform())) * math.cos(2 * math.pi * uniform())


def draw_rows(rows: int, dim: int, kind: str, seed: int) -> np.ndarray:
    """Independent rows, or blocks of a rotation by QR with lengths of their own."""
    normal = normal_numbers(seed)

    def block(count: int) -> np.ndarray:
        return np.array([[normal() for _ in range(dim)] for _ in range(count)])

    if kind == "independent":
        return block(rows)
    blocks = []
    for _ in range(-(-rows // dim)):
        q, r = np.linalg.qr(block(dim).T)
        blocks.append((q * np.sign(np.diag(r))).T * np.linalg.norm(block(dim), axis=-1, keepdims=True))
    return np.concatenate(blocks)[:rows]


Q = [[0.1, 2, 0.1], [1.1, 0.4, 1], [1.1, 2, 0.1], [0.4, 1.2, 0], [0.1, 1.2, 0]]
K = [[2, 0.2, 0], [0.2, 2, 0.1], [0, 0.2, 1], [0, 0, 1.2], [0, 0, 2.1]]


def random_case(seed: int) -> tuple[str, dict[str, Any]]:
    """A state of the page, and the same as arguments of `feature_weights`."""
    draw = random.Random(seed)
    example, name = (
        draw.choice(["jane"] * 4 + ["unit"]),
        draw.choice(["trig", "positive", "hyperbolic", "optimal", "elu"]),
    )
    F, kind, number = draw.choice([16, 32, 64]), draw.choice(["orthogonal", "independent"]), draw.randrange(100)
    normalize = draw.random() < 0.5
    body: dict[str, Any] = {"q": Q, "k": K, "map": name, "normalize": normalize}
    if example == "unit":
        vectors = draw_rows(32, 64, "independent", 1)
        vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
        body |= {"q": vectors[:16].tolist(), "k": vectors[16:].tolist(), "scale": 1.0}
    if name != "elu":
        M = F if name in ("positive", "optimal") else F // 2
        body["w"] = draw_rows(M, len(body["q"][0]), kind, number).tolist()
    state = f"of={example}&phi={name}&features={F}&draw={kind}&seed={number}&normalize={int(normalize)}"
    return f"tab=features&{state}", body


READ = """async state => {
    location.hash = state
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))
    const read = name => [...document.querySelectorAll(`[data-testid=features-${name}-table] td[data-value]`)].map(
        cell => Number(cell.dataset.value))
    const error = document.querySelector('[data-testid=features-corrected-error]').innerText
    return [read('exact'), read('corrected'), Number(error)]
}"""


def test_page_and_library_compute_the_same(features: Any) -> None:
    """Random cases, all in float64 on both sides."""
    page = features()
    cases = [random_case(seed) for seed in range(12)]
    assert len({body["map"] for _, body in cases}) == 5  # every map
    for state, body in cases:
        exact, corrected, error = page.evaluate(READ, state)
        wanted_exact, wanted_weights, wanted_error = feature_weights(**body)
        assert exact == pytest.approx(wanted_exact, abs=1e-6), state
        assert corrected == pytest.approx(wanted_weights, abs=1e-6), state
        assert error == pytest.approx(wanted_error, abs=6e-5), state


# Heads of models.


def test_a_head_of_a_model_on_a_sentence(features: Any, explorer: Any) -> None:
    """What is exact is what the model did, by the API; the decoder does not look ahead."""
    explorer.wait_for("fr-en")
    page = features("&of=model&text=Le+chat+dort.")
    trace = explorer.post("/api/trace", {"model": "fr-en", "text": "Le chat dort."})
    for name, layer, head in (("cross", None, None), ("enc_self", 1, 2), ("dec_self", 3, 0)):
        if layer is not None:
            label = {"enc_self": "Encoder", "dec_self": "Decoder"}[name]
            page.get_by_test_id("map").get_by_label(label).check()
            page.get_by_test_id("layer").select_option(str(layer))
            page.get_by_test_id("head").select_option(str(head))
            expect_address(page, f"layer={layer}", f"head={head}")
        else:
            layer, head = trace["best_head"]["layer"], trace["best_head"].get("head", 0)
        found = trace["maps"][name]["weights"]
        weights = np.array(found["values"]).reshape(found["shape"])[layer, head]
        expect(page.get_by_test_id("features-exact-canvas")).to_have_js_property("width", weights.shape[1])
        assert np.abs(np.reshape(table(page, "exact"), weights.shape) - weights).max() < 2e-3  # float16 vectors
    assert not np.triu(np.reshape(table(page, "corrected"), weights.shape), 1).any()
    expect(page.get_by_test_id("features-exact-masked")).to_be_attached()


def test_what_has_no_such_head_says_so(wide: Any, explorer: Any) -> None:
    for model, message in (("small-rnn", "not the softmax of q·k"), ("no-attention", "no attention")):
        explorer.wait_for(model)
        wide.page.goto(f"{explorer.address}/#tab=features&of=model&model={model}&text=le+chat+noir")
        expect(wide.page.get_by_test_id("features-misfit")).to_contain_text(message)
        assert wide.page.get_by_test_id("features-exact").count() == 0
    assert (wide.errors, wide.blocked) == ([], [])
