"""Tokens to vectors: the embedding table, its look-up as a matrix product, and word counts.

Bengio et al. 2003; A1, A2.

Shapes: B batch, T length, V vocabulary (rows of the table), D width.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.checks import check_like, check_width


class Embedding(nn.Module):
    """A table of token vectors; to look up a token is to read its row.

    Vaswani et al. 2017, section 3.4 (scale); Press & Wolf 2017 (tied output); A1.

    `scale` multiplies the rows by sqrt(dim). The row of `pad_id` is zero and never gets a gradient.
    """

    def __init__(self, *, vocabulary: int, dim: int, pad_id: int | None = None, scale: bool = False) -> None:
        super().__init__()
        if vocabulary < 1 or dim < 1:
            raise ValueError(f"vocabulary and dim must be at least 1, got {vocabulary} and {dim}")
        if pad_id is not None and not 0 <= pad_id < vocabulary:
            raise ValueError(f"pad_id must lie in 0..{vocabulary - 1}, got {pad_id}")
        self.vocabulary = vocabulary
        self.dim = dim
        self.pad_id = pad_id
        self.factor = math.sqrt(dim) if scale else 1.0
        self.weight = nn.Parameter(torch.empty(vocabulary, dim))  # (V, D)
        self.reset_parameters()

    @property
    def traits(self) -> frozenset[str]:
        """What this layer computes; see regard.traits."""
        options = {"scaled-embedding": self.factor != 1.0, "padding-row": self.pad_id is not None}
        return frozenset({"embedding", *(name for name, used in options.items() if used)})

    def reset_parameters(self) -> None:
        """Draw the rows from N(0, 1/D), so that a tied output layer gives logits of about unit size."""
        nn.init.normal_(self.weight, std=self.dim**-0.5)
        if self.pad_id is not None:
            with torch.no_grad():
                self.weight[self.pad_id].zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (…) -> vectors (…, D)."""
        check_integers(tokens)
        try:
            rows = F.embedding(tokens, self.weight, padding_idx=self.pad_id)  # (…, D)
        except IndexError:  # on the CPU the look-up checks the range for free; on a GPU a check would synchronize
            _check_range(tokens, self.vocabulary)
            raise
        return rows if self.factor == 1.0 else rows * self.factor

    def logits(self, x: Tensor) -> Tensor:
        """x (…, D) -> scores over the vocabulary (…, V): the same table, transposed."""
        check_width(x, self.dim)
        check_like("x", x, self.weight)
        scores = F.linear(x, self.weight)  # (…, V)
        if self.pad_id is not None:
            scores[..., self.pad_id] = 0.0  # the row is zero already; as a constant it has no gradient
        return scores

    def extra_repr(self) -> str:
        pad = "" if self.pad_id is None else f", pad_id={self.pad_id}"
        return f"vocabulary={self.vocabulary}, dim={self.dim}{pad}, scale={self.factor != 1.0}"


def one_hot_lookup(tokens: Tensor, table: Tensor) -> Tensor:
    """Look up tokens by a matrix product, one-hot rows times the table: slow, and the same.

    A1.
    """
    check_integers(tokens)
    vocabulary = len(table)
    _check_range(tokens, vocabulary)
    one_hot = F.one_hot(tokens.long(), vocabulary).to(table.dtype)  # (…, V)
    return one_hot @ table  # (…, D)


def bag_of_words(tokens: Tensor, vocabulary: int) -> Tensor:
    """Count how often each token occurs, regardless of order: the sum of the one-hot rows.

    A2. tokens (…, T) -> counts (…, V); counts @ table is the sum of the token vectors.
    """
    check_integers(tokens)
    if tokens.dim() == 0:
        raise ValueError("tokens must be (…, length), got a single number")
    _check_range(tokens, vocabulary)
    tokens = tokens.long()
    counts = tokens.new_zeros(*tokens.shape[:-1], vocabulary)  # (…, V)
    return counts.scatter_add_(-1, tokens, torch.ones_like(tokens))


def check_integers(tokens: Tensor) -> None:
    if tokens.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"tokens must be torch.long or torch.int, got {tokens.dtype}")


def _check_range(tokens: Tensor, vocabulary: int) -> None:
    if tokens.numel() and not (int(tokens.min()) >= 0 and int(tokens.max()) < vocabulary):
        raise ValueError(
            f"tokens must lie in 0..{vocabulary - 1}, the rows of the table, "
            f"got {int(tokens.min())}..{int(tokens.max())}"
        )
