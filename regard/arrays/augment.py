"""Small changes of images in training, so that a model sees more than there is.

B images   C channels   H height   W width
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.text.batches.batch import on_device
from regard.text.random_streams import random_keys

# Random streams, after that of the order of arrays.
ROWS, COLUMNS, MIRROR, ERASE, ERASED_ROWS, ERASED_COLUMNS, GREY = range(10, 17)
SHARES = 2**16  # steps in which a share of the images is counted

Draw = Callable[[int, int], Tensor]  # from a stream and a count to numbers below the count, (B,)


def changed_images(
    images: Tensor,
    ids: NDArray[np.int64],
    stream: tuple[int, int],
    *,
    total: int,
    shift: int = 0,
    flip: bool = False,
    erase: float = 0.0,
) -> Tensor:
    """Move images of bytes (B, C, H, W), mirror about half of them, and erase a part of a share of them.

    What is drawn for an image depends on its number among `total` and the stream (seed, epoch), not on its batch.
    """

    def draw(purpose: int, count: int) -> Tensor:
        numbers = random_keys(total, *stream, purpose)[ids] % np.uint64(count)
        return on_device(torch.from_numpy(numbers.astype(np.int64)), images.device)

    if shift or flip:
        images = shifted_and_flipped(images, draw, shift=shift, flip=flip)
    return partly_erased(images, draw, share=erase) if erase else images


def shifted_and_flipped(images: Tensor, draw: Draw, *, shift: int, flip: bool) -> Tensor:
    """Move images by up to `shift` pixels each way, and mirror about half of them if `flip` is true.

    Pixels that move in repeat the edge.
    """
    batch, _, height, width = images.shape
    device = images.device
    rows = torch.arange(height, device=device) + draw(ROWS, 2 * shift + 1)[:, None] - shift  # (B, H)
    columns = torch.arange(width, device=device) + draw(COLUMNS, 2 * shift + 1)[:, None] - shift  # (B, W)
    if flip:
        columns = torch.where(draw(MIRROR, 2)[:, None] == 1, width - 1 - columns, columns)
    rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    numbers = torch.arange(batch, device=device)[:, None, None]
    # Indexing puts the channels last: (B, H, W, C).
    return images.movedim(1, -1)[numbers, rows[:, :, None], columns[:, None]].movedim(-1, 1)


def partly_erased(images: Tensor, draw: Draw, *, share: float) -> Tensor:
    """Cover a rectangle of a share of the images with one grey; Zhong et al. 2020, "Random Erasing".

    Its sides are up to half of those of the image, and it may reach over the edge.
    """
    height, width = images.shape[2:]
    rows = _covered(draw, ERASED_ROWS, height, images.device)  # (B, H)
    columns = _covered(draw, ERASED_COLUMNS, width, images.device)  # (B, W)
    chosen = draw(ERASE, SHARES) < share * SHARES  # (B,)
    covered = (chosen[:, None, None] & rows[:, :, None] & columns[:, None])[:, None]  # (B, 1, H, W)
    return torch.where(covered, draw(GREY, 256).to(images.dtype)[:, None, None, None], images)


def _covered(draw: Draw, purpose: int, side: int, device: torch.device) -> Tensor:
    """Return which rows or columns of each image a rectangle covers: up to half of them, around any of them."""
    drawn = draw(purpose, side * max(1, side // 2))
    middle, length = drawn % side, 1 + drawn // side
    first = middle - length // 2
    places = torch.arange(side, device=device)
    return (places >= first[:, None]) & (places < (first + length)[:, None])
