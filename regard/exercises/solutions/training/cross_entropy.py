"""Solution of cross-entropy."""

import torch
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor, pad: int) -> Tensor:
    """Logits (B, n, V), labels (B, n), padded with `pad`; return the mean loss of the real tokens, one number."""
    logp = torch.log_softmax(logits, dim=-1)
    loss = -logp.gather(-1, labels[:, :, None])[:, :, 0]  # (B, n)
    real = labels != pad
    return loss[real].mean()
