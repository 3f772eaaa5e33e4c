"""Batches of recordings: log-mel frames, and the tokens of the transcripts.

The content of a batch is a function of (seed, epoch, sample id), so a resumed run sees the same batches. Frames count
as the tokens of a row.

    B samples of a batch   T frames   M bands   m tokens of the longest transcript with its end token
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.arrays.speech.augment import (
    MASKED_SECONDS,
    MAX_GAP,
    Augmentation,
    Strings,
    add_noise,
    draw_strings,
    mask_frames,
    play,
)
from regard.arrays.speech.mel import LogMel
from regard.arrays.speech.recordings import Recordings
from regard.errors import DataError
from regard.text.batches.batch import Batch, Sampler, TokenRows, batches_from, on_device
from regard.text.batches.prefetch import Epochs
from regard.text.tokenizers.special_tokens import END, START
from regard.text.tokenizers.tokenizer import Tokenizer


class SpeechEpoch(NamedTuple):
    """All samples as drawn for one epoch, and its batches."""

    strings: Strings
    targets: TokenRows
    sampler: Sampler
    plan: list[list[int]]


class SpeechData:
    """Recordings and their transcripts as batches; those of similar length go together.

    `augmentation` says how training changes the recordings; a validation part is only joined. Samples with more than
    `max_length` frames are left out.
    """

    one_shape = False

    def __init__(
        self,
        recordings: Recordings,
        tokenizer: Tokenizer,
        log_mel: LogMel,
        *,
        batch_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        augmentation: Augmentation | None = None,
        max_length: int | None = None,
    ) -> None:
        self.recordings, self.tokenizer, self.log_mel = recordings, tokenizer, log_mel
        self.batch_tokens, self.seed, self.shuffle = batch_tokens, seed, shuffle
        self.augmentation = augmentation or Augmentation()
        self.limit = min(batch_tokens, max_length or batch_tokens)
        self.sizes = np.array([len(samples) for samples in recordings.audio], np.int64)
        self.first = np.cumsum(self.sizes) - self.sizes
        self.samples = self._fitting()
        self.where = "in main memory"
        self.move("cpu")

    def _fitting(self) -> NDArray[np.int64]:
        """Return the recordings that are short enough on their own."""
        slowest = self.sizes / (1 - self.augmentation.speed)
        fits = np.asarray(self.log_mel.frames(slowest.astype(np.int64))) <= self.limit
        self.too_long = int((~fits).sum())
        if not fits.any():
            raise DataError(
                f"{self.recordings.location(0)}: this recording and all others ({len(self.sizes)} in all) have more "
                f"than {self.limit} frames: raise data.max_length or training.batch_tokens"
            )
        return np.flatnonzero(fits)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def padding(self) -> float:
        """The fraction of padding in all batches of the first epoch; other epochs differ little."""
        return self._epochs.get(0).sampler.padding

    @property
    def size(self) -> int:
        """The bytes of the recordings on a device."""
        return 4 * int(self.sizes.sum())

    @property
    def longest(self) -> int:
        """The frames of the longest sample of an epoch in which all recordings are joined."""
        how = self.augmentation
        return int(np.max(self.log_mel.frames(self._epoch(how.growth * how.joined).strings.total)))

    def move(self, device: torch.device | str) -> None:
        """Move the recordings to a device, and make batches there."""
        self.device = torch.device(device)
        self._sound = on_device(torch.from_numpy(np.concatenate(self.recordings.audio)), self.device)
        self._epochs = Epochs(self._epoch)

    def plan(self, epoch: int) -> list[list[int]]:
        """Return the batches of an epoch over all processes, as numbers of recordings."""
        return self._epochs.get(epoch).plan

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the remaining batches of an epoch after all processes together have consumed `start` of its samples.

        Process `rank` of `world` gets its share of each batch: every world-th sample.
        """
        current = self._epochs.get(epoch)
        for i, ids in enumerate(batches_from(current.plan, start)):
            if i == 1 and self.shuffle:
                self._epochs.start(epoch + 1)  # prefetch the next epoch
            yield self._share(current, ids, epoch, rank, world)

    def collate(self, ids: Sequence[int], epoch: int) -> Batch:
        """Return these recordings, as drawn for that epoch, as a batch."""
        return self._share(self._epochs.get(epoch), list(ids), epoch, 0, 1)

    def location(self, i: int, epoch: int) -> str:
        """Name a sample in messages."""
        return self.recordings.location(i)

    def _share(self, current: SpeechEpoch, whole: list[int], epoch: int, rank: int, world: int) -> Batch:
        """Return one process's share of these samples."""
        ids, lengths = whole[rank::world], current.targets.lengths[whole] + 1
        return Batch(
            ids,
            self._frames(current.strings, np.array(ids, np.int64), epoch),
            current.targets.padded(ids, before=[START]),
            current.targets.padded(ids, after=[END]),
            int(lengths[rank::world].sum()),
            global_ids=whole,
            global_tokens=int(lengths.sum()),
        )

    def _frames(self, strings: Strings, ids: NDArray[np.int64], epoch: int) -> Tensor:
        """Return the frames of these samples, (B, T, M)."""
        if not len(ids):  # the share of a process may be empty
            return torch.zeros(0, 1, self.log_mel.bands, device=self.device)
        how, stream, total = self.augmentation, (self.seed, epoch), len(self.sizes)
        sound = play(self._sound, self.first, strings, ids)
        lengths = torch.from_numpy(strings.total[ids]).to(self.device, non_blocking=True)
        if how.noise:
            sound = add_noise(sound, lengths, ids, total, how.noise, stream)
        frames = self.log_mel(sound, lengths)
        if not how.masks:
            return frames
        widest = round(MASKED_SECONDS * self.log_mel.rate / self.log_mel.hop)
        return mask_frames(frames, ids, total, how.masks, widest, stream)

    def _epoch(self, epoch: int) -> SpeechEpoch:
        """Draw the samples of an epoch; recordings are joined only as far as the limit allows."""
        stream, rate = (self.seed, epoch), self.log_mel.rate
        strings = draw_strings(self.sizes, rate, self.augmentation.at(epoch), stream, self.samples)
        fits = self.log_mel.frames(strings.starts + strings.lengths) <= self.limit  # (N, J)
        counts = np.minimum(strings.counts, np.maximum(1, np.argmin(np.pad(fits, ((0, 0), (0, 1))), axis=1)))
        used = np.arange(strings.parts.shape[1]) < counts[:, None]
        ends = np.where(used, strings.starts + strings.lengths, 0)
        strings = strings._replace(counts=counts, lengths=np.where(used, strings.lengths, 0), total=ends.max(axis=1))
        texts = self.recordings.texts
        joined = [
            " ".join(texts[i] for i in parts[:n]) for parts, n in zip(strings.parts.tolist(), counts, strict=True)
        ]
        targets = TokenRows.of(self.tokenizer.encode_all(joined)).to(self.device)
        rows = np.stack([self.log_mel.frames(strings.total), targets.lengths + 1], axis=1)
        sampler = Sampler(rows[self.samples], batch_tokens=self.batch_tokens, seed=self.seed, shuffle=self.shuffle)
        plan = [self.samples[batch].tolist() for batch in sampler.batches(epoch)]
        return SpeechEpoch(strings, targets, sampler, plan)


def longest_sample(recordings: Recordings, log_mel: LogMel, how: Augmentation, limit: int) -> int:
    """Return the frames of the longest sample that can be drawn, at most `limit`."""
    longest = max(map(len, recordings.audio)) / (1 - how.speed)
    joined = how.joined * longest + (how.joined - 1) * MAX_GAP * recordings.rate
    return min(limit, int(log_mel.frames(int(joined))))
