"""Batches of token sequences: which samples go together, in which order, and as which tensors.

B sentences of a batch   n longest source   m longest target with its end token
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError
from regard.machine.lazy_torch import torch
from regard.text.random_streams import random_keys
from regard.text.tokenizers.special_tokens import DEFAULT, PAD, SpecialTokens

if TYPE_CHECKING:
    from torch import Tensor

ORDER, BATCHES = range(2)  # random streams of the sampler


@dataclass(frozen=True)
class Batch:
    """One batch, as tensors padded on the right.

    With several processes, this is one process's share of the batch of a training step, and may be empty;
    `global_ids` and `global_tokens` are those of all shares together.
    """

    ids: list[int]  # rows of the corpus, or windows of a language model's text
    source: Tensor | None  # (B, n), with END; None for language models
    inputs: Tensor  # (B, m): the decoder's input
    labels: Tensor  # (B, m): the tokens to predict, the inputs shifted by one; `ignored` where nothing is predicted
    tokens: int  # labels that are not `ignored`
    global_ids: list[int] = None  # type: ignore[assignment]  # default: ids
    global_tokens: int = None  # type: ignore[assignment]  # default: tokens
    support: Tensor | None = None  # (B, 2): the source tokens, from the first to before the last, that labels come from
    special: SpecialTokens = DEFAULT
    ignored: int = PAD
    fixed: bool = False  # the shape of a length bucket: rows after those of `ids` and the last columns may be padding

    def __post_init__(self) -> None:
        if self.global_ids is None:
            object.__setattr__(self, "global_ids", self.ids)
        if self.global_tokens is None:
            object.__setattr__(self, "global_tokens", self.tokens)

    def to(self, device: torch.device | str) -> Batch:
        """Return the same batch on another device, copied asynchronously."""
        source = None if self.source is None else on_device(self.source, torch.device(device))
        inputs, labels = (on_device(tensor, torch.device(device)) for tensor in (self.inputs, self.labels))
        support = None if self.support is None else on_device(self.support, torch.device(device))
        return replace(self, source=source, inputs=inputs, labels=labels, support=support)


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on that device; a GPU copies asynchronously, from pinned memory."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


class TokenRows:
    """Many token sequences in one array: a tenth of the memory of lists, and fast to cut batches from.

    `flat` contains the tokens of all rows, concatenated; `lengths` the number of tokens of each row.
    """

    def __init__(self, flat: NDArray[np.int32], lengths: NDArray[np.int64], device: torch.device | str = "cpu") -> None:
        self.flat, self.lengths = flat, lengths
        self.starts = np.cumsum(lengths) - lengths
        # The same arrays on the device that makes the batches. Indexing needs at least one token.
        tokens = flat if len(flat) else np.zeros(1, np.int32)
        self._tokens, self._starts, self._lengths = (
            on_device(torch.from_numpy(array), torch.device(device)) for array in (tokens, self.starts, lengths)
        )

    @classmethod
    def of(cls, sentences: Iterable[Sequence[int]]) -> TokenRows:
        """Make rows of sequences of tokens."""
        flat, lengths = array("i"), array("q")
        for sentence in sentences:
            flat.extend(sentence)
            lengths.append(len(sentence))
        return cls(np.array(flat, np.int32), np.array(lengths, np.int64))

    def to(self, device: torch.device | str) -> TokenRows:
        """Return the same rows, for batches on that device."""
        return self if torch.device(device) == self._tokens.device else TokenRows(self.flat, self.lengths, device)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> list[int]:
        return self.flat[self.starts[i] : self.starts[i] + self.lengths[i]].tolist()

    def __iter__(self) -> Iterator[list[int]]:
        return (self[i] for i in range(len(self)))

    def padded(
        self,
        ids: Sequence[int],
        *,
        before: Sequence[int] = (),
        after: Sequence[int] = (),
        width: int | None = None,
        pad: int = PAD,
    ) -> Tensor:
        """Return the rows `ids`, each between the same few tokens, as (B, width); by default the longest fits."""
        if width is None:
            width = len(before) + int(self.lengths[ids].max(initial=0)) + len(after)
        rows = on_device(torch.tensor(ids, dtype=torch.long), self._tokens.device)
        starts, lengths = self._starts[rows], self._lengths[rows]
        return padded_slices(self._tokens, starts, lengths, width, before=before, after=after, pad=pad)


def padded_slices(
    flat: Tensor,
    starts: Tensor,
    lengths: Tensor,
    width: int,
    *,
    before: Sequence[int] = (),
    after: Sequence[int] = (),
    pad: int = PAD,
) -> Tensor:
    """Return slices of a flat tensor, each between the same few tokens, as (B, width), without synchronization."""
    column = torch.arange(width, device=flat.device) - len(before)
    inside = column < lengths[:, None]  # (B, width); the columns of `before` are overwritten below
    out = torch.where(inside, flat[(starts[:, None] + column) * inside], pad).long()
    for i, token in enumerate(before):
        out[:, i] = token
    for i, token in enumerate(after):
        out = torch.where(column == lengths[:, None] + i, token, out)
    return out


class Sampler:
    """Decides which samples form a batch, and in which order: a function of (seed, epoch).

    `lengths` are (N,), or (N, 2) for pairs: source and target with their end tokens. The number of rows times the
    longest side of a batch is at most `batch_tokens`, so samples of similar length go together: they are sorted by the
    longer side, then by the difference of both. Samples with equal lengths are in random order, and so are the batches.
    Without `shuffle`, every epoch is the same, shortest first. With `buckets`, both sides of a batch are padded to the
    smallest bucket length that fits, and that length determines the number of rows.
    """

    def __init__(
        self,
        lengths: Sequence[int] | NDArray[np.int64],
        *,
        batch_tokens: int,
        seed: int,
        shuffle: bool = True,
        buckets: Sequence[int] | None = None,
    ) -> None:
        sides = np.asarray(lengths, np.int64)
        self.sides = sides[:, None] if sides.ndim == 1 else sides
        self.buckets = None if buckets is None else np.asarray(buckets)
        self.lengths = self.sides.max(axis=1)
        if self.buckets is not None:
            self.lengths = self.buckets[np.searchsorted(self.buckets, self.lengths)]
        self.batch_tokens, self.seed, self.shuffle = batch_tokens, seed, shuffle
        if len(self.lengths) and self.lengths.max() > batch_tokens:
            i = int(self.lengths.argmax())
            raise UsageError(
                f"sample {i} has {self.lengths[i]} tokens, but a batch has at most batch_tokens={batch_tokens}: "
                "raise batch_tokens or drop the sample"
            )

    def __len__(self) -> int:
        return len(self.lengths)

    def batches(self, epoch: int) -> list[list[int]]:
        """Return the batches of an epoch as sample numbers. Every sample is in exactly one of them."""
        if not len(self):
            return []
        ties = random_keys(len(self), self.seed, epoch, ORDER) if self.shuffle else np.arange(len(self))
        difference = (self.sides[:, 0] - self.sides[:, -1]) * (self.buckets is None)
        # Ascending and descending in turn, so that neighbours in a batch that spans two lengths are similar.
        difference = np.where(self.lengths % 2, difference, -difference)
        order = np.lexsort((ties, difference, self.lengths))
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
        """The fraction of padding in all batches of the first epoch; other epochs differ little."""
        cells = sum(map(self._cells, self.batches(0)))
        return 1 - int(self.sides.sum()) / cells if cells else 0.0

    def _cells(self, batch: list[int]) -> int:
        if self.buckets is None:
            return len(batch) * int(self.sides[batch].max(axis=0).sum())
        longest = int(self.lengths[batch].max())
        return self.batch_tokens // longest * longest * self.sides.shape[1]


def batches_from(batches: list[list[int]], start: int) -> list[list[int]]:
    """Return the remaining batches of an epoch after `start` samples have been consumed."""
    consumed = 0
    for i, batch in enumerate(batches):
        if consumed == start:
            return batches[i:]
        consumed += len(batch)
    if consumed == start:
        return []
    raise UsageError(
        f"no batch of this epoch ends after {start} samples: the data, the seed or the batch size has changed since "
        "the run was saved"
    )
