"""Variants of words: as people type them, and invented words that replace names and numbers.

A variant is a function from word to word; word_table.py stores its result for each word.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection

Variant = Callable[[str], str]

INVENTIONS = 16  # invented words for each word that may be replaced
INVENTIONS_PER_NUMBER = 4  # one invention in four is a number
LETTERS = re.compile(r"[^\W\d_]+|\d")  # runs of letters, and digits one by one
LIGATURES = str.maketrans({"œ": "oe", "Œ": "Oe", "æ": "ae", "Æ": "Ae"})


def bare_letters(word: str) -> str:
    """Lowercase a word and remove its accents, as on a keyboard without them: "Où" becomes "ou"."""
    parts = unicodedata.normalize("NFD", word.translate(LIGATURES).lower())
    return unicodedata.normalize("NFC", "".join(part for part in parts if not unicodedata.combining(part)))


def curly_quotes(word: str) -> str:
    """Write the apostrophe of phone keyboards: "l'eau" becomes "l’eau"."""
    return word.replace("'", "’")


# How people type: in lowercase, in lowercase without accents, in capitals, on a phone.
HABITS: tuple[Variant, ...] = (str.lower, bare_letters, str.upper, curly_quotes)


def shape(word: str) -> str:
    """Return the shape of a word: "A," for "Tom,", "a" for "jazz", and "0:00" for "8:30"."""
    return LETTERS.sub(lambda run: "0" if run[0].isdigit() else "A" if run[0][0].isupper() else "a", word)


class Invention:
    """Replaces words by invented ones: letters from a bigram model of these words, and other digits.

    The result is a function of the word, of `number` and of all words, so it is the same on both sides of a pair.
    Punctuation stays: "Tom," may become "Brona,", and "8:30" may become "4:97". Texts contain few numbers that both
    sides write in digits, so every fourth `number` turns words into numbers: "Tom," may become "381,".
    """

    def __init__(self, words: Collection[str], number: int) -> None:
        self._words, self._number = frozenset(words), number
        self._next: defaultdict[str, list[str]] = defaultdict(list)  # letter -> letters that follow; "" is the start
        for run in (run.lower() for word in sorted(self._words) for run in LETTERS.findall(word)):
            if run.isalpha():
                for letter, after in zip(["", *run], run, strict=False):
                    self._next[letter].append(after)

    def __call__(self, word: str) -> str:
        if word not in self._words:
            return word
        draw = random.Random(f"{self._number} {word}")
        return LETTERS.sub(lambda run: self._invented(run[0], draw), word)

    def _invented(self, run: str, draw: random.Random) -> str:
        if run.isdigit():
            return str(int(10 * draw.random()))
        if self._number % INVENTIONS_PER_NUMBER == 0:
            return str(int(10 ** (0.3 + 3.7 * draw.random())))  # one to four digits
        letters = ""
        for _ in range(max(2, len(run) + int(4 * draw.random()) - 1)):
            after = self._next.get(letters[-1:]) or self._next[""]
            letters += after[int(len(after) * draw.random())]
        return letters.capitalize() if run[0].isupper() else letters
