"""Convert words with links to text: elision, contraction, a or an, spaces, and the alignment.

A word has links, small numbers; a French and an English word are aligned if they share a link.
"""

from __future__ import annotations

import re
from typing import NamedTuple

Word = tuple[str, tuple[int, ...]]


class Phrase(NamedTuple):
    """The same phrase in both languages, each in its word order."""

    french: list[Word]
    english: list[Word]


NOTHING = Phrase([], [])

VOWELS = frozenset("aeiouhâàéèêëîïôöœAEIOUHÂÀÉÈÊÎÔŒ")
# Words with an aspirated h, and others before which le is not elided: le hibou, le huit, le onze.
NO_ELISION = frozenset({"hibou", "hiboux", "homard", "homards", "haricots", "huit", "onze"})
ELIDED = {w: w[:-1] + "'" for w in ("le", "la", "je", "me", "te", "se", "ne", "de", "que", "ce")}
CONTRACTIONS = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}

# English words whose first letter misleads: an hour, a university.
AN = frozenset({"hour", "honest"})
A = frozenset({"university", "useful", "European", "one"})


def starts_with_vowel(word: str) -> bool:
    """Whether le and la lose their vowel before this French word."""
    return (word[0] in VOWELS and word not in NO_ELISION) or word == "y"


def elide(words: list[Word]) -> list[Word]:
    """Elide: le arbre -> l'arbre, que il -> qu'il, si il -> s'il; they stay two words."""
    result = list(words)
    for i in range(len(words) - 1):
        text, links = words[i]
        if text in ELIDED and starts_with_vowel(words[i + 1][0]):
            result[i] = (ELIDED[text], links)
        elif text == "si" and words[i + 1][0] in ("il", "ils"):
            result[i] = ("s'", links)
    return result


def prepose(preposition: Word, words: list[Word]) -> list[Word]:
    """Put a preposition before a noun phrase: de + le jardin -> du jardin, one word with the links of both.

    Elision comes first: de + le arbre stays de l'arbre.
    """
    article = words[0][0]
    contracted = CONTRACTIONS.get((preposition[0], article))
    if contracted is None or (article == "le" and starts_with_vowel(words[1][0])):
        return [preposition, *words]
    return [(contracted, preposition[1] + words[0][1]), *words[1:]]


def choose_articles(words: list[Word]) -> list[Word]:
    """Choose between a and an: a apple -> an apple."""
    result = list(words)
    for i in range(len(words) - 1):
        if words[i][0] == "a":
            after = words[i + 1][0]
            if after in AN or (after[0] in "aeiouAEIOU" and after not in A):
                result[i] = ("an", words[i][1])
    return result


def join(words: list[Word]) -> str:
    """Join words to a capitalized string, without spaces after apostrophes and before punctuation."""
    text = " ".join([word for word, _ in words])
    text = text.replace("' ", "'").replace(" .", ".").replace(" ,", ",").replace(" ?", "?")
    return text[0].upper() + text[1:]


def align(phrase: Phrase) -> tuple[tuple[int, int], ...]:
    """Return the pairs (French word, English word) that share a link."""
    english_words: dict[int, list[int]] = {}  # by link
    for j, (_, links) in enumerate(phrase.english):
        for link in links:
            english_words.setdefault(link, []).append(j)
    return tuple(
        sorted(
            {
                (i, j)
                for i, (_, links) in enumerate(phrase.french)
                for link in links
                for j in english_words.get(link, ())
            }
        )
    )


def split_words(text: str) -> list[str]:
    """Split a text into the words of the alignments: at spaces, after apostrophes and around punctuation."""
    return re.findall(r"[^\s'’.,;:?!\"]+['’]?|\S", text)
