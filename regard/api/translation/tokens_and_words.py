"""The tokens and words of a translation and its source, found when someone asks for them: most users read the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from regard.api.translation.copy_unknown_words import name_copies
from regard.api.translation.placeholder_reader import show_tokens
from regard.api.translation.source_text import Source
from regard.text.placeholders.placeholders import restore
from regard.text.tokenizers.tokenizer import Word

if TYPE_CHECKING:
    from regard.api.results import Translation
    from regard.api.translator import Translator


class SentenceTokens:
    """Those of one sentence. `copies` are the texts of its UNKNOWN tokens, where words were copied."""

    def __init__(self, translator: Translator, source: Source, ids: Sequence[int]) -> None:
        self.translator, self.source, self.ids = translator, source, ids
        self.copies: list[str] = []

    @cached_property
    def source_tokens(self) -> list[str]:
        return show_tokens(self.translator.source_tokenizer, self.source.ids, self.source.originals)

    @cached_property
    def tokens(self) -> list[str]:
        return show_tokens(self.translator.target_tokenizer, self.ids, self.source.carried)

    @property
    def source_words(self) -> list[Word]:
        return self.source.words

    @cached_property
    def words(self) -> list[Word]:
        tokenizer, special = self.translator.target_tokenizer, self.translator.special
        written = [token for token in self.ids if token not in special.ends]
        words = tokenizer.words(written)
        if self.copies:
            words = name_copies(tokenizer, written, words, self.copies, special.unknown)
        if not self.translator.reader.placeholders.symbols:
            return words
        return [word._replace(text=restore(word.text, self.source.carried)) for word in words]


class JoinedTokens:
    """Those of a text whose parts were translated one by one, without the empty parts."""

    def __init__(self, parts: Sequence[Translation]) -> None:
        self.parts = parts

    @cached_property
    def source_tokens(self) -> list[str]:
        return [token for part in self.parts for token in part.source_tokens]

    @cached_property
    def tokens(self) -> list[str]:
        return [token for part in self.parts for token in part.tokens]

    @cached_property
    def source_words(self) -> list[Word]:
        return self._shifted(lambda part: part.source_words, lambda part: part.source_ids)

    @cached_property
    def words(self) -> list[Word]:
        return self._shifted(lambda part: part.words, lambda part: part.ids)

    def _shifted(
        self, words: Callable[[Translation], list[Word]], ids: Callable[[Translation], list[int]]
    ) -> list[Word]:
        """Return the words of all parts, with their places among the tokens of the whole text."""
        starts = accumulate((len(ids(part)) for part in self.parts), initial=0)
        return [
            Word(word.text, word.start + start, word.end + start)
            for part, start in zip(self.parts, starts, strict=False)
            for word in words(part)
        ]
