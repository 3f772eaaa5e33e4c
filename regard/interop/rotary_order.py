"""The two orders of the rows of queries and keys under rotary positions.

Rotary positions turn pairs of rows: c and c + d/2 ("halves", as in transformers and here), or 2c and 2c + 1
("interleaved", as in the paper, llama2.c and GGUF files of Llama).
"""

from __future__ import annotations

from torch import Tensor


def to_halves(weight: Tensor, heads: int) -> Tensor:
    """Reorder the interleaved rows of a matrix or a bias of queries or keys, for each head."""
    d = weight.shape[0] // heads
    return weight.reshape(heads, d // 2, 2, -1).transpose(1, 2).reshape(weight.shape)


def to_interleaved(weight: Tensor, heads: int) -> Tensor:
    """Undo `to_halves`."""
    d = weight.shape[0] // heads
    return weight.reshape(heads, 2, d // 2, -1).transpose(1, 2).reshape(weight.shape)
