"""Batches of tokenized pairs for training. Windows of a language model's text are in windows.py.

The content of a batch is a function of (seed, epoch, sample id), so a resumed run sees the same batches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import DataError, UsageError
from regard.text.augment.augmentation import Augmentations
from regard.text.augment.joined_sentences import MAX_FOLLOWING, drop_marks, final_marks, join_pairs
from regard.text.batches.batch import Batch, Sampler, TokenRows, batches_from
from regard.text.batches.encoded_texts import encoded_rows, tokens_fingerprint
from regard.text.batches.length_buckets import choose_buckets, pad_rows
from regard.text.batches.pair_frame import OWN_FRAME, PairFrame
from regard.text.batches.prefetch import Epochs
from regard.text.files.corpus import Corpus
from regard.text.files.lines import Finding
from regard.text.tokenizers.subwords import SubwordTokenizer
from regard.text.tokenizers.tokenizer import Tokenizer

JOIN, BARE = range(7, 9)  # random streams, after those of the augmentations


class Epoch(NamedTuple):
    """All pairs as augmented for one epoch, and its batches."""

    rows: tuple[TokenRows, TokenRows]
    sampler: Sampler
    plan: list[list[int]]  # rows of the corpus


class PairData:
    """Tokenized pairs and their batches.

    `sampling` draws a new segmentation of every pair each epoch (0: never; else the alpha of
    SubwordTokenizer.sample_all). These are the fractions of pairs, different ones in each epoch, that are augmented:

        copy     a word that occurs once on each side becomes UNKNOWN on both: this teaches the model to write
                 UNKNOWN for a word that it cannot know, and the decoder then copies that word
        invent   such a word becomes an invented one, the same on both sides: this teaches the model to spell names
        typed    the source is written in lowercase, in lowercase without accents, in capitals, or with ’ for '
        join     up to three other pairs follow: longer texts, and several sentences at once
        bare     both sides lose their final punctuation

    Pairs with more than `max_length` tokens on a side, or too many for a batch, are dropped and counted in `too_long`;
    the target's END counts. `frame` are the special tokens around both sides. With `bucketed`, batches have few shapes
    (length_buckets.py). The folder `cache` keeps the tokens between runs (token_cache.py).
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
        bucketed: bool = False,
        frame: PairFrame = OWN_FRAME,
        cache: Path | None = None,
    ) -> None:
        if corpus.target is None:
            raise UsageError("pairs need a target side, but this corpus consists of documents")
        shares = {"sampling": sampling, "copy": copy, "invent": invent, "typed": typed, "join": join, "bare": bare}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise UsageError(f"{name} must be between 0 and 1, got {share}")
            if share and not (isinstance(source, SubwordTokenizer) and isinstance(target, SubwordTokenizer)):
                raise UsageError(f"{name} needs subword tokenizers of regard, and a side has another one")
        self.corpus, self.seed, self.shuffle = corpus, seed, shuffle
        self.frame = frame
        self.batch_tokens, self.copy, self.join, self.bare = batch_tokens, copy, join, bare
        self.limit = batch_tokens if max_length is None else min(max_length, batch_tokens)
        self.device, self.where = torch.device("cpu"), "in main memory"
        self.rows = (
            encoded_rows(source, corpus.source, cache and cache / "source"),
            encoded_rows(target, corpus.target, cache and cache / "target"),
        )
        self._augmentations: Augmentations | None = None
        if sampling or copy or invent or typed:
            self._augmentations = Augmentations(
                (source, target),
                (corpus.source, corpus.target),
                seed=seed,
                sampling=sampling,
                copy=copy,
                invent=invent,
                typed=typed,
                folder=cache,
            )
        self.support: Tensor | None = None  # (N, 2): see Batch
        self._marks = (final_marks(source), final_marks(target)) if bare else None
        self.samples = self._fitting_rows()  # rows of the corpus
        self.buckets: list[int] | None = None
        if bucketed:
            lengths = np.maximum(self._usual_lengths(), self._lengths(self._augmented(0)).max(axis=1))
            self.buckets = choose_buckets(lengths[self.samples], limit=self.limit)
            self.limit = self.longest_target = self.buckets[-1]
            if not (self._augmentations or join or bare):  # answers are much shorter than their sources
                self.longest_target = int(self.rows[1].lengths[self.samples].max()) + 1
        self._epochs = Epochs(self._epoch)

    @property
    def one_shape(self) -> bool:
        """Whether all batches have the same shape."""
        return self.buckets is not None and len(self.buckets) == 1

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def fingerprint(self) -> str:
        """The sha256 of the tokens of all samples."""
        return tokens_fingerprint([array for rows in self.rows for array in (rows.flat, rows.lengths)] + [self.samples])

    @property
    def padding(self) -> float:
        """The fraction of padding in all batches of the first epoch; other epochs differ little."""
        return self._epochs.get(0).sampler.padding

    @property
    def size(self) -> int:
        """The bytes of the tokens on a device: those of the current and the next epoch."""
        pairs_per_row = 1 + self.join * (1 + MAX_FOLLOWING) / 2  # on average
        return int(2 * sum(pairs_per_row * rows.flat.nbytes + 2 * rows.lengths.nbytes for rows in self.rows))

    def move(self, device: torch.device | str) -> None:
        """Move the tokens of each epoch to a device, and make batches there."""
        self.device = torch.device(device)
        if not (self._augmentations or self.join or self.bare):  # else each epoch's tokens are moved when they are made
            self.rows = self.rows[0].to(device), self.rows[1].to(device)
        if self.support is not None:
            self.support = self.support.to(device)
        self._epochs = Epochs(self._epoch)

    def plan(self, epoch: int) -> list[list[int]]:
        """Return the batches of an epoch over all processes, as rows of the corpus."""
        return self._epochs.get(epoch).plan

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the remaining batches of an epoch after all processes together have consumed `start` of its samples.

        Process `rank` of `world` gets its share of each batch: every world-th sample.
        """
        current = self._epochs.get(epoch)
        for i, ids in enumerate(batches_from(current.plan, start)):
            if i == 1:
                self._epochs.start(epoch + 1)  # prefetch the next epoch
            yield self._share(current.rows, ids, rank, world)

    def collate(self, ids: Sequence[int], epoch: int) -> Batch:
        """Return these rows of the corpus, as augmented for that epoch, as a batch."""
        return self._share(self._epochs.get(epoch).rows, list(ids), 0, 1)

    def location(self, i: int, epoch: int) -> str:
        """Return the location of sample i as file:line; it is the same in every epoch."""
        return self.corpus.location(i)

    def _share(self, rows: tuple[TokenRows, TokenRows], whole: list[int], rank: int, world: int) -> Batch:
        """Return one process's share of these rows of the corpus."""
        source, target = rows
        frame, pad = self.frame, self.frame.special.pad
        ids, lengths = whole[rank::world], target.lengths[whole] + frame.target_tokens
        bucket = None if self.buckets is None else self._bucket_length(rows, whole)
        width = None if bucket is None else min(bucket, self.longest_target)
        batch = Batch(
            ids,
            source.padded(ids, before=frame.before_source, after=frame.after_source, width=bucket, pad=pad),
            target.padded(ids, before=[frame.special.start, *frame.before_target], width=width, pad=pad),
            target.padded(ids, before=frame.before_target, after=frame.after_target, width=width, pad=pad),
            int(lengths[rank::world].sum()),
            global_ids=whole,
            global_tokens=int(lengths.sum()),
            support=None if self.support is None else self.support[ids],
            special=frame.special,
            ignored=pad,
        )
        if bucket is None:
            return batch
        return pad_rows(batch, max(-(-(self.batch_tokens // bucket) // world), len(ids)))

    def _bucket_length(self, rows: tuple[TokenRows, TokenRows], ids: list[int]) -> int:
        """Return the length of the bucket for a batch of these rows of the corpus."""
        assert self.buckets is not None
        longest = max(int(side.lengths[ids].max(initial=0)) for side in rows) + self.frame.tokens
        return self.buckets[bisect_left(self.buckets, longest)]

    def _fitting_rows(self) -> NDArray[np.int64]:
        """Return the rows of the corpus within the limit; count the others."""
        fits = self._usual_lengths() <= self.limit
        self.too_long = Finding()
        for i in np.flatnonzero(~fits).tolist():
            path, _, line = self.corpus.location(i).rpartition(":")
            self.too_long.add(path, int(line))
        if not fits.any():
            raise DataError(
                f"{self.corpus.location(0)}: this pair and all others ({len(self.corpus)} in all) have more than "
                f"{self.limit} tokens on one side: raise data.max_length or training.batch_tokens"
            )
        return np.flatnonzero(fits)

    def _usual_lengths(self) -> NDArray[np.int64]:
        """Return (N,): the tokens of the longer side with its end token.

        A sentence and its words alone may be segmented differently, because of ties: the longer result counts.
        """
        lengths = self._lengths(self.rows).max(axis=1)
        return lengths if self._augmentations is None else np.maximum(lengths, self._augmentations.usual_lengths())

    def _epoch(self, epoch: int) -> Epoch:
        rows = self._augmented(epoch)
        sampler = Sampler(
            self._lengths(rows)[self.samples],
            batch_tokens=self.batch_tokens,
            seed=self.seed,
            shuffle=self.shuffle,
            buckets=self.buckets,
        )
        plan = [self.samples[batch].tolist() for batch in sampler.batches(epoch)]
        return Epoch((rows[0].to(self.device), rows[1].to(self.device)), sampler, plan)

    def _augmented(self, epoch: int) -> tuple[TokenRows, TokenRows]:
        """Return both sides as augmented for that epoch."""
        limit = self.limit - self.frame.tokens
        rows = self.rows if self._augmentations is None else self._augmentations.draw(epoch, limit=limit)
        if self.join:
            stream = (self.seed, epoch, JOIN)
            unknown = self.copy > 0
            rows = join_pairs(rows, share=self.join, stream=stream, limit=limit, among=self.samples, unknown=unknown)
        if self._marks is not None:
            rows = drop_marks(rows, self._marks, share=self.bare, stream=(self.seed, epoch, BARE))
        return rows

    def _lengths(self, rows: tuple[TokenRows, TokenRows]) -> NDArray[np.int64]:
        """Return (N, 2): the lengths of source and target with their special tokens."""
        source, target = rows
        return np.stack([source.lengths + self.frame.source_tokens, target.lengths + self.frame.target_tokens], axis=1)
