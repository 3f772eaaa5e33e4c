"""Random segmentations of words, for subword regularisation.

Kudo 2018, equation 8 (unigram: the best segmentations with probability to the power alpha); Provilkov et al. 2020,
algorithm 1 (BPE dropout). sentencepiece can draw them itself, but draws differ from one process to the next, seeded
or not, so the choices are listed here and the draw is the caller's.
"""

from __future__ import annotations

import random
from bisect import bisect
from itertools import accumulate
from math import exp

from sentencepiece import SentencePieceProcessor

from regard.text.special import SPECIAL_TOKENS

BEST = 32  # segmentations of a word that a unigram model chooses from
DROPOUTS = 32  # segmentations of a word that are drawn once with dropout and then chosen from
LONGEST_WORD = 64  # characters; what is longer is no word, and stays in its usual segmentation
LARGEST_TABLE = 50_000  # words whose choices are remembered


class Segmentations:
    """The ways in which a model may cut a word, each with its probability."""

    def __init__(self, model: SentencePieceProcessor, *, alpha: float) -> None:
        self._model, self._alpha = model, alpha
        self._table: dict[str, tuple[list[list[int]], list[float]]] = {}
        pieces = range(len(SPECIAL_TOKENS), model.get_piece_size())
        self._numbers = {model.id_to_piece(i): i for i in pieces if not model.is_byte(i)}
        self._scores = [model.get_score(i) for i in range(model.get_piece_size())]
        # Scores are logarithms of probabilities in unigram models, and 0, -1, -2, … in BPE models.
        ranked = all(self._scores[i].is_integer() for i in self._numbers.values())
        self._choices = self._by_dropout if ranked else self._by_score

    def choose(self, word: str, fraction: float) -> list[int]:
        """The segmentation that a random number in [0, 1) stands for."""
        entry = self._table.get(word)
        if entry is None:
            if len(self._table) >= LARGEST_TABLE:
                self._table.clear()
            found, weights = self._choices(word) if len(word) <= LONGEST_WORD else ([self._model.encode(word)], [1.0])
            total = sum(weights)
            entry = self._table[word] = found, [weight / total for weight in accumulate(weights)]
        found, limits = entry
        return found[min(bisect(limits, fraction), len(found) - 1)]

    def _by_score(self, word: str) -> tuple[list[list[int]], list[float]]:
        found = self._model.nbest_encode(word, nbest_size=BEST)
        scored = sorted(((sum(self._scores[i] for i in tokens), tokens) for tokens in found), reverse=True)
        if len(scored) == BEST:  # which of equally good ones made it into the list is chance
            worst = scored[-1][0]
            scored = [entry for entry in scored if entry[0] > worst + 1e-3] or scored[:1]
        return [tokens for _, tokens in scored], [exp(self._alpha * (score - scored[0][0])) for score, _ in scored]

    def _by_dropout(self, word: str) -> tuple[list[list[int]], list[float]]:
        usual = self._model.encode(word)
        characters = [character for token in usual for character in self._model.id_to_piece(token)]
        if any(map(self._model.is_byte, usual)) or not self._numbers.keys() >= set(characters):
            return [usual], [1.0]
        draw = random.Random(f"{self._alpha} {word}")
        return [self._dropped_out(characters, draw) for _ in range(DROPOUTS)], [1.0] * DROPOUTS

    def _dropped_out(self, pieces: list[str], draw: random.Random) -> list[int]:
        """The merges of BPE, best first, of which each is left out with probability alpha in each step."""
        while True:
            merges = [
                (self._scores[self._numbers[joined]], -i)
                for i in range(len(pieces) - 1)
                if (joined := pieces[i] + pieces[i + 1]) in self._numbers and draw.random() >= self._alpha
            ]
            if not merges:
                return [self._numbers[piece] for piece in pieces]
            i = -max(merges)[1]
            pieces = [*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :]]
