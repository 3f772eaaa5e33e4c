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


MAIN_CHOICES = (
    "training.device",
    "model.kind",
    "model.layers",
    "model.dim",
    "model.hidden",
    "training.batch_tokens",
    "training.steps",
    "training.validate_every",
)


def choice_lines(choices: Sequence[Choice], elsewhere: str, *, verbose: bool = False) -> list[str]:
    """Describe the choices that say what will be trained and for how long; with `verbose` all of them.

    `elsewhere` says where the others are.
    """
    shown = [choice for choice in choices if verbose or choice.key in MAIN_CHOICES]
    lines = [f"chosen: {choice}" for choice in shown]
    if hidden := len(choices) - len(shown):
        lines.append(f"chosen: {hidden} other settings; {elsewhere}")
    return lines


class Sentences(Protocol):
    """A corpus; its target is None for documents."""

    @property
    def source(self) -> Sequence[str]: ...

    @property
    def target(self) -> Sequence[str] | None: ...


@dataclass(frozen=True)
class DataFacts:
    """Counts over the training data; `words` and `characters` are those that the model learns to generate.

    For images and series, `characters` are pixels and values, and there are no words.
    """

    samples: int  # pairs, documents of a language model, images or windows of a series
    words: int
    characters: int
    distinct_words: int
    shared_letters: float = 1.0  # fraction of the source's letters that also occur in the target
    validation_samples: int = 0
    validation_characters: int = 0
    tokens: int | None = None  # of one pass, where no tokenizer decides: patches of images and series
    shape: tuple[int, ...] = ()  # of an image: channels, height, width


def facts_of(corpus: Sentences, validation: Sentences | None = None) -> DataFacts:
    """Count the samples, words and characters of the training data; of the validation part its size only."""
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
    held_out = () if validation is None else validation.source if validation.target is None else validation.target
    return DataFacts(
        len(corpus.source), words, characters, len(distinct), shared, len(held_out), sum(map(len, held_out))
    )


def _letters(sentences: Sequence[str]) -> set[str]:
    return {letter for text in sentences for letter in set(text) if letter.isalpha()}
