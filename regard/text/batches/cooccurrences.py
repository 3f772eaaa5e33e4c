"""Batches for GloVe: the entries of the matrix X, which counts how often two words occur near each other.

Pennington et al. 2014, section 3.1; A2. A pair of words that are d words apart counts 1/d (section 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import DataError
from regard.text.batches.batch import Batch, batches_from, on_device
from regard.text.batches.encoded_texts import encoded_rows, tokens_fingerprint
from regard.text.files.corpus import Corpus
from regard.text.random_streams import random_keys
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS, UNKNOWN
from regard.text.tokenizers.tokenizer import Tokenizer

ORDER = 6  # random stream of the order of the entries


def count_cooccurrences(tokens: NDArray[np.int32], window: int, size: int) -> tuple[NDArray, NDArray]:
    """Return the entries (n, 2) of X that are not 0, both ways round, and their values (n,).

    Unknown words take their place but have no entries; other special tokens end a sentence.
    """
    sentences = np.cumsum((tokens < len(SPECIAL_TOKENS)) & (tokens != UNKNOWN))
    is_word = tokens >= len(SPECIAL_TOKENS)
    keys: NDArray = np.empty(0, np.int64)
    values: NDArray = np.empty(0)
    for distance in range(1, min(window, len(tokens) - 1) + 1):
        left, right = tokens[:-distance], tokens[distance:]
        near = is_word[:-distance] & is_word[distance:] & (sentences[:-distance] == sentences[distance:])
        pairs = left[near].astype(np.int64) * size + right[near]
        keys, inverse = np.unique(np.concatenate([keys, pairs]), return_inverse=True)
        weights = np.concatenate([values, np.full(len(pairs), 1 / distance)])
        values = np.bincount(inverse, weights, minlength=len(keys))
    one_way = np.stack(np.divmod(keys, size), axis=1)
    both = np.concatenate([one_way, one_way[:, ::-1]])
    keys, inverse = np.unique(both[:, 0] * size + both[:, 1], return_inverse=True)
    values = np.bincount(inverse, np.concatenate([values, values]), minlength=len(keys))
    return np.stack(np.divmod(keys, size), axis=1).astype(np.int32), values.astype(np.float32)


class CooccurrenceData:
    """The entries of X in random order, a new one in each epoch.

    A batch has as many entries as `batch_tokens` words of the text have on average, so that an epoch has as many
    batches as with the other methods. Its `inputs` are the entries (n, 2), its `labels` the counts (n, 1).
    """

    one_shape = False
    padding = 0.0

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        *,
        window: int,
        batch_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        cache: Path | None = None,
    ) -> None:
        self.corpus, self.seed, self.shuffle = corpus, seed, shuffle
        rows = encoded_rows(tokenizer, [f"{line}\n" for text in corpus.source for line in text.split("\n")], cache)
        entries, counts = count_cooccurrences(rows.flat, window, tokenizer.size)
        if not len(entries):
            raise DataError(f"{corpus.location(0)}: no two known words occur near each other: give more text")
        self._arrays = entries, counts
        self.batches_per_epoch = max(1, round(len(rows.flat) / batch_tokens))
        self.where = "in main memory"
        self.move("cpu")

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._arrays[0])

    @property
    def tokens(self) -> int:
        """The number of entries, which are what is learned in an epoch."""
        return len(self)

    @property
    def fingerprint(self) -> str:
        """The sha256 of the entries."""
        return tokens_fingerprint([self._arrays[0]])

    @property
    def size(self) -> int:
        """The bytes of the entries on a device."""
        return sum(array.nbytes for array in self._arrays)

    def move(self, device: torch.device | str) -> None:
        """Move the entries to a device, and make batches there."""
        self._tensors: tuple[Tensor, ...] = tuple(
            on_device(torch.from_numpy(array), torch.device(device)) for array in self._arrays
        )

    def plan(self, epoch: int) -> list[list[int]]:
        """Return the batches of an epoch as numbers of entries."""
        order = np.argsort(random_keys(len(self), self.seed, epoch, ORDER)) if self.shuffle else np.arange(len(self))
        parts = np.array_split(order, min(self.batches_per_epoch, len(self)))
        return [part.tolist() for part in parts]

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the remaining batches of an epoch after `start` of its entries."""
        for ids in batches_from(self.plan(epoch), start):
            yield self.collate(ids[rank::world], epoch)

    def collate(self, ids: Sequence[int], epoch: int) -> Batch:
        """Return these entries as a batch."""
        entries, counts = self._tensors
        rows = torch.tensor(ids, device=entries.device)
        return Batch(list(ids), None, entries[rows].long(), counts[rows, None], len(ids))

    def location(self, i: int, epoch: int) -> str:
        """Name an entry in messages."""
        row, column = self._arrays[0][i].tolist()
        return f"entry ({row}, {column}) of the co-occurrence matrix of {self.corpus.location(0)}"
