"""Solution of padding-mask."""

import torch
from torch import Tensor


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """Lengths (B) of the sentences, padded to `size`; return a mask (B, 1, 1, size), True where a query may attend."""
    places = torch.arange(size)
    return places[None, None, None, :] < lengths[:, None, None, None]
