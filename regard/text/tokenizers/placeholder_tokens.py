"""The tokens of placeholders in a subword vocabulary: each replaces a space and the three bytes of its character."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sentencepiece import SentencePieceProcessor

from regard.text.tokenizers.special_tokens import JOINER_BYTE, PLACEHOLDER_BYTES, PLACEHOLDERS
from regard.text.tokenizers.tokenizer import SPACE

BYTE_COUNT = 3  # of each placeholder in UTF-8
ANY_PLACEHOLDER = re.compile(f"[{PLACEHOLDERS[0]}-{PLACEHOLDERS[-1]}]")


class PlaceholderTokens:
    """Folds a space and the bytes of a placeholder into its token, and unfolds them."""

    def __init__(self, model: SentencePieceProcessor) -> None:
        byte_tokens = [model.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        self.tokens = [byte_tokens[byte] for byte in PLACEHOLDER_BYTES]
        self.space, self.joiner = model.piece_to_id(SPACE), byte_tokens[JOINER_BYTE]
        utf8 = [tuple(byte_tokens[byte] for byte in character.encode()) for character in PLACEHOLDERS]
        self._folded = dict(zip(utf8, self.tokens, strict=True))
        self._unfolded = dict(zip(self.tokens, utf8, strict=True))

    def fold(self, text: str, tokens: list[int]) -> list[int]:
        """Return the tokens of a text with one token for each placeholder."""
        if text.isascii() or not ANY_PLACEHOLDER.search(text):
            return tokens
        folded: list[int] = []
        i = 0
        while i < len(tokens):
            placeholder = self._folded.get(tuple(tokens[i : i + BYTE_COUNT]))
            if placeholder is None:
                folded.append(tokens[i])
                i += 1
                continue
            if folded[-1:] == [self.space]:
                folded[-1] = placeholder
            else:
                folded += [self.joiner, placeholder]
            i += BYTE_COUNT
        return folded

    def unfold(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens with the spaces and bytes of placeholders, which sentencepiece decodes."""
        if self._unfolded.keys().isdisjoint(tokens):
            return [token for token in tokens if token != self.joiner]
        unfolded: list[int] = []
        for token, continues in self._continuing(tokens):
            if token in self._unfolded:
                unfolded += [*([] if continues else [self.space]), *self._unfolded[token]]
            elif token != self.joiner:
                unfolded.append(token)
        return unfolded

    def word_starts(self, tokens: Sequence[int]) -> set[int]:
        """Return the indices of the placeholders that have a space before them."""
        return {i for i, (token, on) in enumerate(self._continuing(tokens)) if token in self._unfolded and not on}

    def _continuing(self, tokens: Sequence[int]) -> Iterator[tuple[int, bool]]:
        """Yield each token, and whether the one before it is the joiner."""
        before = None
        for token in tokens:
            yield token, before == self.joiner
            before = token
