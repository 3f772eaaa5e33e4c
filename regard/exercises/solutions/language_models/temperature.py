"""Solution of temperature."""

import torch
from torch import Tensor


def with_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Logits (V) and a temperature > 0; return the probabilities to sample from (V)."""
    return torch.softmax(logits / temperature, dim=-1)
