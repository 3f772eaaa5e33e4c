"""Solution of nucleus."""

import torch
from torch import Tensor


def nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Probabilities (V) of the next token; return those to sample from (V), zero outside the nucleus."""
    ranked, tokens = probabilities.sort(descending=True)
    before = ranked.cumsum(dim=0) - ranked  # the sum of all more probable tokens
    kept = torch.where(before < top_p, ranked, 0.0)
    result = torch.zeros_like(probabilities)
    result[tokens] = kept
    return result / result.sum()
