"""The special tokens, and the padding of sentences to a batch.

A4. Start and end of a sentence are in the lectures; batches also need padding, and open text needs an unknown token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


# The first tokens of every vocabulary.
PAD, UNKNOWN, START, END = range(4)
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")

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
