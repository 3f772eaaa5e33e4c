"""Solution of split-heads."""

from torch import Tensor


def split_and_merge(X: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """X (B, n, d); return the heads (B, heads, n, d / heads), and the heads merged again to (B, n, d)."""
    B, n, d = X.shape
    apart = X.reshape(B, n, heads, d // heads).transpose(1, 2)  # (B, heads, n, d_k)
    merged = apart.transpose(1, 2).reshape(B, n, d)
    return apart, merged
