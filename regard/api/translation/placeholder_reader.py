"""Placeholders in use: hide the spans of a source, make the search write each once, and put them into the result."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from regard.decoding.searches.logit_rules import EachOnce
from regard.text.augment.proper_names import (
    ELISION,
    REMEMBERED_WORDS,
    SegmentedWord,
    core,
    find_names,
    may_have_names,
)
from regard.text.placeholders.placeholders import Carried, Hidden, hide, restore
from regard.text.placeholders.spans import Span, find_spans
from regard.text.tokenizers.placeholder_tokens import ANY_PLACEHOLDER
from regard.text.tokenizers.special_tokens import PLACEHOLDERS, UNKNOWN
from regard.text.tokenizers.tokenizer import SPACE, Tokenizer

Readable = Callable[[str], str]
SENTENCE_MARKS = ".,;:!?…"
DOUBLE_NAME = re.compile(r"[^\W\d_]+(?:-[A-ZÀ-Þ][^\W\d_]+)+")  # Jean-Pierre


class PlaceholderReader:
    """Replaces the spans of sources by placeholders, if the model was trained with them. `info` is its config.json."""

    def __init__(self, tokenizer: Tokenizer, *, info: Mapping[str, Any], known_names: Collection[str] | None) -> None:
        data = (info.get("recipe") or {}).get("data") or {}
        self.tokenizer, self.known_names = tokenizer, known_names
        self.source, self.target = data.get("source_language"), data.get("target_language")
        self.unseen = frozenset(info.get("unseen_pieces") or ())
        self.symbols: list[str] = []
        if data.get("placeholders"):
            self.symbols = [
                symbol for symbol in PLACEHOLDERS if placeholder_token(tokenizer, symbol) not in self.unseen
            ]
        # The tokens of placeholders, and the joiner before one inside a word.
        self.tokens = frozenset(token for symbol in self.symbols for token in tokenizer.encode(f"({symbol}")[-2:])
        # Most words of a text are frequent ones, which need not be encoded again and again.
        self._segmented = lru_cache(REMEMBERED_WORDS)(self._segment)
        self._has_unseen = lru_cache(REMEMBERED_WORDS)(
            lambda bare: not self.unseen.isdisjoint(self.tokenizer.encode(bare))
        )

    def hide(self, text: str, readable: Readable | None = None) -> Hidden:
        """Replace numbers, addresses and code; then, in what is left, rare names and words that cannot be read.

        `readable` changes what is left after the names.
        """
        if self.symbols:
            text = ANY_PLACEHOLDER.sub("\ufffd", text)  # characters that no text should contain
        spans = find_spans(text, self.source) if self.symbols else ()
        hidden = hide(text, spans, target=self.target, symbols=self.symbols)
        if not text.isupper():  # in capitals, names cannot be recognized
            hidden = self._hide_more(hidden, self._names)
        if readable is not None:
            hidden = hidden._replace(text=readable(hidden.text))
        return self._hide_more(hidden, self._unreadable)

    def _hide_more(self, hidden: Hidden, find: Callable[[str], Iterator[Span]]) -> Hidden:
        """Replace more spans by the placeholders that are free."""
        if not (free := [symbol for symbol in self.symbols if symbol not in hidden.carried]):
            return hidden
        again = hide(hidden.text, find(hidden.text), symbols=free)
        return Hidden(again.text, {**hidden.carried, **again.carried}, {**hidden.originals, **again.originals})

    def has_room(self, text: str) -> bool:
        """Whether there are enough placeholders for the spans of a text."""
        return not self.symbols or sum(1 for _ in find_spans(text, self.source)) <= len(self.symbols)

    def _names(self, text: str) -> Iterator[Span]:
        """Yield the names that are rare in the training data, without the punctuation around them."""
        if self.known_names is None or not may_have_names(text):
            return
        parts: list[tuple[str, int]] = []  # words and where they start; "d'Émilie" is two
        for word in re.finditer(r"\S+", text):
            elided = ELISION.match(word[0]) if word[0][0].islower() else None
            cut = elided.end() if elided else 0
            parts += [(word[0][:cut], word.start())] * bool(cut) + [(word[0][cut:], word.start() + cut)]
        for first, last in self._name_words([self._segmented(part) for part, _ in parts]):
            (begin, start), (end, end_start) = parts[first], parts[last - 1]
            span = Span(start + begin.find(core(begin)), end_start + end.rfind(core(end)) + len(core(end)), "word", "")
            shouted = span.text(text).isupper() and not span.text(text).isascii()  # TRÈS is hardly a name
            if not shouted and not ANY_PLACEHOLDER.search(span.text(text)):
                yield span

    def _name_words(self, words: Sequence[SegmentedWord]) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each name, as `find_names` does; a double name may begin the sentence."""
        names = dict(find_names(words, self.known_names or ()))
        if words and 0 not in names and DOUBLE_NAME.fullmatch(core(words[0].text)):
            names[0] = names.pop(1, 1)
        yield from sorted(names.items())

    def _unreadable(self, text: str) -> Iterator[Span]:
        """Yield the words that have a token which training never saw, such as smileys."""
        for word in re.finditer(r"\S+", text):
            if not ANY_PLACEHOLDER.search(word[0]) and self.has_unseen(word[0]):
                yield Span(word.start(), word.start() + len(word[0].rstrip(SENTENCE_MARKS)), "word", "")

    def has_unseen(self, word: str) -> bool:
        """Whether a word has a token that training never saw, without the punctuation after it."""
        return self._has_unseen(word.rstrip(SENTENCE_MARKS))

    def _segment(self, word: str) -> SegmentedWord:
        """Count the tokens of a word, and say whether it is capitalized and one token in lowercase."""
        bare = core(word)
        plain = bare[:1].isupper() and len(self.tokenizer.encode(bare.lower())) == 1
        return SegmentedWord(word, len(self.tokenizer.encode(word)), plain)


def placeholder_token(tokenizer: Tokenizer, symbol: str) -> int:
    """Return the token of a placeholder."""
    return tokenizer.encode(symbol)[-1]


def carry_rule(tokenizer: Tokenizer, carried: Carried, *, unknown: bool) -> EachOnce:
    """Return the rule by which a search writes each carried placeholder once, and no other one.

    UNKNOWN would copy a carried span a second time, unless the source has an `unknown` word of its own.
    """
    tokens = tuple(placeholder_token(tokenizer, symbol) for symbol in carried)
    others = tuple(placeholder_token(tokenizer, symbol) for symbol in PLACEHOLDERS if symbol not in carried)
    return EachOnce(tokens, others if unknown else (*others, UNKNOWN))


def restore_all(text: str, carried: Carried) -> str:
    """Put the carried spans into a translation; those that it lacks, because it was cut off, follow at its end."""
    missing = [span for symbol, span in carried.items() if symbol not in text]
    return " ".join([restore(text, carried), *missing]).strip() if missing else restore(text, carried)


def show_tokens(tokenizer: Tokenizer, ids: Sequence[int], carried: Carried) -> list[str]:
    """Return the tokens as readable text, with the carried spans in place of placeholders."""
    spans = {placeholder_token(tokenizer, symbol): span for symbol, span in carried.items()}
    pieces = tokenizer.pieces(ids)
    return [SPACE + spans[token] if token in spans else piece for token, piece in zip(ids, pieces, strict=True)]
