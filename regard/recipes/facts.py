"""Statistics of the training data, and the choices based on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Choice:
    """A setting that the recipe does not give, with the chosen value and the reason."""

    key: str
    value: Any
    why: str

    def __str__(self) -> str:
        return f"{self.key} = {self.value}: {self.why}"


class Sentences(Protocol):
    """A corpus; its target is None for documents."""

    @property
    def source(self) -> Sequence[str]: ...

    @property
    def target(self) -> Sequence[str] | None: ...


@dataclass(frozen=True)
class DataFacts:
    """Counts over the training data; `words` and `characters` are those that the model learns to generate."""

    samples: int  # pairs, or documents of a language model
    words: int
    characters: int
    distinct_words: int
    shared_letters: float = 1.0  # fraction of the source's letters that also occur in the target


def facts_of(corpus: Sentences) -> DataFacts:
    """Count the samples, words and characters of a corpus."""
    texts = corpus.source if corpus.target is None else corpus.target
    words = characters = 0
    distinct: set[str] = set()
    for text in texts:
        parts = text.split()
        words, characters = words + len(parts), characters + len(text)
        distinct.update(parts)
    shared = 1.0
    if corpus.target is not None:
        source_letters = _letters(corpus.source)
        shared = len(source_letters & _letters(corpus.target)) / max(len(source_letters), 1)
    return DataFacts(len(corpus.source), words, characters, len(distinct), shared)


def _letters(sentences: Sequence[str]) -> set[str]:
    return {letter for text in sentences for letter in set(text) if letter.isalpha()}
