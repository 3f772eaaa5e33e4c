"""The shipped scenes: every topic has one, each can be opened, and what their answers say is in the recorded traces."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

import regard
from regard.look.inside.random_features import exact_weights, jane_head, limit_weights, relative_error
from regard.look.trace.trace import Trace
from regard.look.trace.words import merge_words

ROOT = Path(__file__).parents[3]
SCENES = Path(regard.__file__).parent / "look" / "page" / "static" / "scenes"
INDEX: list[dict[str, Any]] = json.loads((SCENES / "index.json").read_text("utf-8"))
PLANS: list[dict[str, Any]] = json.loads((SCENES / "lectures.json").read_text("utf-8"))
MORE = ("search", "marine", "three-heads", "norms", "two-attentions", "shapes")  # further scenes of a topic
COUNTS = (("B", 8), ("C", 4), ("D", 17), ("E", 11), ("F", 3))
TOPICS = {"A1", "A3"} | {f"{letter}{n}" for letter, most in COUNTS for n in range(1, most + 1)}


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("make_scenes", ROOT / "scripts" / "make_scenes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trace_of(tag: str) -> Trace:
    (scene,) = [scene for scene in INDEX if tag in scene["tag"].split(", ") and scene["id"] != "marine"]
    return Trace.load(SCENES / scene["trace"])


def test_every_topic_has_a_scene() -> None:
    named = [tag for scene in INDEX for tag in scene["tag"].split(", ")]
    first = [tag for scene in INDEX if scene["id"] not in MORE for tag in scene["tag"].split(", ")]
    assert set(named) == TOPICS and len(first) == len(TOPICS)
    assert len({scene["id"] for scene in INDEX}) == len(INDEX)


def test_what_ships_is_what_the_source_says(script: Any) -> None:
    scenes, traces = script.read_scenes()
    assert scenes == INDEX, "run scripts/make_scenes.py"
    assert {path.name for path in SCENES.glob("*.json")} == {
        "index.json", "lectures.json", *(f"{name}.json" for name in traces)
    }  # fmt: skip
    assert script.read_lectures(scenes) == PLANS, "run scripts/make_scenes.py"
    assert {scene["trace"] for scene in INDEX} - {None} == {f"{name}.json" for name in traces}
    for name, wanted in traces.items():
        trace = Trace.load(SCENES / f"{name}.json")
        assert trace.model.name in {Path(model).name for model in wanted["models"]}
        assert (trace.source or trace.output[: len(wanted["text"])]) == wanted["text"]


@pytest.mark.parametrize("scene", INDEX, ids=lambda scene: scene["id"])
def test_a_scene_asks_and_answers(scene: dict[str, Any]) -> None:
    assert scene["question"].strip().endswith(("?", "…", "”"))
    assert len(scene["choices"]) >= 2 and len(set(scene["choices"])) == len(scene["choices"])
    reasons = scene["reasons"]
    assert len(reasons) == len(scene["choices"]) and [i for i, text in enumerate(reasons) if not text] == [
        scene["right"]
    ]
    assert all(len(text) > 15 for i, text in enumerate(reasons) if i != scene["right"])
    assert len(scene["answer"]) > 20
    state = parse_qs(scene["state"], strict_parsing=True)
    assert re.fullmatch(r"[a-z]+", state["tab"][0])
    if scene["trace"] is not None:
        trace = Trace.load(SCENES / scene["trace"])
        if "step" in state:
            assert int(state["step"][0]) < len(trace.steps)
        if "map" in state:
            assert int(state.get("layer", "0")[0]) < len(trace.maps[state["map"][0]].weights)
    assert (state["tab"][0] in ("heads", "alignment", "decode")) == (scene["trace"] is not None)


def darkest(trace: Trace, word: str) -> str:
    """The source word that a target word looks at most, in the alignment that the page shows."""
    words = merge_words(trace)
    shown = words.alignment or words.maps["rnn"]
    weights = shown.weights[0, 0]
    rows, columns = ([token.text for token in words.axes[axis].tokens] for axis in ("target", "source"))
    return columns[int(weights[rows.index(word)].argmax())]


def test_noun_and_adjective_cross_over() -> None:
    trace = trace_of("D16")
    assert (darkest(trace, "red"), darkest(trace, "car"), darkest(trace, "a")) == ("rouge", "voiture", "une")


def test_the_sentence_of_the_first_figure_crosses_over() -> None:
    trace = Trace.load(SCENES / "marine.json")
    assert all(step.given for step in trace.steps)
    found = [darkest(trace, word) for word in ("que", "l'environnement", "marin", "est", "moins", "connu")]
    assert found == ["that", "environment", "marine", "is", "least", "known"]


def test_the_running_example_is_translated_and_aligned() -> None:
    trace = trace_of("E6")
    assert trace.output == "Jane visits Africa in September"
    assert darkest(trace, "September") == "septembre" and "Afrique" in darkest(trace, "Africa")


def test_the_recurrent_model_translates_the_running_example_by_itself() -> None:
    trace = trace_of("D14")
    assert trace.output == "Jane visits Africa in September" and not any(step.given for step in trace.steps)
    assert (darkest(trace, "September"), darkest(trace, "Africa")) == ("septembre", "l'"), "the note says so"


def test_the_decoder_sees_nothing_that_comes_after() -> None:
    weights = trace_of("E7").maps["dec_self"].weights
    assert not np.triu(weights, 1).any() and np.tril(weights).any()


def test_a_cross_map_is_not_square_and_a_translation_ends_with_the_end_token() -> None:
    trace = trace_of("D13")
    assert trace.maps["cross"].weights.shape[2] == len(trace.axes["target"])
    rows, columns = trace.maps["cross"].weights.shape[2:]
    assert columns >= 2 * rows, "it does not look square"
    assert f"has {columns} tokens in French and {rows} in English" in answer("D13")
    assert trace_of("E8").axes["target"].tokens[-1].text == "</s>" and trace_of("E8").tree is not None


def test_a_sample_shows_its_draws() -> None:
    trace = trace_of("E10")
    given = sum(step.given for step in trace.steps)
    (scene,) = [scene for scene in INDEX if scene["tag"] == "E10"]
    shown = int(parse_qs(scene["state"])["step"][0])
    assert shown >= given and all(step.draw is not None for step in trace.steps[given:])
    probabilities = {c.token: math.exp(c.logp) for c in trace.steps[shown].candidates}
    assert max(probabilities.values()) < 0.5, "at this step another seed draws another token"
    drawn = trace.output[shown]  # a model of characters: one token is one character
    assert f"“{drawn}” was drawn" in scene["answer"]  # as is “No token has even half of the probability here”
    assert f"only {100 * probabilities[trace.steps[shown].chosen]:.1f}\u00a0%" in scene["answer"]


def answer(tag: str) -> str:
    (scene,) = [scene for scene in INDEX if tag in scene["tag"].split(", ")]
    return scene["answer"]


def test_the_curves_are_those_of_the_results() -> None:
    """D17: the table in docs/results.md and the scene have the same numbers."""
    lines = (ROOT / "docs" / "results.md").read_text("utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| words of the source | texts | RNNsearch-50 "))
    rows = [re.findall(r"(\d+\.\d) \[(\d+\.\d), (\d+\.\d)\]", line) for line in lines[start + 2 : start + 8]]
    (scene,) = [scene for scene in INDEX if scene["tag"] == "D17"]
    systems = scene["curves"]["systems"]
    assert [system["name"] for system in systems] == [
        "attention, 50 words",
        "no attention, 50 words",
        "attention, 30 words",
        "no attention, 30 words",
    ]
    for column, system in enumerate(systems):
        table = [tuple(map(float, row[column])) for row in rows]
        assert list(zip(system["bleu"], system["low"], system["high"], strict=True)) == table
    searching, one_vector, shorter, _ = (system["bleu"] for system in systems)
    text = scene["answer"]
    assert f"from BLEU {one_vector[0]} to {one_vector[-1]}" in text and one_vector == sorted(one_vector, reverse=True)
    assert f"between {min(searching)} and {max(searching)}" in text and max(searching) - min(searching) < 2
    assert f"drops from {shorter[0]} to {shorter[-1]}" in text


def test_a_scene_does_not_show_its_answer_before_the_guess() -> None:
    """D1 asks what a row sums to, D10 what the softmax is: the fourth stage of the Lab, which shows it, comes later."""
    states = {scene["id"]: parse_qs(scene["state"]) for scene in INDEX}
    answers = {scene["id"]: parse_qs(scene["answer_state"]) for scene in INDEX}
    for name in ("d1", "d10", "d6", "d7", "d9", "search", "d2", "e11", "three-heads", "two-attentions"):
        assert int(states[name]["step"][0]) < 4 <= int(answers[name]["step"][0]), name
    hidden = {scene["id"] for scene in INDEX if scene["before"] is not None and scene["before"] != scene["show"]}
    assert hidden >= {"d14", "d16", "marine", "d17", "b2", "b3", "b4", "e6", "e7", "e8", "f1", "f3", "a3", "c3", "c4"}
    assert "mask" not in states["d2"] and states["d2"]["preset"] == ["content"]


def test_no_result_is_typed_into_a_scene() -> None:
    """A number with decimals or a percentage in web/scenes.toml stands in braces; the slide's 3.23 is a quotation."""
    source = (ROOT / "web" / "scenes.toml").read_text("utf-8")
    texts = [line for line in source.splitlines() if line.startswith(("question", "answer =", "notes", '  "'))]
    for quotation in ("95 %, with {", "prints 3.23", "A step of 0.1"):
        texts = [line.replace(quotation, "") for line in texts]
    assert not [line for line in texts if re.search(r"\d\.\d|\d ?%", line)]


def test_the_numbers_of_the_worked_example() -> None:
    """D6 and D9, from e: the scores are 3, -3, 1; divided by sqrt(3) they give the weights of the second scene."""
    exact, scaled = (np.exp(np.array([3.0, -3, 1]) / scale) for scale in (1, np.sqrt(3)))
    assert f"a weight of {exact[0] / exact.sum():.3f}" in answer("D6")
    assert f"from {exact[0] / exact.sum():.3f} to {scaled[0] / scaled.sum():.3f}" in answer("D9")


def test_the_numbers_of_the_further_scenes() -> None:
    """From e and the vectors of the Lab: shared words of the titles, features of five words, tanh of sums."""
    answers = {scene["id"]: scene["answer"] for scene in INDEX}
    weights = np.exp([4 * 3 / np.sqrt(6 * 3), 4 * 2 / np.sqrt(6 * 4), 0, 0])
    assert "{:.2f}, {:.2f}, {:.2f} and {:.2f}".format(*weights / weights.sum()) in answers["search"]
    features = {"visite": (0.1, 1, 0.1, 0, 0), "septembre": (0, 0, 0, 0.4, 1), "Jane": (1, 0.1, 0, 0, 0)}
    for word, column in features.items():  # action, time, person of the five words
        row = np.exp(4.4 * np.array(column))
        assert f"“{word}” with a weight of {row.max() / row.sum():.2f}" in answers["three-heads"]
    additive = np.exp([np.tanh([4, 0, -1]).sum(), np.tanh([2, 2, -1]).sum(), np.tanh([3, 0, 3]).sum()])
    assert f"a weight of {additive[0] / additive.sum():.3f}" in answers["two-attentions"]
    of_batch, of_layer = map(float, re.findall(r"of (\d\.\d\d)", answers["norms"]))
    assert of_layer == 0 and 0.2 < of_batch < 2


def test_a_longer_vector_can_be_nearer() -> None:
    """D7: “en” is (0, 0, .4, .4), “septembre” (0, 0, .1, 1), “l'Afrique” (0, .1, 1, 0): e^.44, e^.40 and e^.32."""
    row = np.exp([0.0, 0.04, 0.40, 0.32, 0.44])
    weights = row / row.sum()
    assert f"“septembre” {weights[4]:.3f}, “l'Afrique” {weights[2]:.3f}, “en” {weights[3]:.3f}" in answer("D7")
    assert "4 of 5" in answer("D7")


def test_the_share_of_the_variance() -> None:
    """B4, from the sum of cosines of B3 alone."""
    cosines = np.cos(np.arange(50)[:, None] / 10000 ** (np.arange(0, 128, 2) / 128))
    share = cosines.cumsum(1).var(0)
    share /= share[-1]
    assert share[29] < 0.95 < share[30]
    assert f"they contain {share[24]:.0%}".replace("%", " %") in answer("B4")
    (scene,) = [scene for scene in INDEX if scene["tag"] == "B4"]
    assert f"The first 10 contain only {share[4]:.0%} of it".replace("%", " %") in scene["reasons"][0]
    assert f"The first 62 pass 95 %, with {100 * share[30]:.1f} %" in answer("B4")


def test_what_a_scene_shows_is_said() -> None:
    """The heads of D12 and the matrices of D8 and of the three heads are not what a reader would assume."""
    notes = {scene["id"]: scene.get("notes") for scene in INDEX}
    assert "is not of this form" in notes["d12"] and "chosen by hand" in notes["three-heads"]
    assert "chosen by hand" in answer("D8")


def test_long_keys_get_too_little_weight_from_the_lectures_formula() -> None:
    """F3, on the sentence that the scene shows: 0.28 is the error that its answer names."""
    head = jane_head()
    exact, limit = exact_weights(head, normalize=False), limit_weights(head, normalize=False)
    (scene,) = [scene for scene in INDEX if scene["tag"] == "F3"]
    assert f"{relative_error(limit, exact):.2f}" in scene["answer"]
    long = head.k.norm(dim=-1) > 2
    assert (limit < exact)[:, long].all() and (limit > exact)[:, ~long].all()


def test_a_scene_can_be_made_anew(script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.main(tmp_path)
    assert json.loads((tmp_path / "index.json").read_text("utf-8")) == INDEX
    assert json.loads((tmp_path / "lectures.json").read_text("utf-8")) == PLANS
    for path in tmp_path.glob("*.json"):
        if path.name not in ("index.json", "lectures.json"):
            made, shipped = Trace.load(path), Trace.load(SCENES / path.name)
            assert (made.output, list(made.maps)) == (shipped.output, list(shipped.maps)), "run scripts/make_scenes.py"
    assert f"{len(INDEX)} scenes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        ({"tag": "X", "state": "tab=moon"}, "no tab 'moon'"),
        ({"tag": "X", "state": "tab=lab", "trace": "none"}, "no trace 'none'"),
        ({"tag": "X", "state": "tab=lab", "colour": 1}, "unknown colour"),
        ({"tag": "X", "state": "tab=lab", "choices": ["a", "b"], "right": "c", "wrong": ["why"]}, "'c' is not one"),
        ({"tag": "X", "state": "tab=lab", "choices": ["a", "b"], "right": "a", "wrong": []}, "as many reasons, got 0"),
    ],
)
def test_wrong_scenes_are_refused(scene: dict[str, Any], message: str, script: Any) -> None:
    with pytest.raises(SystemExit, match=message):
        script.make_scene(scene, {}, {})


def test_the_lectures_are_orders_of_scenes_with_minutes(script: Any, tmp_path: Path) -> None:
    assert [plan["id"] for plan in PLANS] == ["L0", "L1", "L2", "L3", "L4"]
    used = set()
    for plan in PLANS:
        names = [entry["id"] for entry in plan["scenes"]]
        assert len(set(names)) == len(names) and set(names) <= {scene["id"] for scene in INDEX}
        assert all(1 <= entry["minutes"] <= 10 for entry in plan["scenes"])
        assert 45 <= sum(entry["minutes"] for entry in plan["scenes"]) <= 90
        used.update(names)
    assert used == {scene["id"] for scene in INDEX}, "no lecture has these scenes"
    (tmp_path / "wrong.toml").write_text('[[lectures]]\nid = "L9"\nplan = """\nmoon 3\n"""\n')
    with pytest.raises(SystemExit, match="unknown scenes: moon"):
        script.read_lectures(INDEX, tmp_path / "wrong.toml")


def test_the_words_of_the_further_reasons() -> None:
    """D6: the sums in the reasons; B1: the example of the Lab that the answer shows exists."""
    (scene,) = [scene for scene in INDEX if scene["tag"] == "D6"]
    assert "2·0 − 1·3 + 0·(−1) = −3" in scene["reasons"][1] and "2·1 − 1·1 + 0·3 = 1" in scene["reasons"][2]
    (scene,) = [scene for scene in INDEX if scene["tag"] == "B1"]
    assert scene["answer_state"] == "preset=swapped"
    assert 'id: "swapped"' in (ROOT / "web" / "src" / "tabs" / "lab" / "presets.ts").read_text("utf-8")
