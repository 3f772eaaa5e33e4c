"""A tokenizer whose tokens are words, for word vectors.

A2. The vocabulary consists of the words that occur often enough, the most frequent first.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from regard.errors import DataError, ModelError
from regard.text.tokenizers.special_tokens import END, SPECIAL_TOKENS, UNKNOWN
from regard.text.tokenizers.tokenizer import Word

# Letters and digits, with apostrophes and hyphens between them; or a line break.
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|\n")
BLANKS = re.compile(r"[^\s]+|\n")
MAX_WORD_BYTES = 200  # longer ones are addresses or damaged text


class WordTokenizer:
    """Maps words to tokens and back. Other words are UNKNOWN, and a line break is END: no context crosses it.

    Texts are lower-cased and punctuation is dropped; with `tokenised`, words are what stands between blanks, unchanged.
    """

    FILE = "words.json"

    def __init__(self, content: bytes) -> None:
        try:
            entries = json.loads(content)
            words, counts, tokenised = entries["words"], entries["counts"], entries["tokenised"]
            texts = isinstance(words, list) and all(isinstance(word, str) and word for word in words)
            numbers = isinstance(counts, list) and all(type(count) is int and count >= 0 for count in counts)
            if not texts or not numbers or len(words) != len(counts) or not isinstance(tokenised, bool):
                raise ValueError("expected words, the count of each, and whether texts are tokenised")
            "".join(words).encode()  # half surrogates are not characters
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise ModelError(f"not the words of a tokenizer: {error}") from error
        self._numbers = {word: i for i, word in enumerate(words, start=len(SPECIAL_TOKENS))}
        if not words or len(self._numbers) < len(words):
            raise ModelError("not the words of a tokenizer: each must occur once")
        self.vocabulary: list[str] = words  # without the special tokens
        self.counts: list[int] = counts  # how often each occurs in the training text
        self.tokenised = tokenised

    @property
    def size(self) -> int:
        return len(SPECIAL_TOKENS) + len(self.vocabulary)

    def number(self, word: str) -> int | None:
        """Return the token of a word as it is, or lower-cased; None if it is unknown."""
        word = unicodedata.normalize("NFC", word)
        return self._numbers.get(word, self._numbers.get(word.lower()))

    def encode(self, text: str) -> list[int]:
        numbers = self._numbers
        return [END if word == "\n" else numbers.get(word, UNKNOWN) for word in split_words(text, self.tokenised)]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, tokens: Sequence[int], *, unknown: Sequence[str] = ()) -> str:
        replacements = iter(unknown)
        words = (next(replacements, "") if token == UNKNOWN else self._text(token) for token in tokens)
        return " ".join(word for word in words if word)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return [SPECIAL_TOKENS[token] if token < len(SPECIAL_TOKENS) else self._text(token) for token in tokens]

    def words(self, tokens: Sequence[int]) -> list[Word]:
        pieces = enumerate(self.pieces(tokens))
        return [Word(text, i, i + 1) for i, text in pieces if tokens[i] == UNKNOWN or self._text(tokens[i])]

    def save(self) -> tuple[str, bytes]:
        entries = {"tokenised": self.tokenised, "words": self.vocabulary, "counts": self.counts}
        return self.FILE, json.dumps(entries, ensure_ascii=False).encode()

    def _text(self, token: int) -> str:
        return "" if token < len(SPECIAL_TOKENS) else self.vocabulary[token - len(SPECIAL_TOKENS)]


def split_words(text: str, tokenised: bool = False) -> list[str]:
    """Return the words and line breaks of a text."""
    text = unicodedata.normalize("NFC", text)
    return BLANKS.findall(text) if tokenised else WORD.findall(text.lower())


def word_tokenizer(words: Sequence[str], counts: Sequence[int], *, tokenised: bool = False) -> WordTokenizer:
    """Make the tokenizer of a list of words."""
    entries = {"tokenised": tokenised, "words": list(words), "counts": list(counts)}
    return WordTokenizer(json.dumps(entries).encode())


def train_words(
    texts: Iterable[str], *, min_count: int = 5, size: int | None = None, tokenised: bool = False
) -> WordTokenizer:
    """Make a tokenizer of the words that occur at least `min_count` times, at most `size` with the special tokens."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(split_words(text, tokenised))
    del counts["\n"]
    short = {word: count for word, count in counts.items() if len(word.encode()) <= MAX_WORD_BYTES}
    frequent = [(word, count) for word, count in short.items() if count >= min_count]
    frequent.sort(key=lambda entry: (-entry[1], entry[0]))
    frequent = frequent[: None if size is None else size - len(SPECIAL_TOKENS)]
    if len(frequent) < 2:
        raise DataError(
            f"the text has {sum(counts.values())} words, and {len(frequent)} different ones occur at least {min_count} "
            f"times: word vectors need two or more; give more text, or lower tokenizer.min_count"
        )
    return word_tokenizer(*zip(*frequent, strict=True), tokenised=tokenised)
