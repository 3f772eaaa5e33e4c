"""Inside, Recurrent and Embeddings in the browser have the numbers that the server computes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from regard.api.model_names import SHIPPED
from regard.errors import RegardError
from regard.serving.explorer_api import compute_block
from regard.serving.limits import LIMITS
from regard.serving.request_bodies import EmbeddingsBody, InsideBody, RecurrentBody, SimilarityBody
from regard.serving.sequence_api import compute_embeddings, compute_similarity, compute_states
from regard.tasks.loading import load

TEXT = "Jane visite l'Afrique."
GREEDY = {"search": {"name": "greedy"}}
COMPUTE: dict[str, tuple[Any, Callable[[Any, Any], bytes]]] = {
    "inside": (InsideBody, lambda face, body: compute_block(face, body, LIMITS)),
    "recurrent": (RecurrentBody, lambda face, body: compute_states(face, body, LIMITS)),
    "embeddings": (EmbeddingsBody, lambda face, body: compute_embeddings(face, body)),
    "similarity": (SimilarityBody, lambda face, body: compute_similarity(face, body, LIMITS)),
}
ENCODER = {"stack": "encoder", "layer": 0, "token": 1, "head": 2, "text": TEXT}
DECODER = {"stack": "decoder", "layer": 1, "token": 2, "head": 1, "text": TEXT, **GREEDY}
REQUESTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "fr-en": [("inside", ENCODER), ("inside", DECODER), ("embeddings", {"count": 40, "word": "jour"})],
    "lecture": [
        ("inside", {**ENCODER, "layer": 1}),
        ("inside", {**DECODER, "layer": 0}),
        ("recurrent", {"text": TEXT}),
    ],
    "fr-en-rnn": [("inside", {**DECODER, "layer": 0, "head": 0}), ("recurrent", {"text": TEXT})],
    "shakespeare": [("inside", DECODER), ("embeddings", {"count": 30})],
    "shakespeare-lstm": [("recurrent", {"text": "O, no"}), ("embeddings", {"count": 20, "word": "e"})],
    "demo-rnn-seq2seq": [("recurrent", {"text": TEXT})],
    "demo-encoder": [("inside", ENCODER), ("similarity", {"texts": ["Le chat dort.", "Il pleut."]})],
    "demo-classifier": [("inside", ENCODER), ("similarity", {"texts": ["A cat."]})],
}


def check_equal(browser: Any, python: Any, path: str) -> None:
    """Equal texts and whole numbers, and other numbers within 1e-4 of the largest of their list."""
    if isinstance(python, dict) and "float32" in python:
        ours, theirs = (np.frombuffer(base64.b64decode(each["float32"]), np.float32) for each in (browser, python))
        assert np.abs(ours - theirs).max() < 1e-4 * max(1.0, np.abs(theirs).max()), path
    elif isinstance(python, dict):
        assert browser.keys() == python.keys(), path
        for name in python:
            check_equal(browser[name], python[name], f"{path}.{name}")
    elif isinstance(python, list) and python and isinstance(python[0], float):
        ours, theirs = (np.array([np.nan if n is None else n for n in numbers]) for numbers in (browser, python))
        assert ours.shape == theirs.shape, path
        assert np.allclose(ours, theirs, atol=1e-4 * max(1.0, np.nanmax(np.abs(theirs))), equal_nan=True), path
    elif isinstance(python, list):
        assert len(browser) == len(python), path
        for i, (ours, theirs) in enumerate(zip(browser, python, strict=True)):
            check_equal(ours, theirs, f"{path}[{i}]")
    elif isinstance(python, float):
        assert abs(browser - python) < 1e-4 * max(1.0, abs(python)), path
    else:
        assert browser == python, path


@pytest.mark.parametrize("name", REQUESTS)
def test_the_browser_answers_as_the_server(ask: Any, name: str) -> None:
    face = load(SHIPPED / name, device="cpu")
    for kind, request in REQUESTS[name]:
        request = {"model": name, **request}
        answer = ask(f"/api/{kind}", request)
        body, compute = COMPUTE[kind]
        expected = refused = None
        try:
            expected = json.loads(compute(face, body.model_validate(request)))
        except RegardError as error:
            refused = str(error)
        assert answer["error"] == refused, kind
        for content in (expected, answer["content"]):
            if content and "parameters" in content:
                content["parameters"].sort(key=lambda parameter: parameter["name"])  # in any order
        check_equal(answer["content"], expected, kind)
