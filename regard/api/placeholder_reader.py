"""Placeholders in use: hide the spans of a source, make the search write each once, and put them into the result."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from regard.decoding.searches.logit_rules import EachOnce
from regard.text.augment.proper_names import ELISION, SegmentedWord, core, find_names
from regard.text.placeholders.placeholders import Carried, Hidden, hide, restore
from regard.text.placeholders.spans import Span, find_spans
from regard.text.tokenizers.special_tokens import PLACEHOLDERS
from regard.text.tokenizers.tokenizer import SPACE, Tokenizer

Readable = Callable[[str], str]


class PlaceholderReader:
    """Replaces the spans of sources by placeholders, if the model was trained with them. `info` is its config.json."""

    def __init__(self, tokenizer: Tokenizer, *, info: Mapping[str, Any], known_names: Collection[str] | None) -> None:
        data = (info.get("recipe") or {}).get("data") or {}
        self.tokenizer, self.known_names = tokenizer, known_names
        self.source, self.target = data.get("source_language"), data.get("target_language")
        unseen = frozenset(info.get("unseen_pieces") or ())
        self.symbols: list[str] = []
        if data.get("placeholders"):
            self.symbols = [symbol for symbol in PLACEHOLDERS if placeholder_token(tokenizer, symbol) not in unseen]

    def hide(self, text: str, readable: Readable | None = None) -> Hidden:
        """Replace numbers, addresses and code, then rare names in what is left, which `readable` may change first."""
        spans = find_spans(text, self.source) if self.symbols else ()
        hidden = hide(text, spans, target=self.target, symbols=self.symbols)
        if readable is not None:
            hidden = hidden._replace(text=readable(hidden.text))
        free = [symbol for symbol in self.symbols if symbol not in hidden.carried]
        if not free or self.known_names is None:
            return hidden
        names = hide(hidden.text, self._names(hidden.text), symbols=free)
        return Hidden(names.text, {**hidden.carried, **names.carried}, {**hidden.originals, **names.originals})

    def has_room(self, text: str) -> bool:
        """Whether there are enough placeholders for the spans of a text."""
        return not self.symbols or sum(1 for _ in find_spans(text, self.source)) <= len(self.symbols)

    def _names(self, text: str) -> Iterator[Span]:
        """Yield the names that are rare in the training data, without the punctuation around them."""
        parts: list[tuple[str, int]] = []  # words and where they start; "d'Émilie" is two
        for word in re.finditer(r"\S+", text):
            elided = ELISION.match(word[0]) if word[0][0].islower() else None
            cut = elided.end() if elided else 0
            parts += [(word[0][:cut], word.start())] * bool(cut) + [(word[0][cut:], word.start() + cut)]
        segmented = [SegmentedWord(part, len(self.tokenizer.encode(part)), self._is_plain(part)) for part, _ in parts]
        for first, last in find_names(segmented, self.known_names or ()):
            (begin, start), (end, end_start) = parts[first], parts[last - 1]
            span = Span(start + begin.find(core(begin)), end_start + end.rfind(core(end)) + len(core(end)), "word", "")
            if not any(symbol in span.text(text) for symbol in PLACEHOLDERS):
                yield span

    def _is_plain(self, word: str) -> bool:
        """Whether the capitalized word, in lowercase, is one token."""
        bare = core(word)
        return bare[:1].isupper() and len(self.tokenizer.encode(bare.lower())) == 1


def placeholder_token(tokenizer: Tokenizer, symbol: str) -> int:
    """Return the token of a placeholder."""
    return tokenizer.encode(symbol)[-1]


def carry_rule(tokenizer: Tokenizer, carried: Carried) -> EachOnce:
    """Return the rule by which a search writes each carried placeholder once, and no other one."""
    tokens = tuple(placeholder_token(tokenizer, symbol) for symbol in carried)
    others = tuple(placeholder_token(tokenizer, symbol) for symbol in PLACEHOLDERS if symbol not in carried)
    return EachOnce(tokens, others)


def restore_all(text: str, carried: Carried) -> str:
    """Put the carried spans into a translation; those that it lacks, because it was cut off, follow at its end."""
    missing = [span for symbol, span in carried.items() if symbol not in text]
    return " ".join([restore(text, carried), *missing]).strip() if missing else restore(text, carried)


def show_tokens(tokenizer: Tokenizer, ids: Sequence[int], carried: Carried) -> list[str]:
    """Return the tokens as readable text, with the carried spans in place of placeholders."""
    spans = {placeholder_token(tokenizer, symbol): span for symbol, span in carried.items()}
    pieces = tokenizer.pieces(ids)
    return [SPACE + spans[token] if token in spans else piece for token, piece in zip(ids, pieces, strict=True)]
