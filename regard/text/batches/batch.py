"""Sentences of numbers to batches: which go together, in which order, and as which tensors.

B sentences of a batch   n longest source   m longest target and its end token
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import UsageError
from regard.text.random_streams import random_keys
from regard.text.tokenizers.special_tokens import PAD

ORDER, BATCHES = range(2)  # random numbers of the sampler, each with a stream of its own


@dataclass(frozen=True)
class Batch:
    """One batch, as tensors padded on the right.

    With several processes it is this one's share of a batch that they take a step on together: `whole_ids` and
    `whole_tokens` are those of all shares. A share may have no rows at all.
    """

    ids: list[int]  # rows of the corpus, or windows of a language model's text
    source: Tensor | None  # (B, n), with END; None for language models
    inputs: Tensor  # (B, m): what the decoder reads
    labels: Tensor  # (B, m): what it shall write, moved by one; PAD where nothing is predicted
    tokens: int  # labels that are not PAD
    whole_ids: list[int] = None  # type: ignore[assignment]  # when not given, its own
    whole_tokens: int = None  # type: ignore[assignment]
    fixed: bool = False  # one of few shapes: rows after those of `ids` and columns at the end may be padding only

    def __post_init__(self) -> None:
        if self.whole_ids is None:
            object.__setattr__(self, "whole_ids", self.ids)
        if self.whole_tokens is None:
            object.__setattr__(self, "whole_tokens", self.tokens)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device; nobody waits for the copy."""
        source = None if self.source is None else on_device(self.source, torch.device(device))
        inputs, labels = (on_device(one, torch.device(device)) for one in (self.inputs, self.labels))
        return replace(self, source=source, inputs=inputs, labels=labels)


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on that device; a GPU copies by itself, and from memory that is pinned."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


class Rows:
    """Many sentences of numbers in one array: a tenth of the memory of lists, and batches are cut out fast.

    `flat` holds their tokens one after another, `lengths` how many each has.
    """

    def __init__(self, flat: NDArray[np.int32], lengths: NDArray[np.int64], device: torch.device | str = "cpu") -> None:
        self.flat, self.lengths = flat, lengths
        self.starts = np.cumsum(lengths) - lengths
        # The same where batches are made. No sentence may be all there is, and then nothing could be looked up.
        tokens = flat if len(flat) else np.zeros(1, np.int32)
        self._tokens, self._starts, self._lengths = (
            on_device(torch.from_numpy(one), torch.device(device)) for one in (tokens, self.starts, lengths)
        )

    @classmethod
    def of(cls, sentences: Iterable[Sequence[int]]) -> Rows:
        """The rows of these sentences."""
        flat, lengths = array("i"), array("q")
        for sentence in sentences:
            flat.extend(sentence)
            lengths.append(len(sentence))
        return cls(np.array(flat, np.int32), np.array(lengths, np.int64))

    def to(self, device: torch.device | str) -> Rows:
        """The same rows, for batches on that device."""
        return self if torch.device(device) == self._tokens.device else Rows(self.flat, self.lengths, device)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> list[int]:
        return self.flat[self.starts[i] : self.starts[i] + self.lengths[i]].tolist()

    def __iter__(self) -> Iterator[list[int]]:
        return (self[i] for i in range(len(self)))

    def padded(
        self, ids: Sequence[int], *, before: Sequence[int] = (), after: Sequence[int] = (), width: int | None = None
    ) -> Tensor:
        """The sentences `ids`, each between the same few tokens, as (B, width), as wide as the longest if not given."""
        if width is None:
            width = len(before) + int(self.lengths[ids].max(initial=0)) + len(after)
        chosen = on_device(torch.tensor(ids, dtype=torch.long), self._tokens.device)
        return cut_out(self._tokens, self._starts[chosen], self._lengths[chosen], width, before=before, after=after)


def cut_out(
    flat: Tensor, starts: Tensor, lengths: Tensor, width: int, *, before: Sequence[int] = (), after: Sequence[int] = ()
) -> Tensor:
    """Parts of a flat tensor, each between the same few tokens, as (B, width): on its device, and nobody waits."""
    column = torch.arange(width, device=flat.device) - len(before)
    inside = column < lengths[:, None]  # (B, width); what stands before the first token is written below
    out = torch.where(inside, flat[(starts[:, None] + column) * inside], PAD).long()
    for i, token in enumerate(before):
        out[:, i] = token
    for i, token in enumerate(after):
        out = torch.where(column == lengths[:, None] + i, token, out)
    return out


class Sampler:
    """Which samples go together into a batch, and in which order: a function of (seed, epoch).

    `lengths` are (N,), or (N, 2) for pairs: source and target with their end tokens. A batch of rows x longest, over
    both sides, has at most `batch_tokens` cells, so samples of similar length go together: they are sorted by the
    longer side, then by how much longer it is. What is equal comes in random order, and so do the batches. Without
    `shuffle` every epoch is the same, shortest first. With `rungs`, both sides of a batch are as long as the rung above
    its longest, and it has as many rows as go with that.
    """

    def __init__(
        self,
        lengths: Sequence[int] | NDArray[np.int64],
        *,
        batch_tokens: int,
        seed: int,
        shuffle: bool = True,
        rungs: Sequence[int] | None = None,
    ) -> None:
        sides = np.asarray(lengths, np.int64)
        self.sides = sides[:, None] if sides.ndim == 1 else sides
        self.rungs = None if rungs is None else np.asarray(rungs)
        self.lengths = self.sides.max(axis=1)
        if self.rungs is not None:
            self.lengths = self.rungs[np.searchsorted(self.rungs, self.lengths)]
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
        leaning = (self.sides[:, 0] - self.sides[:, -1]) * (self.rungs is None)
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
        cells = sum(map(self._cells, self.batches(0)))
        return 1 - int(self.sides.sum()) / cells if cells else 0.0

    def _cells(self, batch: list[int]) -> int:
        if self.rungs is None:
            return len(batch) * int(self.sides[batch].max(axis=0).sum())
        longest = int(self.lengths[batch].max())
        return self.batch_tokens // longest * longest * self.sides.shape[1]


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
