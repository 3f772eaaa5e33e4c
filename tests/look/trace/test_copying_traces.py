"""Traces of models that copy: the pointer is a map, and the sentences are where the face finds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from regard.errors import DataError
from regard.look import Trace, merge_words, trace_text
from regard.look.trace.trace import Axis, Model, Sentence, Token


@pytest.mark.parametrize("kind", ["summarizer", "answerer"])
def test_the_pointer_and_the_sentences(small_inputs: Any, kind: str) -> None:
    face, story, question = small_inputs.small_copier(kind), small_inputs.STORY, small_inputs.QUESTION
    if kind == "summarizer":
        expected, text = face.summarize(story, max_tokens=5), story
    else:
        expected, text = face.answer(story, question, max_tokens=5), f"{story} {question}"
    trace = trace_text(face, text, max_tokens=5)
    written = [i for i, token in enumerate(trace.axes["target"].tokens) if not token.special]
    assert trace.output == expected.text and trace.search == {"name": "greedy"}
    assert [sentence.text for sentence in trace.sentences] == expected.sentences == [
        "It was cold.", "Ana saw the park.", "Bo slept.",
    ]  # fmt: skip
    pointer = trace.maps["pointer"].weights[0, 0]
    sums = np.stack([pointer[written, each.start : each.end].sum(1) for each in trace.sentences], axis=1)
    assert np.allclose(sums, expected.weights, atol=1e-5)
    assert np.allclose(sums.sum(0) / sums.sum(), expected.shares, atol=1e-5)
    source = trace.axes["source"].tokens
    for each in trace.sentences:
        assert "".join(token.text for token in source[each.start : each.end]).replace("▁", " ").strip() == each.text
    assert Trace.from_dict(trace.to_dict()).sentences == trace.sentences
    assert merge_words(trace).sentences == ()  # they count tokens


def test_an_answerer_needs_a_story(small_inputs: Any) -> None:
    with pytest.raises(DataError, match="the question as its last sentence"):
        trace_text(small_inputs.small_copier("answerer"), "Who saw the park?")


def test_sentences_are_tokens_of_the_source() -> None:
    model, source = Model("m", "summarizer", {}, 1, {}), {"source": Axis((Token("a"), Token("b")))}
    Trace(model, source, {}, sentences=(Sentence("a b", 0, 2),))
    for start, end in ((0, 3), (-1, 1), (2, 1)):
        with pytest.raises(DataError, match="sentence 0 has tokens"):
            Trace(model, source, {}, sentences=(Sentence("a", start, end),))
