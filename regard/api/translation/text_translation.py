"""Translate a list of texts: split long ones into parts, search for the translations of all parts, and join them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import compress, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.api.results import Translation
from regard.api.translation.degenerate_output import is_repetitive
from regard.api.translation.distinct_texts import find_distinct, linked
from regard.api.translation.sentence_search import SentenceRequest, SentenceSearch
from regard.api.translation.source_text import Source
from regard.api.translation.split_long_text import TextPart, join_translations, split_text
from regard.api.translation.tokens_to_translation import make_translation
from regard.decoding.searches.search import Search
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.api.translator import Translator

PART_STRIDE = 2**40  # between the numbers of a text's parts, larger than any list


class TextTranslation(NamedTuple):
    """How to translate texts; calling it translates them. The fields are the arguments of `Translator.translate`."""

    translator: Translator
    model: Any  # searches: the translator's model, or an equivalent that is faster
    search: Search
    alternatives: int
    prefix: str | None
    include: Sequence[str]
    max_tokens: int | None
    guard: bool

    def __call__(self, texts: Sequence[str], numbers: Sequence[int]) -> list[Translation]:
        """Translate texts; their numbers determine their random numbers."""
        split = [split_source(self.translator, text) if self.guard else [TextPart(text, "")] for text in texts]
        if self.include and any(len(parts) > 1 for parts in split):
            raise UsageError(
                "include works for one sentence, but a text has several parts: translate its sentences one by one"
            )
        requests = [
            self._request(part.text, self.prefix if i == 0 else None, number + i * PART_STRIDE)
            for number, parts in zip(numbers, split, strict=True)
            for i, part in enumerate(parts)
        ]
        translated = iter(self._translate_parts(requests))
        return [
            join_translations(text, parts, list(islice(translated, len(parts)))) if len(parts) > 1 else next(translated)
            for text, parts in zip(texts, split, strict=True)
        ]

    def _request(self, text: str, prefix: str | None, number: int) -> SentenceRequest:
        translator, source = self.translator, self._read(text)
        start = [*translator.frame.before_target(), *(translator.encode_target(prefix, source) if prefix else [])]
        phrases = [translator.encode_target(phrase, source) for phrase in self.include]
        return SentenceRequest(source, start, phrases, number, bool(prefix))

    def _read(self, text: str) -> Source:
        """Return a part of a text as the model reads it; a repetitive one has no words, so it is copied."""
        translator = self.translator
        if not self.guard or not is_repetitive(text):
            return translator.read(text)
        warnings.warn(
            f"a text of {len(text):,} characters only repeats a few words or letters, so it is copied "
            f"({text[:20].strip()!r}…)",
            stacklevel=3,
        )
        end, tokenizer = translator.special.end, translator.source_tokenizer
        return Source(text, [end], has_letters=False, tokenizer=tokenizer, replaced_words=[])

    def _translate_parts(self, requests: Sequence[SentenceRequest]) -> list[Translation]:
        """Return the best translation of each part, linked with its alternatives; a part without words is copied."""
        has_words = [_can_be_searched(request.source, self.guard) for request in requests]
        searchable = list(compress(requests, has_words))

        def translations(which: Sequence[int], search: Search, count: int) -> list[list[Translation]]:
            return self._search([searchable[i] for i in which], search, count)

        searched = iter(find_distinct(translations, len(searchable), self.search, self.alternatives))
        return [
            linked(next(searched) if has else [self._copy(request.source)])
            for request, has in zip(requests, has_words, strict=True)
        ]

    def _search(self, requests: Sequence[SentenceRequest], search: Search, count: int) -> list[list[Translation]]:
        """Search for that many translations of each part."""
        translator, limit = self.translator, self.max_tokens
        find = SentenceSearch(
            self.model, translator.target_tokenizer, search, count, limit, translator.longest, self.guard,
            translator.special,
        )  # fmt: skip
        return [
            [
                make_translation(translator, request.source, [*request.start, *x.tokens], x.score, x.finished)
                for x in hypotheses
            ]
            for request, hypotheses in zip(requests, find(requests), strict=True)
        ]

    def _copy(self, source: Source) -> Translation:
        """Return the source itself as its translation."""
        result = make_translation(self.translator, source, [], score=0.0, finished=True)
        result.text = source.text.strip()
        return result


def split_source(translator: Translator, text: str) -> list[TextPart]:
    """Split a text into parts that fit the model; each has the code of the target language that the text begins with.

    An unknown word is one token, so it fits, and a repetitive text is copied.
    """
    reader = translator.reader

    def fits(part: str) -> bool:
        if reader.fits(part) or is_repetitive(part):
            return True
        return len(part.split()) == 1 and not reader.unseen.isdisjoint(translator.source_tokenizer.encode(part))

    code = reader.code_of(text)
    parts = split_text(text[len(code) :], fits)
    return [part._replace(text=code + part.text) for part in parts] if code else parts


def _can_be_searched(source: Source, guard: bool) -> bool:
    """Whether a source has words; with `guard`, also letters."""
    if source.has_letters:
        return len(source.ids) > source.after + source.start
    return not guard and bool(source.words)
