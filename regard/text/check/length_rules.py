"""Which sentences training drops because of their length, and which contain characters without tokens."""

from __future__ import annotations

from dataclasses import dataclass

from regard.text.tokenizers.special_tokens import UNKNOWN
from regard.text.tokenizers.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 256  # of a side, if data.max_length is not set
MAX_TOKEN_CHARACTERS = 16  # of a sentencepiece token


@dataclass(frozen=True)
class Rules:
    """Settings of training that decide about a sentence: maximum length, tokenizers if known, policy for faults."""

    limit: int = DEFAULT_MAX_TOKENS  # tokens of a side, including the end token
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None
    by_characters: bool = False  # whether tokens will be characters
    faults: str = "stop"

    def is_too_long(self, side: int, text: str, words: int) -> bool:
        """Whether training drops a sentence; without a tokenizer, only if every tokenizer would make it too long."""
        if self.by_characters:
            return len(text) >= self.limit
        if self.tokenizers is None:
            if len(text) >= self.limit * MAX_TOKEN_CHARACTERS:
                return True
            # No token contains a space, but it may contain other whitespace, at which `words` are split, too.
            return words >= self.limit and sum(map(bool, text.split(" "))) >= self.limit
        if 2 * len(text.encode()) < self.limit:  # a text has about as many tokens as bytes at most
            return False
        return len(self.tokenizers[side].encode(text)) >= self.limit

    def is_foreign(self, side: int, text: str) -> bool:
        """Whether the tokenizer lacks tokens for characters of a text: it gives UNKNOWN, or several bytes for each."""
        if self.tokenizers is None:
            return False
        tokens = self.tokenizers[side].encode(text)
        return UNKNOWN in tokens or len(tokens) > len(text) + 1
