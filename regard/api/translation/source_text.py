"""Prepare a sentence for a translator: the same tokens as in training, and checks before the model runs."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from regard.api.translation.copy_unknown_words import hide_names, hide_unseen
from regard.api.translation.placeholder_reader import PlaceholderReader
from regard.errors import DataError
from regard.text.augment.proper_names import may_have_names
from regard.text.placeholders.placeholders import Carried, restore
from regard.text.text_frame import TextFrame
from regard.text.tokenizers.characters import CharacterTokenizer
from regard.text.tokenizers.placeholder_tokens import ANY_PLACEHOLDER
from regard.text.tokenizers.special_tokens import END, LANGUAGE_CODE, PLACEHOLDERS, SPECIAL_TOKENS
from regard.text.tokenizers.subwords import ESCAPE
from regard.text.tokenizers.tokenizer import SPACE, Tokenizer, Word

BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # a token for one byte of a character that has no token
JOINERS = "\ufe0f\u20e3"  # which combine smileys and other symbols, like the zero-width joiner


@dataclass(frozen=True)
class Source:
    """A sentence as the model reads it: its tokens, with the end token last, and its words."""

    text: str
    ids: list[int]
    words: list[Word]
    has_letters: bool
    units: list[
        Word
    ]  # which may be copied into the translation: words, or characters if the tokenizer splits into those
    carried: Carried = field(default_factory=dict)  # spans that the translation must contain, by their placeholders
    originals: Carried = field(default_factory=dict)  # the same spans as the source writes them


class SourceReader:
    """Encodes sentences for one model. `info` is its config.json, `longest` the number of its learned positions.

    `frame` are the tokens around each sentence.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, info: Mapping[str, Any], longest: int | None, frame: TextFrame | None = None
    ) -> None:
        self.tokenizer, self.longest = tokenizer, longest
        self.frame = TextFrame(after=(END,)) if frame is None else frame
        self.unseen = frozenset(info.get("unseen_pieces") or ())
        trained = ((info.get("recipe") or {}).get("data") or {}).get("max_length")
        self.trained: int | None = trained if isinstance(trained, int) else info.get("max_tokens")
        self._seen = seen_characters(tokenizer, self.unseen) if self.unseen else frozenset()
        self._familiar = self._seen | {" ", *PLACEHOLDERS}
        known = info.get("known_names")
        self.known_names = None if known is None else frozenset(known)
        self.placeholders = PlaceholderReader(tokenizer, info=info, known_names=self.known_names)
        self._unreadable = self.unseen - self.placeholders.tokens

    def read(self, text: str) -> Source:
        """Encode a sentence.

        A model that was trained with placeholders reads one for each number, address and rare name. Any other rare
        name, and a word with a token that training never saw, becomes one UNKNOWN.
        """
        hidden = self.placeholders.hide(text, self._readable if self.unseen else None)
        tokens = self.tokenizer.encode(hidden.text)
        words = words_of(self.tokenizer, text, tokens)
        if self.known_names is not None and may_have_names(hidden.text):
            tokens, words = hide_names(self.tokenizer, tokens, words, self.known_names)
        if not self._unreadable.isdisjoint(tokens):
            tokens, words = hide_unseen(tokens, words, self._unreadable)
        if ANY_PLACEHOLDER.search(hidden.text):
            words = [word._replace(text=restore(word.text, hidden.originals)) for word in words]
        units = words
        if isinstance(self.tokenizer, CharacterTokenizer):
            units = [Word(letter, i, i + 1) for i, letter in enumerate(unicodedata.normalize("NFC", text))]
        before, after = self.frame.around_source(coded=bool(self.code_of(text)))
        words, units = _shifted(words, len(before)), _shifted(units, len(before))
        ids = [*before, *tokens, *after]
        self._check_length(text, len(ids) - 1)
        return Source(text, ids, words, any(map(str.isalpha, hidden.text)), units, *hidden[1:])

    def code_of(self, text: str) -> str:
        """Return the code of the target language that a text begins with, such as ">>deu<<"; mostly an empty text."""
        match = LANGUAGE_CODE.match(text) if self.frame.codes else None
        return "" if match is None else match[0]

    def fits(self, text: str) -> bool:
        """Whether a text is no longer than those of training, and fits the positions of the model."""
        positions = None if self.longest is None else self.longest - 1 - len(self.frame.before)
        limits = [limit for limit in (self.trained, positions) if limit is not None]
        if not self.placeholders.has_room(text):
            return False
        if limits and self._max_tokens(text) <= min(limits):
            return True
        return not limits or len(self.tokenizer.encode(self.placeholders.hide(text).text)) <= min(limits)

    def _max_tokens(self, text: str) -> int:
        """Return a number of tokens that the text certainly does not exceed; most texts need no closer look.

        A token is at least one byte, a space precedes the first, and a placeholder is at most two tokens in place of
        one character. Escapes of a subword tokenizer and the NFC form can make a text longer.
        """
        size = len(text.encode(errors="surrogatepass")) + text.count(SPACE) + text.count(ESCAPE)
        factor = 1 if unicodedata.is_normalized("NFC", text) else 3
        return factor * size + 1 + len(self.placeholders.symbols)

    def _readable(self, text: str) -> str:
        """Make more words readable: lowercase words with capitals that training never saw ("TRÈS" becomes "très"), and
        make symbols that it never saw, mostly smileys, words of their own."""
        if self.known_names is not None and text.isupper() and len(text.split()) > 1:
            text = text.capitalize()  # in capitals, names cannot be recognized
        if text.isascii():
            return text
        text = unicodedata.normalize("NFC", text)
        if self._familiar.issuperset(text):
            return text
        words = re.sub(r"\S+", lambda word: self._lowered(word[0]), text)
        runs = [(symbols, "".join(run)) for symbols, run in groupby(words, self._is_unseen_symbol)]
        return "".join(f" {run} " if symbols else run for symbols, run in runs)

    def _lowered(self, word: str) -> str:
        unseen = [letter for letter in word if letter.isupper() and self._is_unseen(letter)]
        return word.lower() if unseen and not any(self._is_unseen(letter.lower()) for letter in unseen) else word

    def _is_unseen_symbol(self, character: str) -> bool:
        symbol = character in JOINERS or unicodedata.category(character)[0] in "SC"
        return symbol and self._is_unseen(character)

    def _is_unseen(self, character: str) -> bool:
        return character not in self._seen and character not in PLACEHOLDERS

    def _check_length(self, text: str, length: int) -> None:
        beginning = repr(text if len(text) <= 40 else text[:39] + "…")
        if self.longest is not None and length + 1 > self.longest:
            raise DataError(
                f"a sentence has {length} tokens, but this model has positions for {self.longest} only: split the "
                f"sentence ({beginning})"
            )
        if self.trained is not None and length > self.trained:
            warnings.warn(
                f"a sentence has {length} tokens, but the model was trained on at most {self.trained}; its translation "
                f"may be poor: split the sentence ({beginning})",
                stacklevel=4,
            )


def words_of(tokenizer: Tokenizer, text: str, tokens: Sequence[int]) -> list[Word]:
    """Return the words of an encoded text, including characters that the tokenizer does not know."""
    words = tokenizer.words(tokens)
    if isinstance(tokenizer, CharacterTokenizer):
        letters = unicodedata.normalize("NFC", text)  # one token each
        words = [word._replace(text=letters[word.start : word.end].strip()) for word in words]
    return words


def seen_characters(tokenizer: Tokenizer, unseen: Collection[int]) -> frozenset[str]:
    """Return the characters that training saw, in any token; a capital need not have a token of its own."""
    seen = [token for token in range(len(SPECIAL_TOKENS), tokenizer.size) if token not in unseen]
    return frozenset("".join(piece for piece in tokenizer.pieces(seen) if not BYTE.fullmatch(piece)))


def _shifted(words: list[Word], count: int) -> list[Word]:
    """Return the words of tokens that have more tokens before them."""
    return [word._replace(start=word.start + count, end=word.end + count) for word in words] if count else words
