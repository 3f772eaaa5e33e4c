"""Facts that choices and forecasts rest on: how much training data there is, and the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from regard.machine import Machine, free_memory, this_machine

__all__ = ["DataFacts", "Machine", "Sentences", "facts_of", "free_memory", "this_machine"]


class Sentences(Protocol):
    """What is counted: a corpus, whose target is None for a language model."""

    @property
    def source(self) -> Sequence[str]: ...

    @property
    def target(self) -> Sequence[str] | None: ...


@dataclass(frozen=True)
class DataFacts:
    """Counts over the training data; `words` and `characters` are those that the model learns to write."""

    samples: int  # pairs, or documents of a language model
    words: int
    characters: int
    distinct_words: int
    shared_letters: float = 1.0  # share of the source's letters that the target has too


def facts_of(corpus: Sentences) -> DataFacts:
    """The facts of a corpus."""
    written = corpus.source if corpus.target is None else corpus.target
    words = characters = 0
    distinct: set[str] = set()
    for text in written:
        parts = text.split()
        words, characters = words + len(parts), characters + len(text)
        distinct.update(parts)
    shared = 1.0
    if corpus.target is not None:
        ours, theirs = _letters(corpus.source), _letters(corpus.target)
        shared = len(ours & theirs) / max(len(ours), 1)
    return DataFacts(len(corpus.source), words, characters, len(distinct), shared)


def _letters(sentences: Sequence[str]) -> set[str]:
    return {letter for text in sentences for letter in set(text) if letter.isalpha()}
