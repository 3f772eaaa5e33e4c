"""Solution of wrap-and-pad."""

import torch
from torch import Tensor


def make_batch(sentences: list[list[int]], start: int, end: int, pad: int) -> tuple[Tensor, Tensor]:
    """Return the padded batch (B, n), and a mask (B, n) that is True at real tokens."""
    rows = [[start, *sentence, end] for sentence in sentences]
    size = max(len(row) for row in rows)
    ids = torch.tensor([row + [pad] * (size - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(size) < lengths[:, None]
    return ids, mask
