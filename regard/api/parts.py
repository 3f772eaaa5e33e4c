"""A long text in parts that a model can take, and the translation of the whole made of theirs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from regard.api.results import Translation
from regard.text.tokenizer import Word

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
    """The lines of a text, each whole where it fits, else in sentences, and those in clauses, and those in words.

    Sentences are parted one by one, for each stands for itself. Of clauses and words as many stay together as fit. What
    is one word is never parted. The parts and their blanks together are the text.
    """
    return [part for line in _cut(Part(text, ""), LINES) for part in _fitting(line, fits, (SENTENCES, CLAUSES, WORDS))]


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
    if not rules or not part.text or fits(part.text):
        yield part
        return
    rule, *others = rules
    found = _cut(part, rule)
    if rule is not SENTENCES:
        found = _packed(found, fits)
    for one in found:
        yield from _fitting(one, fits, others)


def _cut(part: Part, rule: re.Pattern[str]) -> list[Part]:
    """The part, cut wherever the rule holds."""
    cut, start = [], 0
    for found in rule.finditer(part.text):
        blanks = found[0][len(found[0].rstrip()) :]  # a closing quote before them stays with its sentence
        cut.append(Part(part.text[start : found.end() - len(blanks)], blanks))
        start = found.end()
    return [*cut, Part(part.text[start:], part.blanks)]


def _packed(parts: Sequence[Part], fits: Callable[[str], bool]) -> list[Part]:
    """Neighbours together, as many as fit."""
    packed = [parts[0]]
    for part in parts[1:]:
        both = packed[-1].text + packed[-1].blanks + part.text
        if fits(both):
            packed[-1] = Part(both, part.blanks)
        else:
            packed.append(part)
    return packed
