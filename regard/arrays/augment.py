"""Changes of images in training, so that a model sees more than there is.

B images   C channels   H height   W width
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from regard.text.batches.batch import on_device
from regard.text.random_streams import random_keys

# Random streams, after that of the order of arrays.
ROWS, COLUMNS, MIRROR, ERASE, ERASED_ROWS, ERASED_COLUMNS, GREY, PARTNER, WEIGHT, MIDDLE_ROW, MIDDLE_COLUMN = range(
    10, 21
)
SHARES = 2**16  # steps in which a share of the images, or of an image, is counted

Draw = Callable[[int, int], Tensor]  # from a stream and a count to numbers below the count, (B,)


def drawing(ids: Tensor, stream: tuple[int, int], *, total: int) -> Draw:
    """Return a function that draws numbers for images; they depend on an image's number among `total` and the stream.

    A stream is (seed, epoch). So what is drawn for an image does not depend on its batch.
    """
    return lambda purpose, count: _epoch_numbers(total, *stream, purpose, count, ids.device)[ids]


@lru_cache(maxsize=32)
def _epoch_numbers(total: int, seed: int, epoch: int, purpose: int, count: int, device: torch.device) -> Tensor:
    """Return a random number below `count` for every image, (total,)."""
    numbers = random_keys(total, seed, epoch, purpose) % np.uint64(count)
    return on_device(torch.from_numpy(numbers.astype(np.int64)), device)


def changed_images(images: Tensor, draw: Draw, *, shift: int = 0, flip: bool = False, erase: float = 0.0) -> Tensor:
    """Move images of bytes (B, C, H, W), mirror about half of them, and erase a part of a share of them."""
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


def blended(images: Tensor, others: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
    """Blend images with others; Zhang et al. 2018, "mixup", with alpha = 1.

    Return them with the weights of the first in steps of 1 / SHARES, (B,).
    """
    weight = draw(WEIGHT, SHARES + 1)
    share = weight.float()[:, None, None, None] / SHARES
    return (share * images + (1 - share) * others).round().to(images.dtype), weight


def patched(images: Tensor, others: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
    """Cover a rectangle of images by that of others; Yun et al. 2019, "CutMix", with alpha = 1.

    Return them with the share of each that is left, in steps of 1 / SHARES, (B,).
    """
    height, width = images.shape[2:]
    side = (1 - draw(WEIGHT, SHARES + 1).float() / SHARES).sqrt()  # of the rectangle, as a share of the image's
    rows, columns = (
        (torch.arange(length, device=images.device) - draw(purpose, length)[:, None]).abs() < side[:, None] * length / 2
        for purpose, length in ((MIDDLE_ROW, height), (MIDDLE_COLUMN, width))
    )  # (B, H), (B, W)
    covered = rows[:, :, None] & columns[:, None]  # (B, H, W)
    weight = ((~covered).float().mean((1, 2)) * SHARES).round().long()
    return torch.where(covered[:, None], others, images), weight


MIXTURES = {"mixup": blended, "cutmix": patched}


def _covered(draw: Draw, purpose: int, side: int, device: torch.device) -> Tensor:
    """Return which rows or columns of each image a rectangle covers: up to half of them, around any of them."""
    drawn = draw(purpose, side * max(1, side // 2))
    middle, length = drawn % side, 1 + drawn // side
    first = middle - length // 2
    places = torch.arange(side, device=device)
    return (places >= first[:, None]) & (places < (first + length)[:, None])
