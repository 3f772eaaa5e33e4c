"""Batches of images or videos with the tokens of their captions.

All batches have the same shape, that of the longest caption, so a training step can be captured.

    B samples of a batch   T frames   C channels   H height   W width   m tokens of the longest caption, with END
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.arrays.batches import ArrayData
from regard.arrays.captions import CaptionedImages
from regard.text.batches.batch import Batch
from regard.text.tokenizers.special_tokens import END, PAD, START


class CaptionData(ArrayData):
    """Frames (B, T, C, H, W), and captions (B, m): START and the tokens as inputs, the tokens and END as labels."""

    def __init__(
        self,
        images: CaptionedImages,
        captions: Sequence[Sequence[int]],
        *,
        batch_tokens: int,
        row_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        self.images = images
        self.lengths = np.array([len(caption) + 1 for caption in captions], np.int64)
        self.labels = np.full((len(captions), int(self.lengths.max())), PAD, np.int64)  # (N, m)
        for row, caption in zip(self.labels, captions, strict=True):
            row[: len(caption) + 1] = [*caption, END]
        super().__init__(batch_tokens=batch_tokens, row_tokens=row_tokens, seed=seed, shuffle=shuffle)

    @property
    def arrays(self) -> tuple[NDArray, ...]:
        return self.images.pixels, self.labels

    def __len__(self) -> int:
        return len(self.images)

    def location(self, i: int, epoch: int) -> str:
        return self.images.location(i)

    def tensors(self, ids: Sequence[int], epoch: int) -> tuple[Tensor, Tensor]:
        rows, (pixels, labels) = self._on_device(np.array(ids, np.int64)), self._tensors
        return pixels[rows], labels[rows]

    def _share(self, whole: list[int], epoch: int, rank: int, world: int) -> Batch:
        ids = whole[rank::world]
        frames, labels = self.tensors(ids, epoch)
        starts = labels.new_full((len(labels), 1), START)
        inputs = torch.cat([starts, labels[:, :-1]], dim=1)
        return Batch(
            ids,
            frames,
            torch.where(inputs == END, PAD, inputs),
            labels,
            int(self.lengths[ids].sum()),
            global_ids=whole,
            global_tokens=int(self.lengths[whole].sum()),
            fixed=True,
        )
