"""The special tokens, and the padding of sentences to a batch.

A4. Start and end of a sentence are in the lectures; batches also need padding, and open text needs an unknown token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.machine.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


# The first tokens of every vocabulary.
PAD, UNKNOWN, START, END = range(4)
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a model. The defaults are those of this package; an imported model keeps its own."""

    pad: int = PAD
    unknown: int | None = UNKNOWN  # None: the tokenizer has a token for every text
    start: int = START
    ends: tuple[int, ...] = (END,)  # each of them ends a text; the first one is added to texts that are given
    barred: tuple[int, ...] = (PAD, START)  # never chosen
    tokenizer_size: int | None = None  # rows of the output from here on have no token, so they are never chosen

    @property
    def end(self) -> int:
        """The token that is added to a complete text."""
        return self.ends[0]

    def never_chosen(self, allow_unknown: bool) -> list[int]:
        """Return the tokens that a search never chooses, without those that have no token at all."""
        unknown = [] if allow_unknown or self.unknown is None else [self.unknown]
        return [*self.barred, *unknown]

    def are_ends(self, tokens: Tensor) -> Tensor:
        """Return for each token whether it ends a text."""
        ended = tokens == self.ends[0]
        for end in self.ends[1:]:
            ended = ended | (tokens == end)
        return ended


DEFAULT = SpecialTokens()
LANGUAGE_CODE = re.compile(r">>[^<>\s]{1,64}<<")  # the target language, before a text, of some translation models


def special_tokens_of(model: Any) -> SpecialTokens:
    """Return the special tokens of a model; a model of the user's own has the defaults."""
    return getattr(getattr(model, "config", None), "special_tokens", DEFAULT)


# Placeholders stand for text that a translation carries over: characters that Unicode reserves for internal use, so no
# text contains them. In a subword vocabulary, each is one token: a byte that never occurs in UTF-8. Such a token is a
# word, with a space before it; after the byte JOINER it continues a word.
PLACEHOLDERS = tuple(map(chr, range(0xFDD0, 0xFDDC)))
PLACEHOLDER_BYTES = (*range(0xF5, 0x100), 0xC0)
JOINER_BYTE = 0xC1
SEPARATOR = PLACEHOLDERS[-1]  # between a story and a question about it; both have no other placeholders


def wrap(tokens: Sequence[int], *, start: bool = True, end: bool = True) -> list[int]:
    """Put a sentence between its start and end tokens. A target has both; a source only if one follows L2."""
    return [START] * start + list(tokens) + [END] * end


def pad_batch(sentences: Sequence[Sequence[int]], *, pad_id: int = PAD) -> Tensor:
    """Return sentences of different lengths as one tensor (B, longest), padded on the right."""
    longest = max(map(len, sentences), default=0)
    rows = [[*s, *[pad_id] * (longest - len(s))] for s in sentences]
    return torch.tensor(rows, dtype=torch.long).view(len(rows), longest)
