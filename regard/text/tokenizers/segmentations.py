"""The segmentations of a word that a subword model allows, for subword regularization.

Kudo 2018, equation 8 (unigram: the best segmentations with probability to the power alpha); Provilkov et al. 2020,
algorithm 1 (BPE dropout). sentencepiece can sample them itself, but its samples differ between processes even with a
seed. So this module lists the choices, and the caller samples.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from math import exp

from sentencepiece import SentencePieceProcessor

from regard.text.tokenizers.placeholder_tokens import PlaceholderTokens
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS

MAX_SEGMENTATIONS = 32  # of a word, from which a unigram model chooses
DROPOUT_DRAWS = 32  # segmentations of a word that are sampled once with dropout, and from which a BPE model chooses
MAX_WORD_CHARACTERS = 64  # longer strings are hardly words, and keep their usual segmentation

Choices = dict[tuple[int, ...], float]  # segmentations and their weights
Pieces = tuple[str, ...]  # a word as pieces


class Segmentations:
    """The segmentations of a word that a model allows, each with its weight."""

    def __init__(self, model: SentencePieceProcessor, *, alpha: float) -> None:
        self._model, self._alpha = model, alpha
        self._placeholders = PlaceholderTokens(model)
        pieces = range(len(SPECIAL_TOKENS), model.get_piece_size())
        self._numbers = {model.id_to_piece(i): i for i in pieces if not model.is_byte(i)}
        self._scores = [model.get_score(i) for i in range(model.get_piece_size())]
        # Scores are log-probabilities in unigram models, and 0, -1, -2, … in BPE models.
        ranked = all(self._scores[i].is_integer() for i in self._numbers.values())
        self._sampled = self._by_dropout if ranked else self._by_score

    def usual(self, word: str) -> Choices:
        """Return the segmentation without sampling, as the only choice."""
        return {tuple(self._placeholders.fold(word, self._model.encode(word))): 1.0}

    def choices(self, word: str) -> Choices:
        """Return the usual segmentation first, even if its weight is 0, and then the others."""
        usual = self.usual(word)
        if len(word) > MAX_WORD_CHARACTERS:
            return usual
        (tokens,) = usual
        return {tokens: 0.0} | self._sampled(word, tokens)

    def _by_score(self, word: str, usual: tuple[int, ...]) -> Choices:
        best = self._model.nbest_encode(word, nbest_size=MAX_SEGMENTATIONS)
        best = [self._placeholders.fold(word, tokens) for tokens in best]
        scored = sorted(((sum(self._scores[i] for i in tokens), tuple(tokens)) for tokens in best), reverse=True)
        if len(scored) == MAX_SEGMENTATIONS:  # the list may contain any of several equally good last ones
            worst = scored[-1][0]
            scored = [entry for entry in scored if entry[0] > worst + 1e-3] or scored[:1]
        return {tokens: exp(self._alpha * (score - scored[0][0])) for score, tokens in scored}

    def _by_dropout(self, word: str, usual: tuple[int, ...]) -> Choices:
        characters = tuple(character for token in usual for character in self._model.id_to_piece(token))
        if any(map(self._model.is_byte, usual)) or not self._numbers.keys() >= set(characters):
            return {usual: 1.0}
        draw, merges = random.Random(f"{self._alpha} {word}"), _Merges(self._numbers, self._scores)
        results = Counter(self._dropped_out(characters, merges, draw) for _ in range(DROPOUT_DRAWS))
        return {tuple(self._numbers[piece] for piece in pieces): float(count) for pieces, count in results.items()}

    def _dropped_out(self, pieces: Pieces, merges: _Merges, draw: random.Random) -> Pieces:
        """Apply the merges of BPE, best first, but drop each with probability alpha in each step."""
        while True:
            for merged in merges[pieces]:
                if draw.random() >= self._alpha:
                    pieces = merged
                    break
            else:
                return pieces


class _Merges(dict[Pieces, list[Pieces]]):
    """Maps the pieces of a word to the results of one merge, best first; cached, because draws of a word repeat."""

    def __init__(self, numbers: dict[str, int], scores: list[float]) -> None:
        self._numbers, self._scores = numbers, scores

    def __missing__(self, pieces: Pieces) -> list[Pieces]:
        joined = [left + right for left, right in pairwise(pieces)]
        known = [i for i, piece in enumerate(joined) if piece in self._numbers]
        ranked = sorted((-self._scores[self._numbers[joined[i]]], i) for i in known)
        self[pieces] = [(*pieces[:i], joined[i], *pieces[i + 2 :]) for _, i in ranked]
        return self[pieces]
