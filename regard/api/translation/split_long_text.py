"""Split a long text into parts that fit a model, and join their translations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from regard.api.results import Translation
from regard.api.translation.tokens_and_words import JoinedTokens

LINES = re.compile(r"(?<!\s)\s*\n\s*")  # starts at the first blank; without the lookbehind, time is quadratic
# After final punctuation and closing quotes; not after initials and short titles (M. Dupont, Dr. No).
SENTENCES = re.compile(
    r"(?<=[.!?…])(?<!\b[A-Z]\.)(?<!\b[A-Z][a-z]\.)(?:[\"'”’)\]]|\s?»)*\s+(?=[^\s\d.!?…,;:])|(?<=[。！？])(?=.)"
)
CLAUSES = re.compile(r"(?<=[,;:—)])\s+")
WORDS = re.compile(r"\s+")


class TextPart(NamedTuple):
    """A part of a text, and the blanks after it."""

    text: str
    blanks: str


def split_text(text: str, fits: Callable[[str], bool]) -> list[TextPart]:
    """Split a text into lines; split a line that does not fit into sentences, then clauses, words, and characters.

    Each sentence becomes a part of its own. Clauses, words and characters are grouped into the longest parts that fit.
    The parts and the blanks after them, concatenated, are the text.
    """
    whole = TextPart(text, "")
    if "\n" not in text and fits(text):  # most texts
        return [whole]
    lines = _cut(whole, _ends(text, LINES))
    return [part for line in lines for part in _fitting(line, fits, (SENTENCES, CLAUSES, WORDS))]


def join_translations(text: str, cut: Sequence[TextPart], parts: Sequence[Translation]) -> Translation:
    """Join the translations of the parts of a text; alternative k consists of the k-th best of each part."""
    results = []
    for k in range(max(len(part.alternatives) for part in parts)):
        chosen = [part.alternatives[min(k, len(part.alternatives) - 1)] for part in parts]
        nonempty = [part for part in chosen if part.ids]
        results.append(
            Translation(
                source=text,
                text="".join(part.text + source.blanks for part, source in zip(chosen, cut, strict=True)),
                source_ids=[token for part in nonempty for token in part.source_ids],
                ids=[token for part in nonempty for token in part.ids],
                score=sum(part.score for part in chosen),
                finished=all(part.finished for part in chosen),
                translator=chosen[0].translator,
                pieces=JoinedTokens(nonempty),
                parts=chosen,
            )
        )
    for result in results:
        result.alternatives = results
    return results[0]


def _fitting(part: TextPart, fits: Callable[[str], bool], rules: Sequence[re.Pattern[str]]) -> Iterator[TextPart]:
    """Yield the part if it fits; else split it by the first rule, and parts that do not fit by the next rules."""
    if len(part.text) < 2 or fits(part.text):
        yield part
    elif not rules:
        yield from _cut(part, _fewest_cuts(part.text, range(1, len(part.text)), fits))
    else:
        ends: Iterable[int] = _ends(part.text, rules[0])
        if rules[0] is not SENTENCES:
            ends = _fewest_cuts(part.text, list(ends), fits)
        for piece in _cut(part, ends):
            yield from _fitting(piece, fits, rules[1:])


def _ends(text: str, rule: re.Pattern[str]) -> Iterator[int]:
    """Yield the offsets at which a rule splits a text, after the blanks."""
    return (match.end() for match in rule.finditer(text))


def _cut(part: TextPart, ends: Iterable[int]) -> Iterator[TextPart]:
    """Split a part at these offsets."""
    start = 0
    for end in ends:
        text = part.text[start:end].rstrip()
        yield TextPart(text, part.text[start + len(text) : end])
        start = end
    yield TextPart(part.text[start:], part.blanks)


def _fewest_cuts(text: str, ends: Sequence[int], fits: Callable[[str], bool]) -> Iterator[int]:
    """Choose among the offsets at which a text may be split, so that each part is as long as fits."""
    start = first = 0
    while first < len(ends):
        last = _furthest(text, start, ends, first, fits)
        if last == len(ends):
            return  # the rest fits
        yield ends[last]
        start, first = ends[last], last + 1


def _furthest(text: str, start: int, ends: Sequence[int], first: int, fits: Callable[[str], bool]) -> int:
    """Return the index of the last offset up to which the text from `start` fits, at least `first`; len(ends): all.

    Exponential and then binary search: trying all offsets would tokenize the same text again and again.
    """

    def fits_to(last: int) -> bool:
        return fits(text[start : ends[last] if last < len(ends) else None].rstrip())

    good, step = first, 1
    while good + step <= len(ends) and fits_to(good + step):
        good, step = good + step, 2 * step
    bad = min(good + step, len(ends) + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits_to(middle) else (good, middle)
    return good
