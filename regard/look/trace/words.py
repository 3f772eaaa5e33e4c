"""Merge the tokens of a trace into words.

D16, H1. The row of a query word is the mean of the rows of its tokens, the column of a key word the sum of the columns
of its tokens, so rows still sum to tokens.

    L layers   H heads   m, n tokens   M, N words
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import torch

from regard.evaluation.alignment import word_weights
from regard.look.trace.attention_map import Map, unit_rows
from regard.look.trace.trace import Axis, Token, Trace
from regard.text.tokenizers.tokenizer import Word


def merge_words(trace: Trace) -> Trace:
    """Return the trace with words on its axes; a token without a word, such as the end token, stays as it is.

    Steps, tree, sentences and vectors belong to tokens, so they are left out.
    """
    spans = {name: word_spans(axis) for name, axis in trace.axes.items()}
    return replace(
        trace,
        axes={name: _word_axis(axis, spans[name]) for name, axis in trace.axes.items()},
        maps={name: _merge_map(tokens, spans[tokens.key], spans[tokens.query]) for name, tokens in trace.maps.items()},
        alignment=trace.alignment and _merge_map(trace.alignment, spans["source"], spans["target"]),
        sentences=(),
        steps=(),
        tree=None,
    )


def word_spans(axis: Axis) -> list[Word]:
    """Return the words of an axis as spans of tokens; every other token is a span of its own."""
    spans: list[Word] = []
    groups = groupby(enumerate(axis.tokens), lambda item: item[0] if item[1].word is None else (item[1].word,))
    for _, group in groups:
        (first, token), *_ = members = list(group)
        text = token.text if token.word is None else axis.words[token.word]
        spans.append(Word(text, first, first + len(members)))
    return spans


def _word_axis(axis: Axis, spans: list[Word]) -> Axis:
    first = [axis.tokens[span.start] for span in spans]
    tokens = (Token(span.text, token.word, token.special, token.pad) for span, token in zip(spans, first, strict=True))
    return Axis(tuple(tokens), axis.words)


def _merge_map(tokens: Map, keys: list[Word], queries: list[Word]) -> Map:
    merged = word_weights(torch.from_numpy(tokens.weights).double(), keys, queries).numpy()  # [L, H, M, N]
    mask = None
    if tokens.mask is not None:
        mask = word_weights(torch.from_numpy(tokens.mask).double(), keys, queries).numpy() > 0
    # float16 rows sum to one only roughly; rows of random features need not sum to one.
    weights = merged if tokens.random_features else unit_rows(merged)
    return Map(tokens.query, tokens.key, weights, mask, tokens.random_features)
