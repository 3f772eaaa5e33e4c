"""Small changes of images in training, so that a model sees more than there is.

B images   C channels   H height   W width
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.text.batches.batch import on_device
from regard.text.random_streams import random_keys

ROWS, COLUMNS, MIRROR = range(10, 13)  # random streams, after that of the order of arrays


def shifted_and_flipped(
    images: Tensor, ids: NDArray[np.int64], stream: tuple[int, int], *, total: int, shift: int, flip: bool
) -> Tensor:
    """Move images (B, C, H, W) by up to `shift` pixels each way, and mirror about half of them if `flip` is true.

    What is drawn for an image depends on its number among `total` and the stream (seed, epoch), not on its batch.
    Pixels that move in repeat the edge.
    """
    batch, _, height, width = images.shape
    device = images.device

    def draw(purpose: int, count: int) -> Tensor:
        numbers = random_keys(total, *stream, purpose)[ids] % np.uint64(count)
        return on_device(torch.from_numpy(numbers.astype(np.int64)), device)

    rows = torch.arange(height, device=device) + draw(ROWS, 2 * shift + 1)[:, None] - shift  # (B, H)
    columns = torch.arange(width, device=device) + draw(COLUMNS, 2 * shift + 1)[:, None] - shift  # (B, W)
    if flip:
        columns = torch.where(draw(MIRROR, 2)[:, None] == 1, width - 1 - columns, columns)
    rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    numbers = torch.arange(batch, device=device)[:, None, None]
    # Indexing puts the channels last: (B, H, W, C).
    return images.movedim(1, -1)[numbers, rows[:, :, None], columns[:, None]].movedim(-1, 1)
