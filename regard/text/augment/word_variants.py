"""Words as they might have stood there: as people type them, and invented ones in the place of names and numbers.

A variant is a function from word to word; word_table.py keeps what it makes of each word.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection

Variant = Callable[[str], str]

INVENTIONS = 16  # invented words for each that may be replaced
DIGITS = 4  # one invention in so many is a number
LETTERS = re.compile(r"[^\W\d_]+|\d")  # runs of letters, and digits one by one
LIGATURES = str.maketrans({"œ": "oe", "Œ": "Oe", "æ": "ae", "Æ": "Ae"})


def bare_letters(word: str) -> str:
    """The word in small letters without accents, as on a keyboard that has none: "Où" is "ou"."""
    parts = unicodedata.normalize("NFD", word.translate(LIGATURES).lower())
    return unicodedata.normalize("NFC", "".join(part for part in parts if not unicodedata.combining(part)))


def curly_quotes(word: str) -> str:
    """The word with the apostrophe that telephones write: "l'eau" is "l’eau"."""
    return word.replace("'", "’")


# How people type: all in small letters, those without accents too, all in capitals, on a telephone.
HABITS: tuple[Variant, ...] = (str.lower, bare_letters, str.upper, curly_quotes)


def shape(word: str) -> str:
    """What a word looks like: "Tom," is "A,", "jazz" is "a", and "8:30" is "0:00"."""
    return LETTERS.sub(lambda found: "0" if found[0].isdigit() else "A" if found[0][0].isupper() else "a", word)


class Invention:
    """Replaces some words by others that do not exist: of letters that follow each other in those words, other digits.

    What it makes of a word is a function of the word, of `number` and of all words, and so the same for both sides of
    a pair. Marks stay where they are: "Tom," may become "Brona,", and "8:30" may become "4:97". Texts have few numbers
    that both sides write in digits, so every fourth `number` makes one of each word: "Tom," may become "381,".
    """

    def __init__(self, words: Collection[str], number: int) -> None:
        self._words, self._number = frozenset(words), number
        self._next: defaultdict[str, list[str]] = defaultdict(list)  # "" stands before the first letter
        for run in (run.lower() for word in sorted(self._words) for run in LETTERS.findall(word)):
            if run.isalpha():
                for letter, after in zip(["", *run], run, strict=False):
                    self._next[letter].append(after)

    def __call__(self, word: str) -> str:
        if word not in self._words:
            return word
        draw = random.Random(f"{self._number} {word}")
        return LETTERS.sub(lambda found: self._invented(found[0], draw), word)

    def _invented(self, run: str, draw: random.Random) -> str:
        if run.isdigit():
            return str(int(10 * draw.random()))
        if self._number % DIGITS == 0:
            return str(int(10 ** (0.3 + 3.7 * draw.random())))  # one to four digits
        letters = ""
        for _ in range(max(2, len(run) + int(4 * draw.random()) - 1)):
            after = self._next.get(letters[-1:]) or self._next[""]
            letters += after[int(len(after) * draw.random())]
        return letters.capitalize() if run[0].isupper() else letters
