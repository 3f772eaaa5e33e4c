"""Replace spans of a text by placeholders, and put the spans back into its translation.

In training, a span is hidden only if both sides of a pair have it (`hide_pair`). In use, all spans of the source are
hidden (`hide`), the translation contains each placeholder once, and `restore` replaces it by the span.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from regard.text.files.corpus import Corpus
from regard.text.placeholders.number_words import SCALES, number_words
from regard.text.placeholders.spans import Kind, Span, find_spans, localised
from regard.text.tokenizers.placeholder_tokens import ANY_PLACEHOLDER
from regard.text.tokenizers.special_tokens import PLACEHOLDERS

# The placeholders of each kind. When they are used up, a span takes one of another kind.
SYMBOLS: dict[Kind, tuple[str, ...]] = {"number": PLACEHOLDERS[:5], "time": PLACEHOLDERS[5:8], "word": PLACEHOLDERS[8:]}
NAME_SHARE = 0.3  # of the pairs that share a name: in these, the name is hidden in training
WORD_SHARE = 0.5  # of the pairs that share a number as a word
NAMES = re.compile(r"(?<![\w'’-])[A-ZÀ-Þ][\w'’-]*[^\W_](?: [A-ZÀ-Þ][\w'’-]*[^\W_])*")
WORDS = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")

Carried = Mapping[str, str]  # placeholder -> the text that it stands for


class Hidden(NamedTuple):
    """A text with placeholders, and what they stand for."""

    text: str
    carried: Carried  # as the translation writes it
    originals: Carried  # as the text writes it


def hide(
    text: str, spans: Iterable[Span], *, target: str | None = None, symbols: Iterable[str] = PLACEHOLDERS
) -> Hidden:
    """Replace spans by placeholders, as many as there are; dates are carried as the target language writes them."""
    all_spans = list(spans)
    if not all_spans:
        return Hidden(text, {}, {})
    usable = {*symbols}
    free = {kind: [symbol for symbol in of_kind if symbol in usable] for kind, of_kind in SYMBOLS.items()}
    hidden, carried, originals = [], {}, {}
    for span in all_spans:
        if (symbol := _next_symbol(free, span.kind)) is None:
            break
        hidden.append((span, symbol))
        carried[symbol], originals[symbol] = localised(span, text, target), span.text(text)
    return Hidden(_replaced(text, hidden), carried, originals)


def restore(text: str, carried: Carried) -> str:
    """Put the carried texts in place of their placeholders; a placeholder that stands for nothing is removed."""
    return text if text.isascii() else ANY_PLACEHOLDER.sub(lambda symbol: carried.get(symbol[0], ""), text)


def hide_carried(text: str, carried: Carried) -> str:
    """Replace the first occurrence of each carried text in a given translation by its placeholder."""
    for symbol, span in sorted(carried.items(), key=lambda item: -len(item[1])):
        text = re.sub(rf"(?<!\w){re.escape(span)}(?!\w)", symbol, text, count=1)
    return text


def hide_pair(
    source: str, target: str, languages: tuple[str | None, str | None], draw: random.Random
) -> tuple[str, str]:
    """Replace the spans that both sides share by the same placeholders; a pair whose spans differ stays as it is.

    Numbers as words and names are spans in some of the pairs, so that a model meets placeholders in many sentences.
    """
    required = [list(find_spans(text, language)) for text, language in zip((source, target), languages, strict=True)]
    sides = [
        [*spans, *_optional_spans(text, language, spans)]
        for text, language, spans in zip((source, target), languages, required, strict=True)
    ]
    hide_names, hide_words = draw.random() < NAME_SHARE, draw.random() < WORD_SHARE
    pairs: list[tuple[Span, Span]] = []
    for ours, theirs in _matches(*sides):
        optional = ours not in required[0] and theirs not in required[1]
        if not optional or (hide_names if ours.kind == "word" else hide_words):
            pairs.append((ours, theirs))
    matched = {span for pair in pairs for span in pair}
    if not pairs or any(not matched.issuperset(spans) for spans in required):
        return source, target
    free = {kind: _rotated(symbols, draw) for kind, symbols in SYMBOLS.items()}
    replacements: list[tuple[tuple[Span, str], tuple[Span, str]]] = []
    for ours, theirs in sorted(pairs):
        if (symbol := _next_symbol(free, ours.kind)) is None:
            return source, target
        replacements.append(((ours, symbol), (theirs, symbol)))
    hidden_source, hidden_target = zip(*replacements, strict=True)
    return _replaced(source, hidden_source), _replaced(target, sorted(hidden_target))


def hide_corpus(corpus: Corpus, languages: tuple[str | None, str | None], seed: int) -> Corpus:
    """Return the pairs of a corpus with placeholders, as a function of the seed and the row."""
    pairs = [
        hide_pair(source, target, languages, random.Random(seed * len(corpus) + row))
        for row, (source, target) in enumerate(zip(corpus.source, corpus.target or [], strict=True))
    ]
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    return dataclasses.replace(corpus, source=sources, target=targets)


def _next_symbol(free: dict[Kind, list[str]], kind: Kind) -> str | None:
    """Take the next free placeholder of a kind, or of another kind; None if all are taken."""
    symbols = free[kind] or max(free.values(), key=len)
    return symbols.pop(0) if symbols else None


def _rotated(symbols: Sequence[str], draw: random.Random) -> list[str]:
    """Return the placeholders from a random one on, so that training meets all of them equally often."""
    first = draw.randrange(len(symbols))
    return [*symbols[first:], *symbols[:first]]


def _replaced(text: str, replacements: Iterable[tuple[Span, str]]) -> str:
    parts, done = [], 0
    for span, symbol in replacements:
        parts += [text[done : span.start], symbol]
        done = span.end
    return "".join([*parts, text[done:]])


def _matches(source: Sequence[Span], target: Sequence[Span]) -> Iterator[tuple[Span, Span]]:
    """Yield the spans with equal keys, in order, if both sides have equally many of them."""
    for key in dict.fromkeys(span.key for span in source):
        ours, theirs = ([span for span in spans if span.key == key] for spans in (source, target))
        if len(ours) == len(theirs):
            yield from zip(sorted(ours), sorted(theirs), strict=True)


def _optional_spans(text: str, language: str | None, taken: Sequence[Span]) -> Iterator[Span]:
    """Yield numbers below 100 as words, and capitalised words: names, if the other side has them, too."""
    if ANY_PLACEHOLDER.search(text):
        return
    values, scales = _tables(language)
    words = [match for match in WORDS.finditer(text) if not _overlaps(match, taken)]
    lowered = [match[0].lower() for match in words]
    for i, match in enumerate(words):
        beside = {*lowered[max(0, i - 1) : i], *lowered[i + 1 : i + 2]}
        if lowered[i] in values and not any(word in values or word in scales for word in beside):
            yield Span(*match.span(), "number", str(values[lowered[i]]))
    for match in NAMES.finditer(text):
        if not _overlaps(match, taken):
            yield Span(*match.span(), "word", match[0])


@cache
def _tables(language: str | None) -> tuple[dict[str, int], frozenset[str]]:
    return number_words(language or ""), SCALES.get(language or "", frozenset())


def _overlaps(match: re.Match[str], spans: Iterable[Span]) -> bool:
    return any(match.start() < span.end and span.start < match.end() for span in spans)
