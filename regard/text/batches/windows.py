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
from regard.text.tokenizers.imported import ImportedTokenizer
from regard.text.tokenizers.special_tokens import DEFAULT, PAD, SpecialTokens
from regard.text.tokenizers.subwords import SubwordTokenizer
from regard.text.tokenizers.tokenizer import Tokenizer

OFFSET = 5  # random stream of the first window's length
MAX_CHUNK_CHARACTERS = 2**20  # that an imported tokenizer encodes at once
NO_LABEL = -1  # in place of a label, where padding may be a token of the text


class WindowData:
    """A language model's text and its batches: windows of `context` tokens, in which each token predicts the next one.

    The input of a document is the start token and its tokens, and its labels are its tokens and the end token. All
    documents are concatenated and cut into windows, so every token and every end token is predicted once per epoch.
    With `shuffle`, the first window of each epoch has a random length; without it, for evaluation, it has `context`
    tokens. With `bucketed`, all batches have one shape. The folder `cache` keeps the tokens between runs.

    `special` are the special tokens of the model. A tokenizer of this package makes a line break a token of its own, so
    lines have the same tokens alone as in the whole text. An imported tokenizer encodes a document at once, or
    MAX_CHUNK_CHARACTERS of it.
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
        special: SpecialTokens = DEFAULT,
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
        self.special, self.ignored = special, PAD if special == DEFAULT else NO_LABEL
        characters = MAX_CHUNK_CHARACTERS if isinstance(tokenizer, ImportedTokenizer) else 1
        documents = [chunks_of(text, characters) for text in corpus.source]
        rows = encoded_rows(tokenizer, [chunk for chunks in documents for chunk in chunks], cache)
        counts = np.array([len(chunks) for chunks in documents])
        first_chunks = np.cumsum(counts) - counts  # of each document
        self._documents = rows.starts[first_chunks] + np.arange(len(counts))  # their offsets, after earlier end tokens
        shift = np.repeat(np.arange(len(counts)), counts)
        has_tokens = rows.lengths > 0
        self._chunks = (rows.starts + shift)[has_tokens]  # the offset of each chunk that has tokens
        self._first_lines = np.concatenate([first_lines(chunks) for chunks in documents])[has_tokens]
        ends = [*rows.starts[first_chunks[1:]].tolist(), len(rows.flat)]
        self._inputs = np.insert(rows.flat, rows.starts[first_chunks], special.start)
        self._labels = np.insert(rows.flat, ends, special.end)
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
        chunk = int(np.searchsorted(self._chunks, start, side="right")) - 1
        line = 0 if chunk < 0 or self._chunks[chunk] < self._documents[document] else int(self._first_lines[chunk])
        path, _, number = self.corpus.location(document).rpartition(":")
        return f"{path}:{int(number) + line * self._is_file(document)}"

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
        inputs, labels = (
            padded_slices(flat, slices[0], slices[1], width, pad=pad)
            for flat, pad in zip(self._tokens, (self.special.pad, self.ignored), strict=True)
        )
        batch = Batch(
            whole[rank::world],
            None,
            inputs,
            labels,
            int(local.sum()),
            global_ids=whole,
            global_tokens=int(lengths.sum()),
            special=self.special,
            ignored=self.ignored,
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


def chunks_of(text: str, characters: int) -> list[str]:
    """Divide a text into chunks of whole lines, each with at least so many characters; the last one may be shorter.

    The last chunk may be empty, as the text after the last line break is.
    """
    chunks, start = [], 0
    while (end := text.find("\n", start + characters - 1)) >= 0:
        chunks.append(text[start : end + 1])
        start = end + 1
    return [*chunks, text[start:]]


def first_lines(chunks: Sequence[str]) -> NDArray[np.int64]:
    """Return the line of the text with which each chunk begins, counted from 0."""
    lines = np.array([chunk.count("\n") for chunk in chunks])
    return np.cumsum(lines) - lines
