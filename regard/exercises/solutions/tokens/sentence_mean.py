"""Solution of sentence-mean."""

from torch import Tensor


def sentence_vectors(X: Tensor, mask: Tensor) -> Tensor:
    """Token vectors X (B, n, d), mask (B, n), True at real tokens; return a vector per sentence (B, d)."""
    total = X.masked_fill(~mask[:, :, None], 0.0).sum(dim=1)
    return total / mask.sum(dim=1, keepdim=True)
