"""Solution of copy-gate."""

from torch import Tensor


def with_copying(generate: Tensor, attention: Tensor, source: Tensor, gate: float) -> Tensor:
    """Distribution over the vocabulary (V), attention (n) to the source words (n, numbers); return the mixture (V)."""
    mixture = gate * generate
    return mixture.index_add(0, source, (1 - gate) * attention)  # adds up where a word occurs twice
