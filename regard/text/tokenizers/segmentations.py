"""The ways in which a subword model may cut a word, for subword regularisation.

Kudo 2018, equation 8 (unigram: the best segmentations with probability to the power alpha); Provilkov et al. 2020,
algorithm 1 (BPE dropout). sentencepiece can draw them itself, but draws differ from one process to the next, seeded
or not, so the choices are listed here and the draw is the caller's.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from math import exp

from sentencepiece import SentencePieceProcessor

from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS

BEST = 32  # segmentations of a word that a unigram model chooses from
DROPOUTS = 32  # segmentations of a word that are drawn once with dropout and then chosen from
LONGEST_WORD = 64  # characters; what is longer is no word, and stays in its usual segmentation

Choices = dict[tuple[int, ...], float]  # segmentations and their weights
Pieces = tuple[str, ...]  # a word as pieces


class Segmentations:
    """The ways in which a model may cut a word, each with its weight."""

    def __init__(self, model: SentencePieceProcessor, *, alpha: float) -> None:
        self._model, self._alpha = model, alpha
        pieces = range(len(SPECIAL_TOKENS), model.get_piece_size())
        self._numbers = {model.id_to_piece(i): i for i in pieces if not model.is_byte(i)}
        self._scores = [model.get_score(i) for i in range(model.get_piece_size())]
        # Scores are logarithms of probabilities in unigram models, and 0, -1, -2, … in BPE models.
        ranked = all(self._scores[i].is_integer() for i in self._numbers.values())
        self._listed = self._by_dropout if ranked else self._by_score

    def usual(self, word: str) -> Choices:
        """The segmentation that the model takes when nothing is drawn, as the only choice."""
        return {tuple(self._model.encode(word)): 1.0}

    def choices(self, word: str) -> Choices:
        """The usual segmentation first, also where it is never drawn, and then the others."""
        usual = self.usual(word)
        if len(word) > LONGEST_WORD:
            return usual
        (tokens,) = usual
        return {tokens: 0.0} | self._listed(word, tokens)

    def _by_score(self, word: str, usual: tuple[int, ...]) -> Choices:
        found = self._model.nbest_encode(word, nbest_size=BEST)
        scored = sorted(((sum(self._scores[i] for i in tokens), tuple(tokens)) for tokens in found), reverse=True)
        if len(scored) == BEST:  # which of equally good ones made it into the list is chance
            worst = scored[-1][0]
            scored = [entry for entry in scored if entry[0] > worst + 1e-3] or scored[:1]
        return {tokens: exp(self._alpha * (score - scored[0][0])) for score, tokens in scored}

    def _by_dropout(self, word: str, usual: tuple[int, ...]) -> Choices:
        characters = tuple(character for token in usual for character in self._model.id_to_piece(token))
        if any(map(self._model.is_byte, usual)) or not self._numbers.keys() >= set(characters):
            return {usual: 1.0}
        draw, merges = random.Random(f"{self._alpha} {word}"), _Merges(self._numbers, self._scores)
        ends = Counter(self._dropped_out(characters, merges, draw) for _ in range(DROPOUTS))
        return {tuple(self._numbers[piece] for piece in end): float(count) for end, count in ends.items()}

    def _dropped_out(self, pieces: Pieces, merges: _Merges, draw: random.Random) -> Pieces:
        """The merges of BPE, best first, of which each is left out with probability alpha in each step."""
        while True:
            for merged in merges[pieces]:
                if draw.random() >= self._alpha:
                    pieces = merged
                    break
            else:
                return pieces


class _Merges(dict[Pieces, list[Pieces]]):
    """A word in pieces to what one merge makes of it, best first; remembered, for draws of one word meet again."""

    def __init__(self, numbers: dict[str, int], scores: list[float]) -> None:
        self._numbers, self._scores = numbers, scores

    def __missing__(self, pieces: Pieces) -> list[Pieces]:
        joined = [one + other for one, other in pairwise(pieces)]
        known = [i for i, piece in enumerate(joined) if piece in self._numbers]
        found = sorted((-self._scores[self._numbers[joined[i]]], i) for i in known)
        self[pieces] = [(*pieces[:i], joined[i], *pieces[i + 2 :]) for _, i in found]
        return self[pieces]
