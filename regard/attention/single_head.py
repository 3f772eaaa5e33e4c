"""Attention with one head: content, context and key-value attention.

D2, D3, D4. They differ only in the origin of the queries.

    B batch   m queries   n keys   values (B, n, dim)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.attention.dispatch import attend
from regard.attention.masks.algebra import Mask
from regard.attention.scores import Score, ScoreModule


class KeyValueAttention(nn.Module):
    """Look up values by comparing queries with keys: a differentiable database; D4.

    With `key` = `value` and queries that are data (a decoder's state) it is context attention (D3), with an
    AdditiveScore Bahdanau's (D14), with a DotScore or BilinearScore Luong's (D15).
    """

    returns_weights = True

    def __init__(self, *, score: ScoreModule, dropout: float = 0.0) -> None:
        super().__init__()
        if not (hasattr(score, "keys") and hasattr(score, "compare")):
            raise TypeError(f"score {type(score).__name__} needs the methods keys and compare, as regard.DotScore has")
        self.score = score  # a module, so its parameters become this one's
        self.dropout = dropout

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"key-value-attention"})

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        prepared: bool = False,
        score: Score | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, m, query_dim), (B, n, key_dim), (B, n, dim) -> (B, m, dim), with `return_weights` also (B, m, n).

        `prepared`: `key` is the result of `keys`, computed once for a whole sentence. A `score` replaces that of the
        layer.
        """
        if prepared and value is None:
            raise ValueError("prepared keys cannot replace the values: pass value=")
        value = key if value is None else value
        if score is None:
            score = self.score.compare if prepared else self.score
        dropout = self.dropout if self.training else 0.0
        if return_weights:
            return attend(query, key, value, mask=mask, score=score, dropout=dropout, return_weights=True)
        return attend(query, key, value, mask=mask, score=score, dropout=dropout)

    def keys(self, key: Tensor) -> Tensor:
        """Compute the part of the score that does not depend on the query, (B, n, ·)."""
        return self.score.keys(key)


class ContentAttention(nn.Module):
    """m learned queries theta_j attend to the values; the parameters fix m; D2.

    With one query it is learned pooling of a sentence (A3).
    """

    returns_weights = True

    def __init__(self, *, outputs: int, dim: int, score: Score | str = "scaled") -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.randn(outputs, dim) * dim**-0.5)
        self.score = score

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"content-attention"})

    def forward(
        self, value: Tensor, *, mask: Mask | Tensor | None = None, return_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, n, dim) -> (B, outputs, dim), with `return_weights` also (B, outputs, n)."""
        theta = self.theta.expand(value.shape[0], -1, -1)
        if return_weights:
            return attend(theta, value, value, mask=mask, score=self.score, return_weights=True)
        return attend(theta, value, value, mask=mask, score=self.score)
