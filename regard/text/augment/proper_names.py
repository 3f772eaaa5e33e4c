"""Find proper names: capitalized words inside a sentence that are rare in the training data. A translator copies them.

A model that spells a name token by token gets some wrong ("Bordeaux" became "Bordeals"). This does not work for
languages that capitalize all nouns, such as German.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

ENDS = ".!?…:"  # of a sentence: the next word is capitalized anyway
ELISION = re.compile(r"[^\W\d_]{1,7}['’](?=[^\W\d_])")  # the l' of l'Afrique
TIME = re.compile(r"\d{1,2}[hH]\d{2}")  # letters and digits, but not a code
MIN_SPELLED_TOKENS = 3  # from which a word counts as spelled out
PUNCTUATION = re.compile(r"^\W+|\W+$")
CODE = re.compile(r"[^\W\d_]\d")
DIGIT = re.compile(r"\d")
REMEMBERED_WORDS = 2**14  # frequent words are looked at once


class SegmentedWord(NamedTuple):
    """A word, the number of its tokens, and whether it is one token when lowercased."""

    text: str
    tokens: int
    plain: bool = False


def frequent_names(texts: Iterable[str], min_count: int) -> list[str]:
    """Return the capitalized words inside sentences that occur at least `min_count` times in the texts."""
    counts: Counter[str] = Counter()
    for text in texts:
        words = text.split()
        counts.update(core(word) for i, word in enumerate(words) if not _begins(words, i) and _has_capital(word))
    return sorted(word for word, count in counts.items() if count >= min_count)


def find_names(words: Sequence[SegmentedWord], known: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each name; adjacent names are one name, and so are adjacent numbers."""
    if not words:
        return
    texts = [word.text for word in words]
    is_name = [not word.plain and _is_name(texts, i, known) for i, word in enumerate(words)]
    for i in range(len(texts) - 1):  # "Emmanuel" in "Emmanuel Macron": the first word is always capitalized
        spelled = words[i].tokens >= MIN_SPELLED_TOKENS
        may_be_name = _begins(texts, i) and _has_capital(texts[i]) and texts[i].isalpha() and spelled
        is_name[i] = is_name[i] or (is_name[i + 1] and may_be_name)
    kinds = ["name" if is_name[i] else "number" if core(text).isdigit() else "" for i, text in enumerate(texts)]
    start = 0
    for i in range(1, len(texts) + 1):
        if i < len(texts) and kinds[i] == kinds[start] and not _begins(texts, i):
            continue
        if kinds[start] == "name" or (kinds[start] == "number" and i - start > 1):
            yield start, i
        start = i


def may_have_names(text: str) -> bool:
    """Whether `find_names` could find something in a text: it needs a capital after the first letter, or a digit."""
    rest = text[1:]
    return rest != rest.lower() or DIGIT.search(text) is not None


@lru_cache(REMEMBERED_WORDS)
def core(word: str) -> str:
    """Remove punctuation and an elided article from a word: "l'Afrique," becomes "Afrique"."""
    bare = PUNCTUATION.sub("", word)
    return ELISION.sub("", bare, count=1) if bare[:1].islower() else bare


def _has_capital(word: str) -> bool:
    return core(word)[:1].isupper()


def _begins(words: Sequence[str], i: int) -> bool:
    """Whether a sentence or a quotation begins with word i."""
    return i == 0 or words[i - 1].rstrip("\"'»”’)")[-1:] in ENDS or not words[i][:1].isalnum()


def _is_name(words: Sequence[str], i: int, known: Collection[str]) -> bool:
    bare = core(words[i])
    if CODE.search(bare) and not TIME.fullmatch(bare):
        return True  # Xk42qz9
    return not _begins(words, i) and bare[:1].isupper() and bare not in known
