"""Solution of windows."""

from torch import Tensor


def windows(text: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Text (N) of token numbers; return inputs and labels (B, size): windows one after the other, the rest dropped."""
    count = (len(text) - 1) // size  # the last label needs one token more
    inputs = text[: count * size].reshape(count, size)
    labels = text[1 : count * size + 1].reshape(count, size)
    return inputs, labels
