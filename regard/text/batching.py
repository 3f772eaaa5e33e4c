"""Sentences of numbers to batches: which go together, in which order, and as which tensors.

B sentences of a batch   n longest source   m longest target and its end token
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import UsageError
from regard.text.randomness import random_keys
from regard.text.special import PAD

ORDER, BATCHES = range(2)  # random numbers of the sampler, each with a stream of its own


@dataclass(frozen=True)
class Batch:
    """One batch, as tensors padded on the right."""

    ids: list[int]  # rows of the corpus, or windows of a language model's text
    source: Tensor | None  # (B, n), with END; None for language models
    inputs: Tensor  # (B, m): what the decoder reads
    labels: Tensor  # (B, m): what it shall write, moved by one; PAD where nothing is predicted
    tokens: int  # labels that are not PAD

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        source = None if self.source is None else self.source.to(device, non_blocking=True)
        inputs, labels = (one.to(device, non_blocking=True) for one in (self.inputs, self.labels))
        return replace(self, source=source, inputs=inputs, labels=labels)


class Rows:
    """Many sentences of numbers in one array: a tenth of the memory of lists, and batches are cut out fast."""

    def __init__(self, sentences: Iterable[Sequence[int]]) -> None:
        flat, lengths = array("i"), array("q")
        for sentence in sentences:
            flat.extend(sentence)
            lengths.append(len(sentence))
        self.flat, self.lengths = np.array(flat, np.int32), np.array(lengths, np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> list[int]:
        return self.flat[self.starts[i] : self.starts[i] + self.lengths[i]].tolist()

    def padded(self, ids: Sequence[int], *, before: Sequence[int] = (), after: Sequence[int] = ()) -> Tensor:
        """The sentences `ids`, each between the same few tokens, as (B, longest)."""
        lengths, starts = self.lengths[ids], self.starts[ids]
        lead = len(before)
        out = np.full((len(lengths), lead + int(lengths.max(initial=0)) + len(after)), PAD, np.int64)
        column = np.arange(out.shape[1]) - lead
        inside = (column >= 0) & (column < lengths[:, None])
        out[inside] = self.flat[(starts[:, None] + column)[inside]]
        out[:, :lead] = before
        for i, token in enumerate(after):
            out[np.arange(len(lengths)), lead + lengths + i] = token
        return torch.from_numpy(out)


class Sampler:
    """Which samples go together into a batch, and in which order: a function of (seed, epoch).

    `lengths` are (N,), or (N, 2) for pairs: source and target with their end tokens. A batch of rows x longest, over
    both sides, has at most `batch_tokens` cells, so samples of similar length go together: they are sorted by the
    longer side, then by how much longer it is. What is equal comes in random order, and so do the batches. Without
    `shuffle` every epoch is the same, shortest first.
    """

    def __init__(
        self, lengths: Sequence[int] | NDArray[np.int64], *, batch_tokens: int, seed: int, shuffle: bool = True
    ) -> None:
        sides = np.asarray(lengths, np.int64)
        self.sides = sides[:, None] if sides.ndim == 1 else sides
        self.lengths = self.sides.max(axis=1)
        self.batch_tokens, self.seed, self.shuffle = batch_tokens, seed, shuffle
        if len(self.lengths) and self.lengths.max() > batch_tokens:
            i = int(self.lengths.argmax())
            raise UsageError(f"sample {i} has {self.lengths[i]} tokens, and a batch may have {batch_tokens} only")

    def __len__(self) -> int:
        return len(self.lengths)

    def batches(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch, as sample numbers. Every sample is in one of them."""
        if not len(self):
            return []
        ties = random_keys(len(self), self.seed, epoch, ORDER) if self.shuffle else np.arange(len(self))
        leaning = self.sides[:, 0] - self.sides[:, -1]
        leaning = np.where(self.lengths % 2, leaning, -leaning)  # back and forth, so that a batch over two lengths fits
        order = np.lexsort((ties, leaning, self.lengths))
        cuts, first = [], 0
        for i, longest in enumerate(self.lengths[order].tolist()):
            if (i - first + 1) * longest > self.batch_tokens:
                cuts.append(i)
                first = i
        batches = [batch.tolist() for batch in np.split(order, cuts)]
        if self.shuffle:
            batches = [batches[i] for i in np.argsort(random_keys(len(batches), self.seed, epoch, BATCHES))]
        return batches

    @cached_property
    def padding(self) -> float:
        """The share of the cells of all batches that are padding; epochs differ little, this is the first."""
        cells = sum(len(batch) * int(self.sides[batch].max(axis=0).sum()) for batch in self.batches(0))
        return 1 - int(self.sides.sum()) / cells if cells else 0.0


def batches_from(batches: list[list[int]], start: int) -> list[list[int]]:
    """What is left of an epoch's batches when `start` samples are consumed."""
    done = 0
    for i, batch in enumerate(batches):
        if done == start:
            return batches[i:]
        done += len(batch)
    if done == start:
        return []
    raise UsageError(
        f"{start} samples consumed is not at the end of a batch of this epoch: "
        "the data, the seed or the batch size changed since"
    )
