"""A long text in parts that a model can take, and the translation of the whole made of theirs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from regard.api.results import Translation
from regard.text.tokenizers.tokenizer import Word

LINES = re.compile(r"(?<!\s)\s*\n\s*")  # from the first blank on: a try from each would take a time squared
# After a mark and a quote that closes; not after initials and short titles (M. Dupont, Dr. No).
SENTENCES = re.compile(
    r"(?<=[.!?…])(?<!\b[A-Z]\.)(?<!\b[A-Z][a-z]\.)(?:[\"'”’)\]]|\s?»)*\s+(?=[^\s\d.!?…,;:])|(?<=[。！？])(?=.)"
)
CLAUSES = re.compile(r"(?<=[,;:—)])\s+")
WORDS = re.compile(r"\s+")


class Part(NamedTuple):
    """A part of a text, and the blanks after it."""

    text: str
    blanks: str


def split_text(text: str, fits: Callable[[str], bool]) -> list[Part]:
    """The lines of a text, each whole where it fits, else in sentences, those in clauses, words, and at last letters.

    Sentences are parted one by one, for each stands for itself. Of the others as many stay together as fit. The parts
    and their blanks together are the text.
    """
    whole = Part(text, "")
    lines = _cut(whole, _ends(text, LINES))
    return [part for line in lines for part in _fitting(line, fits, (SENTENCES, CLAUSES, WORDS))]


def join_translations(text: str, cut: Sequence[Part], parts: Sequence[Translation]) -> Translation:
    """The translation of a text from those of its parts; alternative k has the k-th best of each."""
    results = []
    for k in range(max(len(part.alternatives) for part in parts)):
        chosen = [part.alternatives[min(k, len(part.alternatives) - 1)] for part in parts]
        full = [one for one in chosen if one.ids]
        results.append(
            Translation(
                source=text,
                text="".join(one.text + part.blanks for one, part in zip(chosen, cut, strict=True)),
                source_tokens=[token for one in full for token in one.source_tokens],
                tokens=[token for one in full for token in one.tokens],
                source_ids=[token for one in full for token in one.source_ids],
                ids=[token for one in full for token in one.ids],
                source_words=_moved([(one.source_words, len(one.source_ids)) for one in full]),
                words=_moved([(one.words, len(one.ids)) for one in full]),
                score=sum(one.score for one in chosen),
                finished=all(one.finished for one in chosen),
                translator=chosen[0].translator,
                parts=chosen,
            )
        )
    for one in results:
        one.alternatives = results
    return results[0]


def _moved(sides: Sequence[tuple[Sequence[Word], int]]) -> list[Word]:
    """The words of parts, each with the number of its tokens, as words of the whole."""
    starts = accumulate((length for _, length in sides), initial=0)
    return [
        Word(word.text, word.start + start, word.end + start)
        for (words, _), start in zip(sides, starts, strict=False)
        for word in words
    ]


def _fitting(part: Part, fits: Callable[[str], bool], rules: Sequence[re.Pattern[str]]) -> Iterator[Part]:
    """The part whole, or cut by the first of the rules, and what is still too long by the next; a word anywhere."""
    if len(part.text) < 2 or fits(part.text):
        yield part
    elif not rules:
        yield from _cut(part, _packed(part.text, range(1, len(part.text)), fits))
    else:
        ends: Iterable[int] = _ends(part.text, rules[0])
        if rules[0] is not SENTENCES:
            ends = _packed(part.text, list(ends), fits)
        for one in _cut(part, ends):
            yield from _fitting(one, fits, rules[1:])


def _ends(text: str, rule: re.Pattern[str]) -> Iterator[int]:
    """Where a rule would cut, the blanks before it."""
    return (found.end() for found in rule.finditer(text))


def _cut(part: Part, ends: Iterable[int]) -> Iterator[Part]:
    """The part, cut at these places."""
    start = 0
    for end in ends:
        text = part.text[start:end].rstrip()
        yield Part(text, part.text[start + len(text) : end])
        start = end
    yield Part(part.text[start:], part.blanks)


def _packed(text: str, ends: Sequence[int], fits: Callable[[str], bool]) -> Iterator[int]:
    """Of the places where a text may be cut, those between which lies as much as fits."""
    start = first = 0
    while first < len(ends):
        last = _furthest(text, start, ends, first, fits)
        if last == len(ends):
            return  # all that is left
        yield ends[last]
        start, first = ends[last], last + 1


def _furthest(text: str, start: int, ends: Sequence[int], first: int, fits: Callable[[str], bool]) -> int:
    """The number of the last place up to which the text from `start` fits, `first` at least; len(ends) is its end.

    Looked for by steps that double and then halve: one by one, what was read would be read again each time.
    """

    def fitting(last: int) -> bool:
        return fits(text[start : ends[last] if last < len(ends) else None].rstrip())

    good, step = first, 1
    while good + step <= len(ends) and fitting(good + step):
        good, step = good + step, 2 * step
    bad = min(good + step, len(ends) + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fitting(middle) else (good, middle)
    return good
