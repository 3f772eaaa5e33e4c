"""The inputs of a search: batches that fit, and mistakes that are named."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from regard.decoding.engine import generate_tokens
from regard.decoding.requests import Request, make_batches
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.sample import Sample
from regard.errors import UsageError
from regard.models.config import EncoderConfig
from regard.models.presets import make_model
from regard.text.tokenizers.special_tokens import START


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 30), st.integers(1, 30)), max_size=40),
    rows=st.integers(1, 5),
    batch_tokens=st.integers(1, 600),
)
def test_batches_hold_similar_inputs(sizes: list[tuple[int, int, int]], rows: int, batch_tokens: int) -> None:
    requests = [Request(i, [5] * n, [START] * m, limit) for i, (m, n, limit) in enumerate(sizes)]
    batches = [*make_batches(requests, rows=rows, batch_tokens=batch_tokens)]
    assert sorted(request.number for batch in batches for request in batch) == [*range(len(sizes))]
    for batch in batches:
        assert len({len(request.prefix) for request in batch}) == 1
        widest = max(len(request.source or ()) + len(request.prefix) + request.limit for request in batch)
        assert len(batch) == 1 or rows * len(batch) * widest <= batch_tokens
    for batch, following in itertools.pairwise(batches):  # none could have joined the batch before it
        alike = [request for request in (*batch, following[0]) if len(request.prefix) == len(batch[0].prefix)]
        widest = max(len(request.source or ()) + len(request.prefix) + request.limit for request in alike)
        assert len(alike) == len(batch) or rows * len(alike) * widest > batch_tokens


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": None, "prefixes": [[]]}, "a Transformer translates: give it a source"),
        ({"source": [[5, 3], []]}, "source 1 holds no token"),
        ({"prefixes": [[4]]}, "prefixes has 1 entries for 2 inputs"),
        ({"max_tokens": [3]}, "max_tokens has 1 entries for 2 inputs"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0 for input 0"),
        ({"max_tokens": [4, -1]}, "max_tokens must be at least 1, got -1 for input 1"),
        ({"alternatives": 2}, "greedy search finds one text, and alternatives=2"),
        ({"alternatives": 4, "search": Beam(3)}, "a beam of width 3 cannot find alternatives=4"),
        ({"alternatives": 0, "search": Beam(3)}, "alternatives must be at least 1, got 0"),
        ({"alternatives": 0, "search": Sample()}, "alternatives must be at least 1, got 0"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1"),
    ],
)
def test_mistakes_are_named(make_case: Callable[[str], Any], options: dict[str, Any], message: str) -> None:
    options = {"source": [[5, 3], [6, 3]], "max_tokens": 4, **options}
    with pytest.raises(UsageError, match=message):
        generate_tokens(make_case("transformer").model, options.pop("source"), **options)


def test_mistakes_with_language_models(make_case: Callable[[str], Any]) -> None:
    model = make_case("rnn lm").model
    with pytest.raises(UsageError, match="a RecurrentLM is a language model: its source is None"):
        generate_tokens(model, [[5]], prefixes=[[5]], max_tokens=4)
    with pytest.raises(UsageError, match="a language model needs prefixes"):
        generate_tokens(model, None, max_tokens=4)
    encoder = make_model(EncoderConfig(vocabulary=9, layers=1, dim=4, heads=1, hidden=4))
    with pytest.raises(UsageError, match="a SentenceEncoder does not write text"):
        generate_tokens(encoder, [[5]], max_tokens=4)
