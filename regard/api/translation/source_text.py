"""Prepare a sentence for a translator: the same tokens as in training, and checks before the model runs."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any

from regard.api.translation.copy_unknown_words import hide_names, hide_unseen
from regard.api.translation.placeholder_reader import PlaceholderReader
from regard.errors import DataError
from regard.text.augment.proper_names import REMEMBERED_WORDS, may_have_names
from regard.text.placeholders.placeholders import Carried, Hidden, restore
from regard.text.placeholders.spans import SOME_SPAN
from regard.text.text_frame import TextFrame
from regard.text.tokenizers.characters import CharacterTokenizer
from regard.text.tokenizers.placeholder_tokens import ANY_PLACEHOLDER
from regard.text.tokenizers.special_tokens import END, LANGUAGE_CODE, PLACEHOLDERS, SPECIAL_TOKENS
from regard.text.tokenizers.subwords import ESCAPE
from regard.text.tokenizers.tokenizer import SPACE, Tokenizer, Word

BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # a token for one byte of a character that has no token
INNER_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
JOINERS = "\ufe0f\u20e3"  # which combine smileys and other symbols, like the zero-width joiner


@dataclass(frozen=True)
class Source:
    """A sentence as the model reads it: its tokens, with the end token last, and its words."""

    text: str
    ids: list[int]
    has_letters: bool
    tokenizer: Tokenizer
    start: int = 0  # tokens before the text: the start token, or the code of a language
    after: int = 1  # tokens after the text
    replaced_words: list[Word] | None = None  # the words, if some have other tokens than the tokenizer gives them
    carried: Carried = field(default_factory=dict)  # spans that the translation must contain, by their placeholders
    originals: Carried = field(default_factory=dict)  # the same spans as the source writes them

    @cached_property
    def words(self) -> list[Word]:
        """The words and their tokens; found on first use, because most translations need none."""
        words = self.replaced_words
        if words is None:
            words = words_of(self.tokenizer, self.text, self.ids[self.start : len(self.ids) - self.after])
        return _shifted(words, self.start) if self.start else words

    @property
    def units(self) -> list[Word]:
        """What may be copied into the translation: words, or characters if the tokenizer splits into those."""
        if not isinstance(self.tokenizer, CharacterTokenizer):
            return self.words
        units = [Word(letter, i, i + 1) for i, letter in enumerate(unicodedata.normalize("NFC", self.text))]
        return _shifted(units, self.start) if self.start else units


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
        lengths = [length for length in (trained, info.get("max_tokens")) if isinstance(length, int)]
        self.trained: int | None = max(lengths, default=None)
        self._seen = seen_characters(tokenizer, self.unseen) if self.unseen else frozenset()
        self._familiar = self._seen | {" ", *PLACEHOLDERS}
        known = info.get("known_names")
        self.known_names = None if known is None else frozenset(known)
        self.placeholders = PlaceholderReader(tokenizer, info=info, known_names=self.known_names)
        self._unreadable = self.unseen - self.placeholders.tokens
        self._is_plain_word = lru_cache(REMEMBERED_WORDS)(self._look_at_word)

    def read(self, text: str) -> Source:
        """Encode a sentence.

        A model that was trained with placeholders reads one for each number, address and rare name. Any other rare
        name, and a word with a token that training never saw, becomes one UNKNOWN.
        """
        is_plain = self._is_plain(text)
        hidden = (
            Hidden(text, {}, {}) if is_plain else self.placeholders.hide(text, self._readable if self.unseen else None)
        )
        tokens = self.tokenizer.encode(hidden.text)
        words = None
        if not is_plain or not self._unreadable.isdisjoint(tokens):
            tokens, words = self._replace_words(text, hidden, tokens)
        code = self.code_of(text)
        before, after = self.frame.around_source(coded=bool(code))
        ids = [*before, *tokens, *after]
        self._check_length(text, len(ids) - 1)
        has_letters = any(map(str.isalpha, hidden.text[len(code) :]))
        return Source(text, ids, has_letters, self.tokenizer, len(before), len(after), words, *hidden[1:])

    def code_of(self, text: str) -> str:
        """Return the code of the target language that a text begins with, such as ">>deu<<"; mostly an empty text."""
        match = LANGUAGE_CODE.match(text) if self.frame.codes else None
        return "" if match is None else match[0]

    def _hide(self, text: str) -> Hidden:
        return self.placeholders.hide(text, self._readable if self.unseen else None)

    def _is_plain(self, text: str) -> bool:
        """Whether certainly nothing of a text is replaced or changed, as in most texts: it has no capital after the
        first letter, and each word is plain."""
        rest = text[1:]
        return rest == rest.lower() and all(map(self._is_plain_word, text.split(" ")))

    def _look_at_word(self, word: str) -> bool:
        """Whether a word is plain: no span, no placeholder, nothing unseen. A hyphen between letters begins no span."""
        if (
            SOME_SPAN.search(INNER_HYPHEN.sub("", word))
            or ANY_PLACEHOLDER.search(word)
            or self.placeholders.has_unseen(word)
        ):
            return False
        return not self.unseen or (unicodedata.is_normalized("NFC", word) and self._familiar.issuperset(word))

    def _replace_words(self, text: str, hidden: Hidden, tokens: list[int]) -> tuple[list[int], list[Word]]:
        """Replace rare names and words that the model cannot read; return the new tokens, and the words of the text."""
        words = words_of(self.tokenizer, text, tokens)
        if self.known_names is not None and may_have_names(hidden.text):
            tokens, words = hide_names(self.tokenizer, tokens, words, self.known_names)
        if not self._unreadable.isdisjoint(tokens):
            tokens, words = hide_unseen(tokens, words, self._unreadable)
        if ANY_PLACEHOLDER.search(hidden.text):
            words = [word._replace(text=restore(word.text, hidden.originals)) for word in words]
        return tokens, words

    @property
    def limit(self) -> int | None:
        """The most tokens of a text that is translated as a whole: as in training, and as many as have positions."""
        if self.longest is None:
            return self.trained
        positions = self.longest - 1 - len(self.frame.before)
        return positions if self.trained is None else min(self.trained, positions)

    def fits(self, text: str) -> bool:
        """Whether a text is no longer than those of training, and fits the positions of the model."""
        is_plain = self._is_plain(text)
        if not is_plain and not self.placeholders.has_room(text):
            return False
        limit = self.limit
        if limit is None or self._max_tokens(text) <= limit:
            return True
        return len(self.tokenizer.encode(text if is_plain else self.placeholders.hide(text).text)) <= limit

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


def _shifted(words: Sequence[Word], count: int) -> list[Word]:
    """Return the words of tokens that have so many more tokens before them."""
    return [word._replace(start=word.start + count, end=word.end + count) for word in words]
