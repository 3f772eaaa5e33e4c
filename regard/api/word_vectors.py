"""Word vectors with their words: nearest words, analogies, a map, and the files of word2vec and GloVe.

A2; Mikolov et al. 2013, Pennington et al. 2014.

    V words   D width
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.api.html import describe_model, model_html, model_repr
from regard.api.saving import save_face
from regard.errors import ModelError, UsageError
from regard.layers.word_vectors import VectorFormat, read_vectors, write_vectors
from regard.models.config.word_vectors import WordVectorConfig
from regard.models.folder.weights_file import Storage
from regard.models.word_vectors import WordVectorModel
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS
from regard.text.tokenizers.words import WordTokenizer, word_tokenizer

if TYPE_CHECKING:
    from regard.look.pictures.drawing.figures import Picture

PLOTTED = 50  # words of a map, the most frequent ones, unless words are named


class Neighbour(NamedTuple):
    """A word and the cosine of its vector with the one that was asked for."""

    word: str
    similarity: float


class WordVectors:
    """The vectors of a vocabulary; `regard.load` makes one from a folder, `from_file` from a file of vectors.

    `words` are the words, the most frequent first, and `vectors` (V, D) their vectors, float32 on the CPU.
    """

    def __init__(self, model: nn.Module, tokenizer: WordTokenizer, *, info: Mapping[str, Any] | None = None) -> None:
        if not isinstance(model, WordVectorModel):
            raise TypeError(f"model must be a WordVectorModel, got {type(model).__name__}")
        if tokenizer.size != model.config.vocabulary:
            raise ModelError(f"the tokenizer has {tokenizer.size} tokens, but the model {model.config.vocabulary}")
        self.model, self.tokenizer, self.info = model, tokenizer, dict(info or {})
        self.words = tokenizer.vocabulary
        self.vectors = model.vectors.detach()[len(SPECIAL_TOKENS) :].float().cpu()  # (V, D)
        self._directions = F.normalize(self.vectors, dim=1)  # (V, D), of unit length

    @classmethod
    def from_file(cls, path: str | Path, *, limit: int | None = None) -> WordVectors:
        """Read a text file of word2vec or GloVe, of `limit` the first words only."""
        words, vectors = read_vectors(path, limit=limit)
        tokenizer = word_tokenizer(words, [0] * len(words), tokenised=True)
        config = WordVectorConfig(vocabulary=tokenizer.size, dim=vectors.shape[1], method="imported")
        model = WordVectorModel(config).eval()
        with torch.no_grad():
            model.words.weight[: len(SPECIAL_TOKENS)] = 0.0
            model.words.weight[len(SPECIAL_TOKENS) :] = vectors
        return cls(model, tokenizer, info={"kind": config.kind})

    def export(self, path: str | Path, *, format: VectorFormat = "word2vec") -> Path:
        """Write a text file that other programs read; word2vec's format has a first line with both sizes."""
        return write_vectors(path, self.words, self.vectors, format=format)

    def save(self, folder: str | Path, *, storage: Storage = "float32") -> Path:
        """Write a model folder that `regard.load` reads; `storage` as in regard.save_model."""
        return save_face(self.model, folder, tokenizer=self.tokenizer, info=self.info, storage=storage)

    def __repr__(self) -> str:
        return model_repr("WordVectors", describe_model(self.model, self.info))

    def _repr_html_(self) -> str:
        """Display in a notebook."""
        return model_html("WordVectors", describe_model(self.model, self.info), 'vectors.nearest("…")')

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return self.tokenizer.number(word) is not None

    def __getitem__(self, word: str) -> Tensor:
        """Return the vector of a word, (D,)."""
        return self.vectors[self._row(word)]

    def similarity(self, a: str, b: str) -> float:
        """Return the cosine of the vectors of two words, from -1 to 1."""
        return float(self._directions[self._row(a)] @ self._directions[self._row(b)])

    def nearest(self, word: str, count: int = 10) -> list[Neighbour]:
        """Return the words whose vectors have the largest cosine with that of a word."""
        row = self._row(word)
        return self._nearest_to(self._directions[row], count, [row])

    def analogy(self, a: str, b: str, c: str, count: int = 10) -> list[Neighbour]:
        """Complete "a is to b as c is to …": the words nearest to b - a + c, other than these three.

        Mikolov et al. 2013c; all vectors have unit length (Levy & Goldberg 2014, 3CosAdd).
        """
        rows = [self._row(word) for word in (a, b, c)]
        start, end, other = self._directions[rows]
        return self._nearest_to(F.normalize(end - start + other, dim=0), count, rows)

    def plot(self, *words: str | tuple[str, str], path: str | Path | None = None, title: str = "") -> Path | Picture:
        """Draw a map of words by PCA, and arrows for pairs of words; to `path`, or as a Picture for a notebook.

        Without words, the most frequent ones are drawn.
        """
        from regard.look.pictures.drawing.figures import save_or_show
        from regard.look.pictures.word_map import word_map_plot

        pairs = [word for word in words if not isinstance(word, str)]
        named = [part for word in words for part in ([word] if isinstance(word, str) else word)] or self.words[:PLOTTED]
        rows = list(dict.fromkeys(self._row(word) for word in named))
        if len(rows) < 3:
            raise UsageError(f"a map needs at least three different words, got {', '.join(map(self._word, rows))}")
        arrows = [(rows.index(self._row(a)), rows.index(self._row(b))) for a, b in pairs]
        figure = word_map_plot(
            self._directions[rows], [self._word(row) for row in rows], arrows=arrows, title=title or "Word vectors"
        )
        return save_or_show(figure, path)

    def _nearest_to(self, direction: Tensor, count: int, excluded: Sequence[int]) -> list[Neighbour]:
        if count < 1:
            raise UsageError(f"count must be at least 1, got {count}")
        cosines = self._directions @ direction  # (V,)
        cosines[list(excluded)] = -torch.inf
        values, rows = cosines.topk(min(count, len(self.words) - len(set(excluded))))
        return [Neighbour(self._word(row), value) for row, value in zip(rows.tolist(), values.tolist(), strict=True)]

    def _word(self, row: int) -> str:
        return self.words[row]

    def _row(self, word: str) -> int:
        number = self.tokenizer.number(word)
        if number is None:
            similar = difflib.get_close_matches(word.lower(), self.words, n=3)
            hint = f"; similar words: {', '.join(similar)}" if similar else ""
            raise UsageError(f"the word {word!r} is not among the {len(self.words):,} words of the vectors{hint}")
        return number - len(SPECIAL_TOKENS)
