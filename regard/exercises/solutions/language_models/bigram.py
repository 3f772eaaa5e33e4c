"""Solution of bigram."""

from itertools import pairwise

import torch
from torch import Tensor


def bigram(text: list[int], size: int) -> Tensor:
    """Return the probabilities (size, size): row i is the distribution of the token after token i."""
    counts = torch.ones(size, size)
    for i, j in pairwise(text):
        counts[i, j] += 1
    return counts / counts.sum(dim=1, keepdim=True)
