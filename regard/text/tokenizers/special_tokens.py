"""The special tokens, and the padding of sentences to a batch.

A4. Start and end of a sentence are in the lectures; batches also need padding, and open text needs an unknown token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# The first tokens of every vocabulary.
PAD, UNKNOWN, START, END = range(4)
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")


def wrap(tokens: Sequence[int], *, start: bool = True, end: bool = True) -> list[int]:
    """Put a sentence between its start and end tokens. A target has both; a source only if one follows L2."""
    return [START] * start + list(tokens) + [END] * end


def pad_batch(sentences: Sequence[Sequence[int]], *, pad_id: int = PAD) -> Tensor:
    """Return sentences of different lengths as one tensor (B, longest), padded on the right."""
    longest = max(map(len, sentences), default=0)
    rows = [[*s, *[pad_id] * (longest - len(s))] for s in sentences]
    return torch.tensor(rows, dtype=torch.long).view(len(rows), longest)
