"""Solution of encoder-block."""

from collections.abc import Callable

from torch import Tensor

Layer = Callable[[Tensor], Tensor]


def encoder_block(X: Tensor, attention: Layer, feed_forward: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    """X (n, d), and four functions that map (n, d) to (n, d); return the output of the block (n, d)."""
    U = norm_1(attention(X) + X)
    return norm_2(feed_forward(U) + U)
