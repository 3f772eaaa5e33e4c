"""Batches of a language model's text for training: windows of tokens, in which each token predicts the next one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import UsageError
from regard.text.batches.batch import Batch, Sampler, batches_from, on_device, padded_slices
from regard.text.batches.encoded_texts import encoded_rows, tokens_fingerprint
from regard.text.batches.length_buckets import pad_rows
from regard.text.batches.prefetch import Epochs
from regard.text.files.corpus import Corpus
from regard.text.random_streams import random_keys
from regard.text.tokenizers.special_tokens import END, START
from regard.text.tokenizers.subwords import SubwordTokenizer
from regard.text.tokenizers.tokenizer import Tokenizer

OFFSET = 5  # random stream of the first window's length


class WindowData:
    """A language model's text and its batches: windows of `context` tokens, in which each token predicts the next one.

    The input of a document is START and its tokens, and its labels are its tokens and END. All documents are
    concatenated and cut into windows, so every token and every END is predicted once per epoch. With `shuffle`, the
    first window of each epoch has a random length; without it, for evaluation, it has `context` tokens. With
    `bucketed`, all batches have one shape. The folder `cache` keeps the tokens between runs.
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
        bucketed: bool = False,
        cache: Path | None = None,
    ) -> None:
        if isinstance(tokenizer, SubwordTokenizer) and not tokenizer.lossless:
            raise UsageError(
                "a language model needs a lossless tokenizer, but this one loses spaces and line breaks: train it with "
                "lossless=True"
            )
        if not 1 <= context <= batch_tokens:
            raise UsageError(f"context must be between 1 and batch_tokens ({batch_tokens}), got {context}")
        self.corpus, self.context, self.batch_tokens = corpus, context, batch_tokens
        self.seed, self.shuffle, self.bucketed = seed, shuffle, bucketed
        # A line break is a token of its own, so lines have the same tokens alone as in the whole text.
        documents = [[f"{line}\n" for line in text.split("\n")] for text in corpus.source]
        for lines in documents:
            lines[-1] = lines[-1][:-1]  # the text after the last line break
        rows = encoded_rows(tokenizer, [line for lines in documents for line in lines], cache)
        counts = np.array([len(lines) for lines in documents])
        first_lines = np.cumsum(counts) - counts  # of each document
        self._documents = rows.starts[first_lines] + np.arange(len(counts))  # their offsets, after earlier END tokens
        shift = np.repeat(np.arange(len(counts)), counts)
        self._lines = (rows.starts + shift)[rows.lengths > 0]  # the offset of each line that has tokens
        ends = [*rows.starts[first_lines[1:]].tolist(), len(rows.flat)]
        self._inputs = np.insert(rows.flat, rows.starts[first_lines], START)
        self._labels = np.insert(rows.flat, ends, END)
        self.where = "in main memory"
        self.move("cpu")
        self._plans = Epochs(lambda epoch: self._sampler(epoch).batches(epoch))

    @property
    def one_shape(self) -> bool:
        """Whether all batches have the same shape."""
        return self.bucketed

    def __len__(self) -> int:
        """The number of windows of an epoch; a random first window may add one."""
        return -(-len(self._labels) // self.context)

    @property
    def tokens(self) -> int:
        """The number of tokens that are predicted in an epoch."""
        return len(self._labels)

    @property
    def fingerprint(self) -> str:
        """The sha256 of all tokens."""
        return tokens_fingerprint([self._inputs, self._labels])

    @property
    def padding(self) -> float:
        """The fraction of padding in all batches: only the first and the last window can be short."""
        return self._sampler(0).padding

    @property
    def size(self) -> int:
        """The bytes of the tokens on a device."""
        return self._inputs.nbytes + self._labels.nbytes

    def move(self, device: torch.device | str) -> None:
        """Move the tokens to a device, and make batches there."""
        self.device = torch.device(device)
        arrays = (self._inputs, self._labels)
        self._tokens = tuple(on_device(torch.from_numpy(array), self.device) for array in arrays)

    def plan(self, epoch: int) -> list[list[int]]:
        """Return the batches of an epoch over all processes, as numbers of windows."""
        return self._plans.get(epoch)

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the remaining batches of an epoch after all processes together have consumed `start` of its windows.

        Process `rank` of `world` gets its share of each batch: every world-th window.
        """
        for i, ids in enumerate(batches_from(self.plan(epoch), start)):
            if i == 1:
                self._plans.start(epoch + 1)
            yield self._share(ids, epoch, rank, world)

    def collate(self, ids: Sequence[int], epoch: int) -> Batch:
        """Return these windows of that epoch as a batch."""
        return self._share(list(ids), epoch, 0, 1)

    def location(self, i: int, epoch: int) -> str:
        """Return the location where window i of that epoch starts, as file:line."""
        start = int(self._spans(np.array([i]), epoch)[0][0])
        document = int(np.searchsorted(self._documents, start, side="right")) - 1
        first, line = np.searchsorted(self._lines, [self._documents[document], start], side="right").tolist()
        path, _, number = self.corpus.location(document).rpartition(":")
        return f"{path}:{int(number) + (line - first) * self._is_file(document)}"

    def _is_file(self, document: int) -> bool:
        """Whether the document is a whole file, whose lines count; else it is one row of a file with many documents."""
        first_rows = [row for row, _ in self.corpus.shards] + [len(self.corpus)]
        shard = bisect_right(first_rows, document) - 1
        is_alone = first_rows[shard + 1] - first_rows[shard] == 1
        return is_alone and ".jsonl" not in Path(self.corpus.shards[shard][1]).suffixes

    def _share(self, whole: list[int], epoch: int, rank: int, world: int) -> Batch:
        """Return one process's share of these windows."""
        starts, ends = self._spans(np.array(whole, np.int64), epoch)
        lengths = ends - starts
        local = lengths[rank::world]
        width = self.context if self.bucketed else int(local.max(initial=0))
        slices = on_device(torch.from_numpy(np.stack([starts[rank::world], local])), self.device)  # (2, B)
        inputs, labels = (padded_slices(flat, slices[0], slices[1], width) for flat in self._tokens)
        batch = Batch(
            whole[rank::world],
            None,
            inputs,
            labels,
            int(local.sum()),
            whole_ids=whole,
            whole_tokens=int(lengths.sum()),
        )
        if not self.bucketed:
            return batch
        return pad_rows(batch, max(-(-(self.batch_tokens // self.context) // world), len(local)))

    def _first_length(self, epoch: int) -> int:
        """Return the length of the first window of that epoch."""
        return 1 + int(random_keys(1, self.seed, epoch, OFFSET)[0]) % self.context if self.shuffle else self.context

    def _spans(self, ids: NDArray[np.int64], epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the start and end offsets of these windows of that epoch."""
        ends = self._first_length(epoch) + ids * self.context
        return np.maximum(ends - self.context, 0), np.minimum(ends, self.tokens)

    def _sampler(self, epoch: int) -> Sampler:
        others = max(0, -(-(self.tokens - self._first_length(epoch)) // self.context))  # windows after the first
        starts, ends = self._spans(np.arange(1 + others), epoch)
        buckets = [self.context] if self.bucketed else None
        return Sampler(
            ends - starts, batch_tokens=self.batch_tokens, seed=self.seed, shuffle=self.shuffle, buckets=buckets
        )
