"""The routes of the tabs Recurrent and Embeddings: the numbers of the library, and what bad requests get."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from regard.tasks.loading import load


def unpack(array: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(array["float32"]), "<f4").reshape(array["shape"])


def test_states_are_those_of_the_library(sequences: Any) -> None:
    from regard.look.recurrent import recurrent_states

    answer = sequences.post("/api/recurrent", {"model": "shakespeare-lstm", "text": "ROMEO:"})
    assert answer.status == 200, answer.content
    states = recurrent_states(load("shakespeare-lstm", device="cpu"), "ROMEO:")
    assert answer.json["cell"] == "lstm" and answer.json["tokens"] == states.tokens
    (layer,) = answer.json["layers"]
    assert list(layer["values"]) == ["i", "f", "g", "o", "c", "h"]
    for name, values in layer["values"].items():
        assert np.allclose(unpack(values), states.layers[0].values[name].numpy(), atol=1e-5)
    assert answer.json["gradients"] == pytest.approx(states.gradients, rel=1e-3)
    assert answer.json["predictions"][-1][0][0] == "⏎"  # a speaker's name ends its line


def test_one_vector_is_all_that_the_decoder_gets(sequences: Any) -> None:
    text = "Le chat dort."
    answer = sequences.post("/api/recurrent", {"model": "demo-rnn-seq2seq", "text": text}).json
    assert answer["vector"]["shape"] == [answer["layers"][0]["values"]["h"]["shape"][1]]
    assert np.array_equal(unpack(answer["vector"]), unpack(answer["layers"][0]["values"]["h"])[-1])
    assert answer["output"] == load("demo-rnn-seq2seq", device="cpu").translate(text, beam=1).text


def test_gradients_of_untrained_networks(sequences: Any) -> None:
    """C3: the plain net forgets, the LSTM later, with a larger forget bias later still, attention does not."""
    curves = {curve["name"]: curve for curve in sequences.get("/api/gradients").json["curves"]}
    assert list(curves) == ["attention", "RNN", "LSTM", "LSTM, forget bias + 1", "RNN, recurrent weights × 4"]
    attention, rnn, lstm, biased, exploding = (curve["median"][60] for curve in curves.values())
    assert rnn < 1e-16 < lstm < 1e-10 < biased < 1e-3 < attention < 1 < exploding
    for curve in curves.values():
        assert all(np.array(curve["low"]) <= curve["median"]) and all(np.array(curve["median"]) <= curve["high"])


def test_words_in_the_plane_and_their_nearest(sequences: Any) -> None:
    body = {"model": "demo-rnn-seq2seq", "count": 60, "word": "chat"}
    answer = sequences.post("/api/embeddings", body).json
    assert (
        answer["fitted"] == 60 <= len(answer["words"]) == len(answer["points"]) <= 71
        and len(answer["words"]) <= answer["all"]
    )
    assert {"chat", *(word for word, _ in answer["nearest"])} <= set(answer["words"])
    assert 0 < answer["explained"] < 1
    cosines = [cosine for _, cosine in answer["nearest"]]
    assert len(cosines) == 10 and cosines == sorted(cosines, reverse=True)
    refused = sequences.post("/api/embeddings", {**body, "word": "xyzzy"})
    assert refused.status == 400 and "'xyzzy' is not one token of this model" in refused.error


def test_similarity_of_sentences(sequences: Any) -> None:
    """A sentence is nearest to its translation."""
    texts = ["Le chat dort dans le jardin.", "The cat sleeps in the garden.", "Marie will buy a red car tomorrow."]
    cosines = unpack(sequences.post("/api/similarity", {"model": "demo-encoder", "texts": texts}).json["cosines"])
    assert np.allclose(np.diagonal(cosines), 1, atol=1e-5) and np.allclose(cosines, cosines.T, atol=1e-5)
    assert cosines[0, 1] > 0.5 > cosines[0, 2]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("recurrent", {"model": "demo-encoder", "text": "a"}, "kind 'encoder' has no recurrent layers"),
        ("recurrent", {"model": "shakespeare-lstm", "text": " "}, "the text is empty"),
        ("recurrent", {"model": "shakespeare-lstm", "text": "a" * 600}, "600 tokens; the limit is 512"),
        ("similarity", {"model": "shakespeare-lstm", "texts": ["a"]}, "shakespeare-lstm is not a sentence encoder"),
        ("similarity", {"model": "demo-encoder", "texts": []}, "texts: list should have at least 1 item"),
        ("similarity", {"model": "demo-encoder", "texts": ["a" * 5001]}, "the text has 5,001 characters"),
        ("embeddings", {"model": "demo-encoder", "count": 2}, "count: input should be greater than or equal to 3"),
    ],
)
def test_what_is_refused(sequences: Any, path: str, body: dict[str, Any], message: str) -> None:
    answer = sequences.post(f"/api/{path}", body)
    assert answer.status == 400 and message in answer.error
