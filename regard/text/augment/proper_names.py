"""Names: words with a capital inside a sentence that training hardly met. A translator copies them as they are.

A model that spells them out piece by piece gets some wrong ("Bordeaux" became "Bordeals"). Not for a language that
writes its nouns with capitals, as German does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

ENDS = ".!?…:"  # of a sentence: what follows has a capital anyway
ELISION = re.compile(r"[^\W\d_]{1,7}['’](?=[^\W\d_])")  # the l' of l'Afrique
TIME = re.compile(r"\d{1,2}[hH]\d{2}")  # has letters and digits, and is no code
SPELLED = 3  # pieces from which a word counts as spelled out


class Spelled(NamedTuple):
    """A word, in how many pieces the tokenizer cuts it, and whether it knows the word without its capital."""

    text: str
    pieces: int
    plain: bool = False


def met_names(texts: Iterable[str], least: int) -> list[str]:
    """The words with a capital inside a sentence that these texts have at least so often."""
    found: Counter[str] = Counter()
    for text in texts:
        words = text.split()
        found.update(core(word) for i, word in enumerate(words) if not _begins(words, i) and _has_capital(word))
    return sorted(word for word, count in found.items() if count >= least)


def find_names(words: Sequence[Spelled], known: Collection[str]) -> Iterator[tuple[int, int]]:
    """Where names stand among the words, from and to: words next to each other are one name, and so are numbers."""
    if not words:
        return
    texts = [word.text for word in words]
    named = [not word.plain and _is_name(texts, i, known) for i, word in enumerate(words)]
    for i in range(len(texts) - 1):  # "Emmanuel" in "Emmanuel Macron": a capital at the beginning says little
        alike = _begins(texts, i) and _has_capital(texts[i]) and texts[i].isalpha() and words[i].pieces >= SPELLED
        named[i] = named[i] or (named[i + 1] and alike)
    kinds = ["name" if named[i] else "number" if core(text).isdigit() else "" for i, text in enumerate(texts)]
    start = 0
    for i in range(1, len(texts) + 1):
        if i < len(texts) and kinds[i] == kinds[start] and not _begins(texts, i):
            continue
        if kinds[start] == "name" or (kinds[start] == "number" and i - start > 1):
            yield start, i
        start = i


def core(word: str) -> str:
    """A word without the marks around it and what is elided before it: "l'Afrique," is "Afrique"."""
    bare = re.sub(r"^\W+|\W+$", "", word)
    return ELISION.sub("", bare, count=1) if bare[:1].islower() else bare


def _has_capital(word: str) -> bool:
    return core(word)[:1].isupper()


def _begins(words: Sequence[str], i: int) -> bool:
    """Whether a sentence begins with word i, or what is quoted."""
    return i == 0 or words[i - 1].rstrip("\"'»”’)")[-1:] in ENDS or not words[i][:1].isalnum()


def _is_name(words: Sequence[str], i: int, known: Collection[str]) -> bool:
    bare = core(words[i])
    if re.search(r"[^\W\d_]\d", bare) and not TIME.fullmatch(bare):
        return True  # Xk42qz9
    return not _begins(words, i) and bare[:1].isupper() and bare not in known
