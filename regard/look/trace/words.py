"""From a trace between pieces to one between words.

D16, H1. A query's word has the mean of its pieces' rows, a key's word the sum of its pieces' columns, so rows still
sum to one.

    L layers   H heads   m, n pieces   M, N words
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import torch

from regard.evaluation.alignment import word_weights
from regard.look.trace.trace import Axis, Map, Token, Trace, unit_rows
from regard.text.tokenizers.tokenizer import Word


def merge_words(trace: Trace) -> Trace:
    """The same trace with words on its axes; what belongs to no word, such as the end token, stands for itself.

    Steps and tree are about pieces, so they are left out, and so are vectors.
    """
    spans = {name: word_spans(axis) for name, axis in trace.axes.items()}
    return replace(
        trace,
        axes={name: _word_axis(axis, spans[name]) for name, axis in trace.axes.items()},
        maps={name: _merged(one, spans[one.key], spans[one.query]) for name, one in trace.maps.items()},
        steps=(),
        tree=None,
    )


def word_spans(axis: Axis) -> list[Word]:
    """The words of an axis as the pieces that they are made of, and all other pieces one by one."""
    spans: list[Word] = []
    groups = groupby(enumerate(axis.tokens), lambda place: place[0] if place[1].word is None else (place[1].word,))
    for _, group in groups:
        (first, token), *_ = places = list(group)
        text = token.text if token.word is None else axis.words[token.word]
        spans.append(Word(text, first, first + len(places)))
    return spans


def _word_axis(axis: Axis, spans: list[Word]) -> Axis:
    first = [axis.tokens[span.start] for span in spans]
    tokens = (Token(span.text, one.word, one.special, one.pad) for span, one in zip(spans, first, strict=True))
    return Axis(tuple(tokens), axis.words)


def _merged(one: Map, keys: list[Word], queries: list[Word]) -> Map:
    merged = word_weights(torch.from_numpy(one.weights).double(), keys, queries).numpy()  # [L, H, M, N]
    mask = None
    if one.mask is not None:
        mask = word_weights(torch.from_numpy(one.mask).double(), keys, queries).numpy() > 0
    # float16 numbers sum to one only roughly; those of random features need not at all.
    weights = merged if one.random_features else unit_rows(merged)
    return Map(one.query, one.key, weights, mask, one.random_features)
