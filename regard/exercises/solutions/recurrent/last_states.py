"""Solution of last-states."""

import torch
from torch import Tensor


def last_states(states: Tensor, lengths: Tensor) -> Tensor:
    """States (B, n, h) of padded sentences with these lengths (B); return the last state of each (B, h)."""
    sentences = torch.arange(len(lengths))
    return states[sentences, lengths - 1]
