"""Batches of arrays: images with their classes, and windows of a series.

All samples of a data set have the same shape, so batches need no padding. The content of a batch is a function of
(seed, epoch, sample id), so a resumed run sees the same batches.

    B samples of a batch   C channels of an image, or columns of a series   H height   W width
    L points in time that are read   F points that are forecast
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.arrays.augment import MIXTURES, PARTNER, changed_images, drawing
from regard.arrays.images import Images
from regard.arrays.series import Series
from regard.errors import DataError, UsageError
from regard.text.batches.batch import Batch, batches_from, on_device
from regard.text.random_streams import random_keys

ORDER = 9  # random stream of the order of the samples, after those of texts


class ArrayData(ABC):
    """Samples of equal shape, in random order, a new one in each epoch; without `shuffle` always in the same order.

    A sample counts `row_tokens` tokens, and a batch has at most `batch_tokens` of them.
    """

    padding: ClassVar[float] = 0.0

    def __init__(self, *, batch_tokens: int, row_tokens: int, seed: int, shuffle: bool) -> None:
        self.rows = batch_tokens // row_tokens  # of a batch
        if not self.rows:
            raise UsageError(
                f"a sample has {row_tokens} tokens, but a batch has at most batch_tokens={batch_tokens}: raise it"
            )
        self.row_tokens, self.seed, self.shuffle = row_tokens, seed, shuffle
        self.where = "in main memory"
        self.move("cpu")

    @property
    @abstractmethod
    def arrays(self) -> tuple[NDArray, ...]:
        """The arrays that batches are made from."""

    @abstractmethod
    def tensors(self, ids: Sequence[int], epoch: int) -> tuple[Tensor, Tensor]:
        """Return the inputs of these samples, and what is to be predicted."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of samples."""

    @abstractmethod
    def location(self, i: int, epoch: int) -> str:
        """Name a sample in messages."""

    @property
    def one_shape(self) -> bool:
        """Whether all batches have the same shape."""
        return len(self) % self.rows == 0

    @property
    def tokens(self) -> int:
        """The number of tokens of all samples."""
        return len(self) * self.row_tokens

    @property
    def size(self) -> int:
        """The bytes of the arrays on a device."""
        return sum(array.nbytes for array in self.arrays)

    def move(self, device: torch.device | str) -> None:
        """Move the arrays to a device, and make batches there."""
        self.device = torch.device(device)
        self._tensors = tuple(on_device(torch.from_numpy(array), self.device) for array in self.arrays)

    def plan(self, epoch: int) -> list[list[int]]:
        """Return the batches of an epoch over all processes, as numbers of samples."""
        order = np.argsort(random_keys(len(self), self.seed, epoch, ORDER)) if self.shuffle else np.arange(len(self))
        return [order[start : start + self.rows].tolist() for start in range(0, len(order), self.rows)]

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the remaining batches of an epoch after all processes together have consumed `start` of its samples.

        Process `rank` of `world` gets its share of each batch: every world-th sample.
        """
        for ids in batches_from(self.plan(epoch), start):
            yield self._share(ids, epoch, rank, world)

    def collate(self, ids: Sequence[int], epoch: int) -> Batch:
        """Return these samples as a batch."""
        return self._share(list(ids), epoch, 0, 1)

    def _share(self, whole: list[int], epoch: int, rank: int, world: int) -> Batch:
        """Return one process's share of these samples. Its shape says how many they are, so a step can be captured."""
        ids = whole[rank::world]
        source, labels = self.tensors(ids, epoch)
        return Batch(
            ids,
            source,
            labels,
            labels,
            len(ids) * self.row_tokens,
            global_ids=whole,
            global_tokens=len(whole) * self.row_tokens,
            fixed=True,
        )

    def _on_device(self, numbers: NDArray) -> Tensor:
        return on_device(torch.from_numpy(numbers), self.device)


class ImageData(ArrayData):
    """Images (B, C, H, W) and the number of the class of each, (B, 1).

    In training, an image is moved by up to `shift` pixels, with `flip` half of them are mirrored, and a part of a share
    `erase` of them is covered. With a `mix` of MIXTURES, each is then mixed with any other image, and has two classes,
    (B, 3): its own, that of the other image, and the weight of its own in steps of 1 / SHARES.
    """

    def __init__(
        self,
        images: Images,
        classes: Sequence[int],
        *,
        batch_tokens: int,
        row_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        shift: int = 0,
        flip: bool = False,
        erase: float = 0.0,
        mix: str = "none",
    ) -> None:
        self.images, self.shift, self.flip, self.erase, self.mix = images, shift, flip, erase, mix
        self.classes = np.array(classes, np.int64)
        super().__init__(batch_tokens=batch_tokens, row_tokens=row_tokens, seed=seed, shuffle=shuffle)

    @property
    def arrays(self) -> tuple[NDArray, ...]:
        return self.images.pixels, self.classes

    def __len__(self) -> int:
        return len(self.images)

    def location(self, i: int, epoch: int) -> str:
        return self.images.location(i)

    def tensors(self, ids: Sequence[int], epoch: int) -> tuple[Tensor, Tensor]:
        rows, classes = self._on_device(np.array(ids, np.int64)), self._tensors[1]
        images, labels = self._changed(rows, epoch), classes[rows, None]
        if self.mix == "none":
            return images, labels
        draw = drawing(rows, (self.seed, epoch), total=len(self))
        others = draw(PARTNER, len(self))
        images, weight = MIXTURES[self.mix](images, self._changed(others, epoch), draw)
        return images, torch.cat([labels, classes[others, None], weight[:, None]], dim=1)

    def _changed(self, rows: Tensor, epoch: int) -> Tensor:
        """Return these images as training changes them, (B, C, H, W)."""
        draw = drawing(rows, (self.seed, epoch), total=len(self))
        return changed_images(self._tensors[0][rows], draw, shift=self.shift, flip=self.flip, erase=self.erase)


class SeriesData(ArrayData):
    """Windows of a series on its scale: `lookback` points (B, C, L) and the `horizon` points after them (B, C, F)."""

    def __init__(
        self,
        series: Series,
        *,
        lookback: int,
        horizon: int,
        batch_tokens: int,
        row_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        self.series, self.lookback, self.horizon = series, lookback, horizon
        if len(self) < 1:
            raise DataError(
                f"{series.report.files[0]}: {len(series):,} rows are too few for a window of {lookback} rows and "
                f"{horizon} to forecast: give a longer series, or lower model.lookback or model.horizon"
            )
        self.values = series.standardised.T.astype(np.float32).copy()  # (C, T)
        super().__init__(batch_tokens=batch_tokens, row_tokens=row_tokens, seed=seed, shuffle=shuffle)

    @property
    def arrays(self) -> tuple[NDArray, ...]:
        return (self.values,)

    def __len__(self) -> int:
        return max(0, len(self.series) - self.lookback - self.horizon + 1)

    def location(self, i: int, epoch: int) -> str:
        return self.series.location(i)

    def tensors(self, ids: Sequence[int], epoch: int) -> tuple[Tensor, Tensor]:
        (values,) = self._tensors
        starts = self._on_device(np.array(ids, np.int64))
        points = starts[:, None] + torch.arange(self.lookback + self.horizon, device=self.device)  # (B, L + F)
        windows = values[:, points].transpose(0, 1)  # (B, C, L + F)
        return windows[..., : self.lookback], windows[..., self.lookback :]
