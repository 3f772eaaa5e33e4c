"""A language model's text as the batches of training: windows of tokens, each of which predicts the next."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import UsageError
from regard.text.batches.batch import Batch, Sampler, batches_from, cut_out, on_device
from regard.text.batches.encoded_texts import encoded_rows, tokens_fingerprint
from regard.text.batches.length_buckets import filled
from regard.text.batches.prefetch import Epochs
from regard.text.files.corpus import Corpus
from regard.text.random_streams import random_keys
from regard.text.tokenizers.special_tokens import END, START
from regard.text.tokenizers.subwords import SubwordTokenizer
from regard.text.tokenizers.tokenizer import Tokenizer

OFFSET = 5  # random numbers, after those of pairs


class WindowData:
    """A language model's text and its batches: windows of `context` tokens, of which each predicts the next.

    Every document reads START and its tokens, and writes its tokens and END; the documents stand one after another, and
    the whole is cut into windows. So every token and every END is predicted once an epoch. With `shuffle` the first cut
    is at a random place each epoch; without it, for evaluation, at `context`. With `shapes`, all batches have one
    shape. In the folder `cache` the tokens are kept.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        *,
        context: int,
        batch_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        shapes: bool = False,
        cache: Path | None = None,
    ) -> None:
        if isinstance(tokenizer, SubwordTokenizer) and not tokenizer.lossless:
            raise UsageError("a language model needs a lossless tokenizer: this one loses spaces and line breaks")
        if not 1 <= context <= batch_tokens:
            raise UsageError(f"context must be between 1 and batch_tokens ({batch_tokens}), got {context}")
        self.corpus, self.context, self.batch_tokens = corpus, context, batch_tokens
        self.seed, self.shuffle, self.shapes = seed, shuffle, shapes
        # A line break is a token of its own, so lines are cut into the same pieces as the whole is.
        documents = [[f"{line}\n" for line in text.split("\n")] for text in corpus.source]
        for lines in documents:
            lines[-1] = lines[-1][:-1]  # what stands after the last break
        rows = encoded_rows(tokenizer, [line for lines in documents for line in lines], cache)
        counts = np.array([len(lines) for lines in documents])
        firsts = np.cumsum(counts) - counts  # each document's first line
        self._documents = rows.starts[firsts] + np.arange(len(counts))  # where each begins; before it stand END tokens
        shift = np.repeat(np.arange(len(counts)), counts)
        self._lines = (rows.starts + shift)[rows.lengths > 0]  # where each line begins, unless it has no tokens
        ends = [*rows.starts[firsts[1:]].tolist(), len(rows.flat)]
        self._inputs = np.insert(rows.flat, rows.starts[firsts], START)
        self._labels = np.insert(rows.flat, ends, END)
        self.where = "in main memory"
        self.move("cpu")
        self._plans = Epochs(lambda epoch: self._sampler(epoch).batches(epoch))

    @property
    def one_shape(self) -> bool:
        """Whether all batches have the same shape."""
        return self.shapes

    def __len__(self) -> int:
        """Windows of an epoch; where a random first cut parts one in two, one more."""
        return -(-len(self._labels) // self.context)

    @property
    def tokens(self) -> int:
        """Tokens that are predicted in an epoch."""
        return len(self._labels)

    @property
    def fingerprint(self) -> str:
        """sha256 of all tokens."""
        return tokens_fingerprint([self._inputs, self._labels])

    @property
    def padding(self) -> float:
        """The share of padding in all batches: only the first and the last window can be short."""
        return self._sampler(0).padding

    @property
    def size(self) -> int:
        """Bytes that the tokens take on a device."""
        return self._inputs.nbytes + self._labels.nbytes

    def move(self, device: torch.device | str) -> None:
        """Lay the tokens on a device, and make batches there."""
        self.device = torch.device(device)
        self._tokens = tuple(on_device(torch.from_numpy(one), self.device) for one in (self._inputs, self._labels))

    def plan(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch over all processes, as numbers of windows."""
        return self._plans.get(epoch)

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """The batches of an epoch that are left when `start` of its windows are consumed, over all processes.

        Of each, process `rank` of `world` gets its share: every world-th window.
        """
        for i, ids in enumerate(batches_from(self.plan(epoch), start)):
            if i == 1:
                self._plans.start(epoch + 1)
            yield self._share(ids, epoch, rank, world)

    def collate(self, ids: Sequence[int], epoch: int) -> Batch:
        """These windows of that epoch as tensors."""
        return self._share(list(ids), epoch, 0, 1)

    def location(self, i: int, epoch: int) -> str:
        """Where window i of that epoch starts, as file:line."""
        start = int(self._spans(np.array([i]), epoch)[0][0])
        document = int(np.searchsorted(self._documents, start, side="right")) - 1
        first, line = np.searchsorted(self._lines, [self._documents[document], start], side="right").tolist()
        path, _, number = self.corpus.location(document).rpartition(":")
        return f"{path}:{int(number) + (line - first) * self._whole_file(document)}"

    def _whole_file(self, document: int) -> bool:
        """Whether the document is a file, so that its lines are the file's; else it is one line of a file of many."""
        firsts = [first for first, _ in self.corpus.shards] + [len(self.corpus)]
        shard = bisect_right(firsts, document) - 1
        alone = firsts[shard + 1] - firsts[shard] == 1
        return alone and ".jsonl" not in Path(self.corpus.shards[shard][1]).suffixes

    def _share(self, whole: list[int], epoch: int, rank: int, world: int) -> Batch:
        """What one process gets of these windows."""
        starts, ends = self._spans(np.array(whole, np.int64), epoch)
        lengths = ends - starts
        own = lengths[rank::world]
        width = self.context if self.shapes else int(own.max(initial=0))
        there = on_device(torch.from_numpy(np.stack([starts[rank::world], own])), self.device)  # (2, B)
        inputs, labels = (cut_out(flat, there[0], there[1], width) for flat in self._tokens)
        batch = Batch(
            whole[rank::world],
            None,
            inputs,
            labels,
            int(own.sum()),
            whole_ids=whole,
            whole_tokens=int(lengths.sum()),
        )
        if not self.shapes:
            return batch
        return filled(batch, max(-(-(self.batch_tokens // self.context) // world), len(own)))

    def _first_cut(self, epoch: int) -> int:
        """The length of the first window of that epoch."""
        return 1 + int(random_keys(1, self.seed, epoch, OFFSET)[0]) % self.context if self.shuffle else self.context

    def _spans(self, ids: NDArray[np.int64], epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where these windows of that epoch begin and end."""
        ends = self._first_cut(epoch) + ids * self.context
        return np.maximum(ends - self.context, 0), np.minimum(ends, self.tokens)

    def _sampler(self, epoch: int) -> Sampler:
        more = max(0, -(-(self.tokens - self._first_cut(epoch)) // self.context))
        starts, ends = self._spans(np.arange(1 + more), epoch)
        rungs = [self.context] if self.shapes else None
        return Sampler(ends - starts, batch_tokens=self.batch_tokens, seed=self.seed, shuffle=self.shuffle, rungs=rungs)
