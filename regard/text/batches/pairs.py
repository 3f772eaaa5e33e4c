"""Tokenised pairs as the batches of training. Windows of a language model's text are in windows.py.

What a batch holds is a function of (seed, epoch, sample id), so a run that resumes sees what it would have seen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import DataError, UsageError
from regard.text.augment.augmentation import Changes
from regard.text.augment.joined_sentences import MOST_AFTER, drop_marks, final_marks, join_pairs
from regard.text.batches.batch import Batch, Rows, Sampler, batches_from
from regard.text.batches.encoded_texts import encoded_rows, tokens_fingerprint
from regard.text.batches.length_buckets import filled, ladder
from regard.text.batches.prefetch import Epochs
from regard.text.files.corpus import Corpus
from regard.text.files.lines import Finding
from regard.text.tokenizers.special_tokens import END, START
from regard.text.tokenizers.subwords import SubwordTokenizer
from regard.text.tokenizers.tokenizer import Tokenizer

JOIN, BARE = range(7, 9)  # random numbers, after those of the changes


class Epoch(NamedTuple):
    """All pairs as they are in one epoch, and its batches."""

    rows: tuple[Rows, Rows]
    sampler: Sampler
    plan: list[list[int]]  # rows of the corpus


class PairData:
    """Tokenised pairs and their batches.

    `sampling` redraws the pieces of every pair each epoch (0: never; else the alpha of SubwordTokenizer.sample_all).
    Shares of the pairs, others in each epoch, are changed:

        copy     a word that both sides have, once each, becomes UNKNOWN on both: that teaches the model to write
                 UNKNOWN for a word it cannot know, which the decoder then copies
        invent   such a word becomes one that does not exist, the same on both: names and numbers are spelled out
        typed    the source is written without capitals, without accents too, in capitals, or with ’ for '
        join     up to three other pairs follow: longer texts, and several sentences at once
        bare     both sides lose the full stop or other mark at their end

    Pairs with more than `max_length` tokens on a side, or more than fit a batch, are left out and counted in
    `too_long`; the target's END counts. With `shapes`, batches come in few shapes (shapes.py). In the folder `cache`
    the tokens are kept (store.py).
    """

    def __init__(
        self,
        corpus: Corpus,
        source: Tokenizer,
        target: Tokenizer,
        *,
        batch_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        max_length: int | None = None,
        sampling: float = 0.0,
        copy: float = 0.0,
        invent: float = 0.0,
        typed: float = 0.0,
        join: float = 0.0,
        bare: float = 0.0,
        shapes: bool = False,
        cache: Path | None = None,
    ) -> None:
        if corpus.target is None:
            raise UsageError("pairs need a target side, and this corpus has documents")
        shares = {"sampling": sampling, "copy": copy, "invent": invent, "typed": typed, "join": join, "bare": bare}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise UsageError(f"{name} must be between 0 and 1, got {share}")
            if share and not (isinstance(source, SubwordTokenizer) and isinstance(target, SubwordTokenizer)):
                raise UsageError(f"{name} is for subwords, and a side has characters")
        self.corpus, self.seed, self.shuffle = corpus, seed, shuffle
        self.batch_tokens, self.copy, self.join, self.bare = batch_tokens, copy, join, bare
        self.limit = batch_tokens if max_length is None else min(max_length, batch_tokens)
        self.device, self.where = torch.device("cpu"), "in main memory"
        self.rows = (
            encoded_rows(source, corpus.source, cache and cache / "source"),
            encoded_rows(target, corpus.target, cache and cache / "target"),
        )
        self._changes: Changes | None = None
        if sampling or copy or invent or typed:
            self._changes = Changes(
                (source, target),
                (corpus.source, corpus.target),
                seed=seed,
                sampling=sampling,
                copy=copy,
                invent=invent,
                typed=typed,
                folder=cache,
            )
        self._marks = (final_marks(source), final_marks(target))
        self.kept = self._those_that_fit()  # rows of the corpus
        self.rungs: list[int] | None = None
        if shapes:
            drawn = np.maximum(self._usual_lengths(), _lengths(self._drawn(0)).max(axis=1))
            self.rungs = ladder(drawn[self.kept], limit=self.limit)
            self.limit = self.rungs[-1]
        self._epochs = Epochs(self._epoch)

    @property
    def one_shape(self) -> bool:
        """Whether all batches have the same shape."""
        return self.rungs is not None and len(self.rungs) == 1

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def fingerprint(self) -> str:
        """sha256 of the tokens of all samples."""
        return tokens_fingerprint([array for rows in self.rows for array in (rows.flat, rows.lengths)] + [self.kept])

    @property
    def padding(self) -> float:
        """The share of padding in all batches; epochs differ little, this is the first."""
        return self._epochs.get(0).sampler.padding

    @property
    def size(self) -> int:
        """Bytes that the tokens take on a device: those of this epoch and of the next."""
        times = 1 + self.join * (1 + MOST_AFTER) / 2  # so many pairs in each, on the average
        return int(2 * sum(times * rows.flat.nbytes + 2 * rows.lengths.nbytes for rows in self.rows))

    def move(self, device: torch.device | str) -> None:
        """Lay the tokens of each epoch on a device, and make batches there."""
        self.device = torch.device(device)
        if not (self._changes or self.join or self.bare):  # else each epoch's are laid there when they are drawn
            self.rows = self.rows[0].to(device), self.rows[1].to(device)
        self._epochs = Epochs(self._epoch)

    def plan(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch over all processes, as rows of the corpus."""
        return self._epochs.get(epoch).plan

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """The batches of an epoch that are left when `start` of its samples are consumed, over all processes.

        Of each, process `rank` of `world` gets its share: every world-th sample.
        """
        drawn = self._epochs.get(epoch)
        for i, ids in enumerate(batches_from(drawn.plan, start)):
            if i == 1:
                self._epochs.start(epoch + 1)  # drawn while this one trains
            yield self._share(drawn.rows, ids, rank, world)

    def collate(self, ids: Sequence[int], epoch: int) -> Batch:
        """These rows of the corpus, as they are in that epoch, as tensors."""
        return self._share(self._epochs.get(epoch).rows, list(ids), 0, 1)

    def place(self, i: int, epoch: int) -> str:
        """Where sample i stands, as file:line; the same in every epoch."""
        return self.corpus.place(i)

    def _share(self, rows: tuple[Rows, Rows], whole: list[int], rank: int, world: int) -> Batch:
        """What one process gets of these rows of the corpus."""
        source, target = rows
        ids, lengths = whole[rank::world], target.lengths[whole] + 1
        rung = None if self.rungs is None else self._rung(rows, whole)
        batch = Batch(
            ids,
            source.padded(ids, after=[END], width=rung),
            target.padded(ids, before=[START], width=rung),
            target.padded(ids, after=[END], width=rung),
            int(lengths[rank::world].sum()),
            whole_ids=whole,
            whole_tokens=int(lengths.sum()),
        )
        if rung is None:
            return batch
        return filled(batch, max(-(-(self.batch_tokens // rung) // world), len(ids)))

    def _rung(self, rows: tuple[Rows, Rows], ids: list[int]) -> int:
        """The length of the batches that these rows of the corpus go into."""
        assert self.rungs is not None
        longest = max(int(side.lengths[ids].max(initial=0)) + 1 for side in rows)
        return self.rungs[bisect_left(self.rungs, longest)]

    def _those_that_fit(self) -> NDArray[np.int64]:
        """The rows of the corpus within the limit; the others are counted."""
        fits = self._usual_lengths() <= self.limit
        self.too_long = Finding()
        for i in np.flatnonzero(~fits).tolist():
            path, _, line = self.corpus.place(i).rpartition(":")
            self.too_long.add(path, int(line))
        if not fits.any():
            raise DataError(
                f"{self.corpus.place(0)}: this pair and all {len(self.corpus)} have more than {self.limit} tokens on a "
                "side: allow longer sentences or larger batches"
            )
        return np.flatnonzero(fits)

    def _usual_lengths(self) -> NDArray[np.int64]:
        """(N,): the longer side with its end token; where sentence and words alone differ (ties do), the longer way."""
        lengths = _lengths(self.rows).max(axis=1)
        return lengths if self._changes is None else np.maximum(lengths, self._changes.usual_lengths())

    def _epoch(self, epoch: int) -> Epoch:
        rows = self._drawn(epoch)
        sampler = Sampler(
            _lengths(rows)[self.kept],
            batch_tokens=self.batch_tokens,
            seed=self.seed,
            shuffle=self.shuffle,
            rungs=self.rungs,
        )
        plan = [self.kept[batch].tolist() for batch in sampler.batches(epoch)]
        return Epoch((rows[0].to(self.device), rows[1].to(self.device)), sampler, plan)

    def _drawn(self, epoch: int) -> tuple[Rows, Rows]:
        """Both sides as they are in that epoch."""
        room = self.limit - 1  # END
        rows = self.rows if self._changes is None else self._changes.draw(epoch, limit=room)
        if self.join:
            stream = (self.seed, epoch, JOIN)
            unknown = self.copy > 0
            rows = join_pairs(rows, share=self.join, stream=stream, limit=room, among=self.kept, unknown=unknown)
        if self.bare:
            rows = drop_marks(rows, self._marks, share=self.bare, stream=(self.seed, epoch, BARE))
        return rows


def _lengths(rows: tuple[Rows, Rows]) -> NDArray[np.int64]:
    """(N, 2): the lengths of source and target with their end tokens."""
    return np.stack([side.lengths + 1 for side in rows], axis=1)
