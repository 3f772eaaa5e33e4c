"""The models in the browser compute what Python computes: the same tokens, and weights within 1e-4."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.api.model_names import SHIPPED
from regard.demo.corpus import demo_pairs
from regard.errors import RegardError
from regard.look.trace.attention_map import Map
from regard.look.trace.trace import Trace
from regard.look.trace.tracing import trace_text
from regard.serving.explorer_api import max_output_tokens
from regard.serving.limits import LIMITS
from regard.serving.request_bodies import TraceBody
from regard.tasks.loading import load

SENTENCES = 200
# Texts with what becomes a placeholder, UNKNOWN or bytes.
FRENCH = [
    "Le 12 mars 2024, Émilie Dupont a payé 1 234,56 € à Bordeaux.",
    "Rendez-vous à 14 h 30 chez Jean-Pierre, 3e étage ; écris à contact@example.org !",
    "TRÈS BIEN 😀😀, d'Émilie à l'Équateur, 日本語.",
]
ENGLISH = ["On March 12, 2024, Emily Dupont paid $1,234.56 in Bordeaux.", "See you at 2:30 pm at John's 😀, 3rd floor."]
PROMPTS = ["ROMEO:", "What is 42 and é?\n", ""]
TRANSLATORS = ("fr-en", "en-fr", "fr-en-rnn", "lecture", "demo-rnn-seq2seq")
WRITERS = ("shakespeare", "shakespeare-lstm")
ENCODERS = ("demo-encoder", "demo-classifier")


@cache
def face_of(name: str, folder: Path | None = None) -> Any:
    return load(folder or SHIPPED / name, device="cpu")


def sentences(name: str, count: int) -> list[str]:
    """Sentences in the language that a model reads: generated ones, and the hard ones above."""
    english = name in ("en-fr", "demo-classifier")
    pairs = demo_pairs("test", count, seed=11)
    texts = [pair.target if english else pair.source for pair in pairs]
    return [*(ENGLISH if english else FRENCH), *texts][:count]


def python_trace(body: dict[str, Any], folder: Path | None = None) -> Trace | str:
    """The trace as the server of `regard explore` computes it, or the message of the error."""
    request, face = TraceBody.model_validate(body), face_of(body["model"], folder)
    try:
        return trace_text(
            face,
            request.text,
            search=None if request.search is None else request.search.make(),
            target=request.target,
            prefix=request.prefix,
            max_tokens=max_output_tokens(face, request, LIMITS),
            top=request.top,
            name=request.model,
            off=[(head.map, head.layer, head.head) for head in request.off],
            vectors=request.vectors,
        )
    except RegardError as error:
        return str(error)


def check_same(ask: Any, body: dict[str, Any], folder: Path | None = None) -> float:
    """Compare the traces of a request; returns the milliseconds that the browser took."""
    answer, expected = ask("/api/trace", body), python_trace(body, folder)
    if isinstance(expected, str):
        assert answer["error"] == expected
        return 0.0
    assert answer["error"] is None, body
    browser = Trace.from_dict(answer["content"])  # which checks the format
    assert [step.chosen for step in browser.steps] == [step.chosen for step in expected.steps], body
    for name in ("model", "axes", "source", "output", "search", "best_head", "notes"):
        assert getattr(browser, name) == getattr(expected, name), (body, name)
    assert browser.maps.keys() == expected.maps.keys()
    for name, weights in expected.maps.items():
        check_map(browser.maps[name], weights)
    if expected.alignment is not None:
        assert browser.alignment is not None
        check_map(browser.alignment, expected.alignment)
    for ours, theirs in zip(browser.steps, expected.steps, strict=True):
        assert [c.token for c in ours.candidates] == [c.token for c in theirs.candidates]
        assert np.allclose([c.logp for c in ours.candidates], [c.logp for c in theirs.candidates], atol=1e-4)
        assert (ours.given, ours.draw) == (theirs.given, theirs.draw)
        assert abs(ours.rest - theirs.rest) < 1e-5 and abs(ours.entropy - theirs.entropy) < 1e-4
    check_tree(browser, expected)
    return float(answer["ms"])


def check_map(browser: Map, python: Map) -> None:
    assert browser.weights.dtype == np.float32
    assert np.abs(browser.weights - python.weights).max() < 1e-4
    assert (browser.mask is None) == (python.mask is None)
    assert browser.mask is None or bool((browser.mask == python.mask).all())
    for letter in "qkv":
        ours, theirs = getattr(browser, letter), getattr(python, letter)
        assert (ours is None) == (theirs is None)
        assert ours is None or np.abs(ours - theirs).max() < 1e-4 * max(1.0, np.abs(theirs).max())


def check_tree(browser: Trace, python: Trace) -> None:
    assert (browser.tree is None) == (python.tree is None)
    if browser.tree is None or python.tree is None:
        return
    assert browser.tree.best == python.tree.best
    ours, theirs = browser.tree.nodes, python.tree.nodes
    assert [(n.parent, n.token, n.state) for n in ours] == [(n.parent, n.token, n.state) for n in theirs]
    assert np.allclose([n.sum for n in ours], [n.sum for n in theirs], atol=1e-3)


def searches_of(name: str) -> list[dict[str, Any]]:
    if name in TRANSLATORS:
        return [{"search": {"name": "greedy"}}, {}]  # the default is a beam of width 5
    if name in WRITERS:
        beam = {"name": "beam", "width": 3, "length_penalty": 0.6}
        sample = {"name": "sample", "temperature": 0.8, "top_p": 0.9, "top_k": 30, "min_p": 0.01, "seed": 7}
        return [{"search": search, "max_tokens": 12} for search in ({"name": "greedy"}, beam, sample)]
    return [{}]


@pytest.mark.parametrize("name", [*TRANSLATORS, *WRITERS, *ENCODERS])
def test_the_browser_computes_what_python_computes(ask: Any, name: str) -> None:
    texts = PROMPTS[:2] if name in WRITERS else sentences(name, len(FRENCH) + 1)[-2:]
    for text in texts:
        for search in searches_of(name):
            check_same(ask, {"model": name, "text": text, **search})


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSLATORS)
def test_two_hundred_sentences(ask: Any, name: str, record_property: Any) -> None:
    times: dict[str, list[float]] = {}
    for text in sentences(name, SENTENCES):
        for search in searches_of(name):
            label = search.get("search", {"name": "beam"})["name"]
            times.setdefault(label, []).append(check_same(ask, {"model": name, "text": text, **search}))
    for label, taken in times.items():
        record_property(f"{name} {label} median ms", round(float(np.median(taken))))


def test_models_of_ones_own(ask: Any, own_models: dict[str, Path]) -> None:
    """Position schemes, norms, scores, cells, tokenizers and storages that no shipped model has."""
    for name, folder in own_models.items():
        for search in ({"name": "greedy"}, {"name": "beam", "width": 3}) if name != "pooled" else (None,):
            options = {} if search is None else {"search": search, "max_tokens": 8}
            check_same(ask, {"model": name, "text": "Jane visite l'Afrique\nen  septembre.", **options}, folder)


def test_options_of_a_request(ask: Any) -> None:
    """A given output, a beginning, vectors, heads that are switched off, and messages of errors."""
    text = "Jane visite l'Afrique en septembre."
    for options in (
        {"target": "Jane visits Africa in September."},
        {"prefix": face_of("fr-en").target_tokenizer.encode("In September"), "top": 3},
        {"vectors": True, "search": {"name": "greedy"}},
        {"off": [{"map": "cross", "layer": 3, "head": 5}, {"map": "enc_self", "layer": 0, "head": 1}]},
        {"prefix": [3, 7]},
    ):
        check_same(ask, {"model": "fr-en", "text": text, **options})
    check_same(ask, {"model": "fr-en-rnn", "text": text, "off": [{"map": "rnn", "layer": 0, "head": 0}]})
    for wrong in ({"text": " "}, {"text": "a" * 5001}, {"text": text, "prefix": [99999]}):
        assert ask("/api/trace", {"model": "fr-en", **wrong})["error"]


def test_a_long_text_has_the_same_thumbnails(ask: Any) -> None:
    text = " ".join(["Le chat noir dort dans le jardin et la souris danse."] * 3)
    body = {"model": "lecture", "text": text, "search": {"name": "greedy"}}
    check_same(ask, body)


def test_texts_of_many_scripts_have_the_same_tokens(ask: Any) -> None:
    """The encoder of the shipped demo: normal forms, spaces, bytes, half surrogates and characters that are escaped."""
    texts = [
        "e\u0301te\u0301 \u2581 \x1a",
        "a\tb\u2028c  d ",
        "שלום עולם",
        "ﬁn ½ ＡＢ",
        "👩‍👩‍👧 नमस्ते",
        "\ud83d half",
        "\ufdd0 reserved",
    ]
    for text in texts:
        check_same(ask, {"model": "demo-encoder", "text": text})
