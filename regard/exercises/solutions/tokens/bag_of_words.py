"""Solution of bag-of-words."""

from torch import Tensor
from torch.nn import functional as F


def bag_of_words(ids: Tensor, size: int, pad: int) -> Tensor:
    """Texts as word numbers (B, n), padded with `pad`; return how often each of `size` words occurs (B, size)."""
    counts = F.one_hot(ids, size).sum(dim=1)  # (B, n, size) → (B, size)
    counts[:, pad] = 0
    return counts
