"""Look at the embedding table of a model: its words in the plane, and the nearest words of a word.

A1, A2; Pearson 1901 (principal components).

    N words   D width of a vector
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import DataError
from regard.layers.embedding import Embedding
from regard.text.tokenizers.characters import CharacterTokenizer
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS
from regard.text.tokenizers.tokenizer import SPACE

SHORTEST_WORD = 2  # letters of a subword that counts as a word


@dataclass(frozen=True)
class EmbeddedWords:
    """The words of a model with their vectors, the most frequent first: whole words, or the characters of its text."""

    words: list[str]
    vectors: Tensor  # (N, D)

    def index(self, word: str) -> int:
        """Return the row of a word; DataError if the model has no vector for it."""
        if word not in self.words:
            similar = difflib.get_close_matches(word, self.words, n=3)
            hint = f" Similar words: {', '.join(similar)}." if similar else ""
            raise DataError(f"{word!r} is not one token of this model, so it has no vector.{hint}")
        return self.words.index(word)

    def nearest(self, word: str, count: int = 10) -> list[tuple[str, float]]:
        """Return the words whose vectors have the highest cosine similarity with that of `word`, and the cosines."""
        row = self.index(word)
        unit = F.normalize(self.vectors, dim=-1)
        cosines = unit @ unit[row]  # (N,)
        cosines[row] = -torch.inf
        values, rows = cosines.topk(min(count, len(self.words) - 1))
        return [(self.words[i], value) for i, value in zip(rows.tolist(), values.tolist(), strict=True)]


class Plane(NamedTuple):
    """Vectors projected onto the two directions in which they differ most."""

    points: Tensor  # (N, 2)
    explained: float  # the share of the variance that the two directions have


def word_table(face: Any) -> EmbeddedWords:
    """Return the words of a model that `regard.load` has loaded; of a translator with two tables, those of the source.

    The vectors are those before positions are added. A subword is a word here if it starts a word and has two letters
    or more.
    """
    table = next((module for module in face.model.modules() if isinstance(module, Embedding)), None)
    if table is None:
        raise DataError(f"a model of kind {face.model.config.kind!r} has no embedding table")
    tokenizer = getattr(face, "source_tokenizer", face.tokenizer)
    ids = list(range(len(SPECIAL_TOKENS), tokenizer.size))
    pieces = tokenizer.pieces(ids)
    if isinstance(tokenizer, CharacterTokenizer):
        words = dict(zip(ids, pieces, strict=True))
    else:
        words = {i: piece[1:] for i, piece in zip(ids, pieces, strict=True) if _is_word(piece)}
    return EmbeddedWords(list(words.values()), table.weight.detach().float().cpu()[list(words)])


def principal_plane(vectors: Tensor, *, fitted: int | None = None) -> Plane:
    """Project vectors (N, D) onto the first two principal components of the first `fitted`, by default of all.

    The sign of a component is arbitrary; here its longest entry is positive.
    """
    first = vectors[:fitted].double()
    _, sizes, directions = torch.linalg.svd(first - first.mean(0), full_matrices=False)
    axes = directions[:2]
    longest = axes.gather(1, axes.abs().argmax(1, keepdim=True))  # (2, 1)
    axes = axes * torch.sign(longest)
    variance = sizes.square()
    points = (vectors.double() - first.mean(0)) @ axes.T
    return Plane(points.float(), float(variance[:2].sum() / variance.sum()))


def _is_word(piece: str) -> bool:
    word = piece.removeprefix(SPACE)
    return piece.startswith(SPACE) and len(word) >= SHORTEST_WORD and word.isalpha()
