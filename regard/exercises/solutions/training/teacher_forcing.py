"""Solution of teacher-forcing."""

from torch import Tensor


def inputs_and_labels(target: Tensor) -> tuple[Tensor, Tensor]:
    """Target (B, n), each row start, words, end, padding; return the decoder's inputs and labels (B, n - 1)."""
    return target[:, :-1], target[:, 1:]
