"""Augment the pairs of an epoch: sample segmentations, hide or invent words, imitate how people type.

All of it is a function of (seed, epoch), for all pairs at once. N pairs   W words of a side
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError
from regard.text.augment.copied_words import SharedWords, shared_words
from regard.text.augment.word_variants import HABITS, INVENTIONS, Invention, Variant
from regard.text.batches.batch import TokenRows
from regard.text.batches.token_cache import cache_key, cached_arrays
from regard.text.random_streams import random_fractions, random_keys
from regard.text.tokenizers.subwords import SubwordTokenizer
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.word_table import MAX_SEGMENTED_WORDS, WordTable, table_arrays

COPY, WORD, PIECES, HABIT, INVENT = range(2, 7)  # random streams, after those of the sampler

Words = tuple[NDArray[np.int32], NDArray[np.int32]]  # (W,) of source and target, as numbers in the word tables


class Augmentations:
    """The words of all pairs and their augmentation; PairData describes the settings."""

    def __init__(
        self,
        tokenizers: tuple[Tokenizer, Tokenizer],
        texts: tuple[Sequence[str], Sequence[str]],
        *,
        seed: int,
        sampling: float,
        copy: float,
        invent: float,
        typed: float,
        folder: Path | None,
    ) -> None:
        source, target = tokenizers
        if not isinstance(source, SubwordTokenizer) or not isinstance(target, SubwordTokenizer):
            raise UsageError(
                "sampling, copy, invent and typed need subword tokenizers, but one side is tokenized by characters"
            )
        self.seed, self.copy, self.invent, self.typed = seed, copy, invent, typed
        self.copies = _copies(source, texts[0], target, texts[1], folder) if copy or invent else None

        @cache
        def inventions() -> list[Variant]:
            assert self.copies is not None
            words = [word for text in texts[0] for word in source.cut(text)]
            shared = {words[i] for i in self.copies.positions[0].tolist()}
            return [Invention(shared, number) for number in range(INVENTIONS)]

        def table(side: int, tokenizer: SubwordTokenizer, habits: Sequence[Variant]) -> WordTable:
            def variants() -> list[Variant]:
                return [*habits, *(inventions() if invent else [])]

            names = [vary.__name__ for vary in habits] + (["invented", *texts[1 - side]] if invent else [])
            cache_folder = folder and folder / ("source-words", "target-words")[side]
            return _word_table(tokenizer, texts[side], sampling, cache_folder, variants, names)

        self.tables = (table(0, source, HABITS if typed else ()), table(1, target, ()))
        self.first_invention = tuple(len(word_table.variants) - INVENTIONS for word_table in self.tables)

    def usual_lengths(self) -> NDArray[np.int64]:
        """Return (N,): the tokens of the longer side with its end token, with the usual segmentation of each word."""
        source, target = (table.usual_lengths() for table in self.tables)
        return np.maximum(source, target) + 1

    def draw(self, epoch: int, *, limit: int) -> tuple[TokenRows, TokenRows]:
        """Return both sides with the words and segmentations of that epoch, at most `limit` tokens each."""
        words, hidden = self._words(epoch, limit), None
        if self.copies is not None and self.copy:
            chosen = self.copies.chosen(self.copy, (self.seed, epoch, COPY), (self.seed, epoch, WORD))
            hidden = [positions[chosen] for positions in self.copies.positions]
        source, target = (
            table.draw(
                random_keys(len(table), self.seed, epoch, PIECES, side),
                limit=limit,
                hidden=None if hidden is None else hidden[side],
                words=words[side],
            )
            for side, table in enumerate(self.tables)
        )
        return source, target

    def _words(self, epoch: int, limit: int) -> Words:
        """Return the words of both sides; a pair that would become too long keeps its original words."""
        if not self.typed and not self.invent:
            return self.tables[0].words, self.tables[1].words
        original, new = [table.words for table in self.tables], [table.words.copy() for table in self.tables]
        if self.typed:
            new[0] = self._as_typed(epoch)
        if self.copies is not None and self.invent:
            chosen = self.copies.chosen(self.invent, (self.seed, epoch, INVENT), (self.seed, epoch, INVENT, 1))
            which = (random_keys(len(chosen), self.seed, epoch, INVENT, 2) % np.uint64(INVENTIONS)).astype(np.int64)
            # "Tom" may occur in every second pair: inventions for other names replace it, too.
            others = self.copies.like(chosen, random_keys(len(chosen), self.seed, epoch, INVENT, 3))
            for side, (table, positions) in enumerate(zip(self.tables, self.copies.positions, strict=True)):
                invented = table.variants[self.first_invention[side] + which, original[side][positions[others]]]
                new[side][positions[chosen]] = invented
        too_long = np.logical_or(*(table.usual_lengths(x) > limit for table, x in zip(self.tables, new, strict=True)))
        source, target = (
            np.where(np.repeat(too_long, table.counts), before, after)
            for table, before, after in zip(self.tables, original, new, strict=True)
        )
        return source, target

    def _as_typed(self, epoch: int) -> NDArray[np.int32]:
        """Return the words of the source, a fraction of the sentences with one of the typing habits."""
        table = self.tables[0]
        habits = 1 + (random_keys(len(table), self.seed, epoch, HABIT, 1) % np.uint64(len(HABITS))).astype(np.int64)
        habits[random_fractions(len(table), self.seed, epoch, HABIT) >= self.typed] = 0  # the word itself
        return table.variants[np.repeat(habits, table.counts), table.words]


def _word_table(
    tokenizer: SubwordTokenizer,
    texts: Sequence[str],
    alpha: float,
    folder: Path | None,
    variants: Callable[[], list[Variant]],
    names: Sequence[str],
) -> WordTable:
    """Return the words of all texts, their variants and their segmentations; for alpha 0 only the usual one."""
    key = "" if folder is None else cache_key("words and variants", str(alpha), *names, *tokenizer.save(), *texts)
    segmentations, max_words = tokenizer.segmentations(alpha), MAX_SEGMENTED_WORDS if alpha else 0
    return WordTable(
        cached_arrays(
            folder,
            key,
            lambda: table_arrays(map(tokenizer.cut, texts), segmentations, max_words=max_words, variants=variants()),
        )
    )


def _copies(
    source: SubwordTokenizer,
    sources: Sequence[str],
    target: SubwordTokenizer,
    targets: Sequence[str],
    folder: Path | None,
) -> SharedWords:
    """Return the words that both sides of each pair share."""
    key = "" if folder is None else cache_key("copies and groups", *source.save(), *target.save(), *sources, *targets)
    arrays = cached_arrays(
        folder and folder / "copies", key, lambda: shared_words(map(source.cut, sources), map(target.cut, targets))
    )
    return SharedWords(arrays)
