"""Solution of softmax."""

import torch
from torch import Tensor


def softmax(scores: Tensor) -> Tensor:
    """Scores (…, n); return weights (…, n), each row a distribution over its n keys."""
    largest = scores.max(dim=-1, keepdim=True).values
    powers = torch.exp(scores - largest)  # exp(s - c) / sum exp(s - c) = exp(s) / sum exp(s)
    return powers / powers.sum(dim=-1, keepdim=True)
