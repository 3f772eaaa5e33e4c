"""Tokenised text as the batches of training: pairs for translation, windows for language models.

What a batch holds is a function of (seed, epoch, sample id), so a run that resumes sees what it would have seen.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import DataError, UsageError
from regard.text.batching import Batch, Rows, Sampler, batches_from
from regard.text.corpus import Corpus
from regard.text.lines import Finding
from regard.text.randomness import random_fractions, random_keys
from regard.text.special import END, PAD, START, UNKNOWN
from regard.text.subwords import SubwordTokenizer
from regard.text.tokenizer import Tokenizer, Word

COPY, WORD, PIECES, OFFSET = range(2, 6)  # random numbers, after those of the sampler
BLOCK = 1_024  # samples whose segmentations are drawn together
ENCODED_AT_ONCE = 16_384
SHORTEST_COPY = 3  # characters; shorter words that both sides have are often not each other's translation


class PairData:
    """Tokenised pairs and their batches.

    `sampling` redraws the pieces of every pair each epoch (0: never; else the alpha of SubwordTokenizer.sample_all).
    `copy` is the share of pairs in which a word that both sides have, once each, becomes UNKNOWN on both: that teaches
    the model to write UNKNOWN for a word it cannot know, which the decoder then copies. Pairs with more than
    `max_length` tokens on a side, or more than fit a batch, are left out and counted in `too_long`; the target's END
    counts.
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
    ) -> None:
        if corpus.target is None:
            raise UsageError("pairs need a target side, and this corpus has documents")
        if not 0 <= sampling <= 1 or not 0 <= copy <= 1:
            raise UsageError(f"sampling and copy must be between 0 and 1, got {sampling} and {copy}")
        if (sampling or copy) and not all(isinstance(one, SubwordTokenizer) for one in (source, target)):
            raise UsageError("sampling and copy are for subwords, and a side has characters")
        self.corpus, self.tokenizers, self.seed, self.shuffle = corpus, (source, target), seed, shuffle
        self.batch_tokens, self.sampling, self.copy = batch_tokens, sampling, copy
        self.limit = batch_tokens if max_length is None else min(max_length, batch_tokens)
        self.rows = (Rows(_encoded(source, corpus.source)), Rows(_encoded(target, corpus.target)))
        self._texts = (corpus.source, corpus.target)
        self._fits = _lengths(self.rows).max(axis=1) <= self.limit
        self.kept = np.flatnonzero(self._fits)  # rows of the corpus
        self.too_long = Finding()
        for i in np.flatnonzero(~self._fits).tolist():
            path, _, line = corpus.place(i).rpartition(":")
            self.too_long.add(path, int(line))
        if not len(self.kept):
            raise DataError(
                f"{corpus.place(0)}: this pair and all {len(corpus)} have more than {self.limit} tokens on a side: "
                "allow longer sentences or larger batches"
            )
        self._drawn: tuple[int, tuple[Rows, Rows], Sampler] | None = None  # the epoch at hand

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def fingerprint(self) -> str:
        """sha256 of the tokens of all samples."""
        return _sha256([array for rows in self.rows for array in (rows.flat, rows.lengths)] + [self.kept])

    @property
    def padding(self) -> float:
        """The share of padding in all batches; epochs differ little."""
        return self._epoch(0 if self._drawn is None else self._drawn[0])[1].padding

    def plan(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch over all processes, as rows of the corpus."""
        return [self.kept[batch].tolist() for batch in self._epoch(epoch)[1].batches(epoch)]

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch that are left when `start` of its samples are consumed."""
        for ids in batches_from(self.plan(epoch), start):
            yield self.collate(ids, epoch)

    def collate(self, ids: Sequence[int], epoch: int) -> Batch:
        """These rows of the corpus, as they are in that epoch, as tensors."""
        ids = list(ids)
        source, target = self._epoch(epoch)[0]
        inputs, labels = target.padded(ids, before=[START]), target.padded(ids, after=[END])
        return Batch(ids, source.padded(ids, after=[END]), inputs, labels, int(target.lengths[ids].sum()) + len(ids))

    def _epoch(self, epoch: int) -> tuple[tuple[Rows, Rows], Sampler]:
        """The tokens of both sides in that epoch, and the sampler of their lengths."""
        changing = bool(self.sampling or self.copy)
        if self._drawn is None or (changing and self._drawn[0] != epoch):
            rows = self._draw(epoch) if changing else self.rows
            lengths = _lengths(rows)[self.kept]
            sampler = Sampler(lengths, batch_tokens=self.batch_tokens, seed=self.seed, shuffle=self.shuffle)
            self._drawn = epoch, rows, sampler
        return self._drawn[1], self._drawn[2]

    def _draw(self, epoch: int) -> tuple[Rows, Rows]:
        """Both sides in that epoch's pieces, and with words that became UNKNOWN."""
        sources, targets = self._pieces(0, epoch), self._pieces(1, epoch)
        if self.copy:
            chosen = random_fractions(len(self.corpus), self.seed, epoch, COPY) < self.copy
            which = random_keys(len(self.corpus), self.seed, epoch, WORD)
            for i in np.flatnonzero(chosen).tolist():
                sources[i], targets[i] = self._without_a_word(sources[i], targets[i], int(which[i]))
        return Rows(sources), Rows(targets)

    def _pieces(self, side: int, epoch: int) -> list[list[int]]:
        """One side of all pairs; sampled in blocks of rows of the corpus, each with a seed of its own."""
        rows, tokenizer = self.rows[side], self.tokenizers[side]
        if not self.sampling or not isinstance(tokenizer, SubwordTokenizer):
            return [rows[i] for i in range(len(rows))]
        texts = [text if fits else "" for text, fits in zip(self._texts[side], self._fits, strict=True)]
        drawn: list[list[int]] = []
        for first in range(0, len(texts), BLOCK):
            seed = int(random_keys(1, self.seed, epoch, PIECES, side, first)[0])
            drawn += tokenizer.sample_all(texts[first : first + BLOCK], seed=seed, alpha=self.sampling)
        # A segmentation that the model or a batch cannot take gives way to the usual one.
        return [one if len(one) + 1 <= self.limit else rows[i] for i, one in enumerate(drawn)]

    def _without_a_word(self, source: list[int], target: list[int], key: int) -> tuple[list[int], list[int]]:
        """The pair with a word that both sides have as UNKNOWN; as it is where they have none."""
        ours, theirs = (
            _words_once(tokenizer.words(tokens))
            for tokenizer, tokens in zip(self.tokenizers, (source, target), strict=True)
        )
        both = [text for text in ours if text in theirs]
        if not both:
            return source, target
        text = both[key % len(both)]
        return _replaced(source, ours[text]), _replaced(target, theirs[text])


class WindowData:
    """A language model's text and its batches: windows of `context` tokens, of which each predicts the next.

    Every document reads START and its tokens, and writes its tokens and END; the documents stand one after another, and
    the whole is cut into windows. So every token and every END is predicted once an epoch. With `shuffle` the first cut
    is at a random place each epoch; without it, for evaluation, at `context`.
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
    ) -> None:
        if isinstance(tokenizer, SubwordTokenizer) and not tokenizer.lossless:
            raise UsageError("a language model needs a lossless tokenizer: this one loses spaces and line breaks")
        if not 1 <= context <= batch_tokens:
            raise UsageError(f"context must be between 1 and batch_tokens ({batch_tokens}), got {context}")
        self.corpus, self.context, self.batch_tokens = corpus, context, batch_tokens
        self.seed, self.shuffle = seed, shuffle
        documents = [_document(tokenizer, text) for text in corpus.source]
        self._inputs = np.concatenate([part for tokens in documents for part in ([START], tokens)]).astype(np.int32)
        self._labels = np.concatenate([part for tokens in documents for part in (tokens, [END])]).astype(np.int32)

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
        return _sha256([self._inputs, self._labels])

    @property
    def padding(self) -> float:
        """The share of padding in all batches: only the first and the last window can be short."""
        return self._sampler(0).padding

    def plan(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch over all processes, as numbers of windows."""
        return self._sampler(epoch).batches(epoch)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch that are left when `start` of its windows are consumed."""
        for ids in batches_from(self.plan(epoch), start):
            yield self.collate(ids, epoch)

    def collate(self, ids: Sequence[int], epoch: int) -> Batch:
        """These windows of that epoch as tensors."""
        ids = list(ids)
        starts, ends = self._spans(np.array(ids, np.int64), epoch)
        lengths = ends - starts
        inputs = np.full((len(ids), int(lengths.max(initial=0))), PAD, np.int64)
        labels = inputs.copy()
        for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
            inputs[row, : end - start] = self._inputs[start:end]
            labels[row, : end - start] = self._labels[start:end]
        return Batch(ids, None, torch.from_numpy(inputs), torch.from_numpy(labels), int(lengths.sum()))

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
        return Sampler(ends - starts, batch_tokens=self.batch_tokens, seed=self.seed, shuffle=self.shuffle)


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[list[int]]:
    """The tokens of each text; some thousand at a time, for lists of numbers take much memory."""
    for first in range(0, len(texts), ENCODED_AT_ONCE):
        yield from tokenizer.encode_all(texts[first : first + ENCODED_AT_ONCE])


def _document(tokenizer: Tokenizer, text: str) -> NDArray[np.int32]:
    """The tokens of a document, by lines: a line break is a token of its own, so the pieces are the same."""
    lines = text.split("\n")
    return Rows(_encoded(tokenizer, [line + "\n" for line in lines[:-1]] + lines[-1:])).flat


def _lengths(rows: tuple[Rows, Rows]) -> NDArray[np.int64]:
    """(N, 2): the lengths of source and target with their end tokens."""
    return np.stack([side.lengths + 1 for side in rows], axis=1)


def _words_once(words: Sequence[Word]) -> dict[str, Word]:
    """The words that stand once in a sentence, by their text, if they are long enough to be copied."""
    counts = Counter(word.text for word in words)
    return {word.text: word for word in words if counts[word.text] == 1 and len(word.text) >= SHORTEST_COPY}


def _replaced(tokens: list[int], word: Word) -> list[int]:
    return [*tokens[: word.start], UNKNOWN, *tokens[word.end :]]


def _sha256(arrays: Iterable[NDArray]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).astype("<i8").tobytes())
        digest.update(b"|")
    return digest.hexdigest()
