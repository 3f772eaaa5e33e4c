"""Put the tags of a segment into its translation: each around the words that are aligned with those it was around.

Each element occurs exactly once, elements stay inside those that contain them, and none overlap. So where two would
overlap, because their words are mixed in the translation, the later one begins where the first one ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from regard.serving.markup.segments import Element, Segment

if TYPE_CHECKING:
    from regard.api.results import Translation


class Words(NamedTuple):
    """A text, and where its words are in it."""

    text: str
    places: list[tuple[int, int]]


def translated_segment(segment: Segment, translation: Translation) -> Segment:
    """Return the translation of a segment, with its elements."""
    text = translation.text
    if not segment.elements:
        return Segment(text, [], segment.before, segment.after)
    if not translation.ids:  # copied
        source = target = Words(segment.text, list(find_words(segment.text, segment.text.split())))
        pairs = [(i, i) for i in range(len(source.places))]
    else:
        alignment = translation.alignment()
        source = Words(segment.text, list(find_words(segment.text, alignment.source[:-1])))
        target = Words(text, list(find_words(text, alignment.target[:-1])))
        pairs = alignment.pairs
    placer = Placer(source, target, pairs)
    return Segment(text, placer.place(segment.elements, 0, len(text)), segment.before, segment.after)


def find_words(text: str, words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the place of each word in a text; one that is not in it has an empty place after the word before."""
    end = 0
    for word in words:
        start = text.find(word, end)
        start, end = (end, end) if start < 0 else (start, start + len(word))
        yield start, end


class Placer:
    """Finds the places of elements in a translation; `pairs` are (source word, target word)."""

    def __init__(self, source: Words, target: Words, pairs: Collection[tuple[int, int]]) -> None:
        self.source, self.target = source, target
        self.aligned: dict[int, list[int]] = {}  # the target words of each source word
        for i, j in pairs:
            if i < len(source.places) and j < len(target.places):
                self.aligned.setdefault(i, []).append(j)

    def place(self, elements: Sequence[Element], start: int, end: int) -> list[Element]:
        """Return the elements at their places in the translation, all between `start` and `end`."""
        found = sorted(((*self._range(element, start, end), i) for i, element in enumerate(elements)))
        placed = []
        for first, last, i in found:
            first = min(max(first, start), end)
            start = last = min(max(first, last), end)
            element = elements[i]
            children = self.place(element.children, first, last)
            placed.append(replace(element, start=first, end=last, children=children))
        return placed

    def _range(self, element: Element, start: int, end: int) -> tuple[int, int]:
        words = [i for i, (a, b) in enumerate(self.source.places) if a < element.end and element.start < b]
        targets = self._targets(words, start, end)
        if element.start == element.end or not words or not targets:
            position = self._point(element.start, start, end)
            return position, position
        first, last = self.target.places[min(targets)][0], self.target.places[max(targets)][1]
        if words == [*range(len(self.source.places))]:  # all of the text, also what is aligned with nothing
            first, last = 0, len(self.target.text)
        if is_punctuation(self.source.text[: element.start].rstrip()[-1:]):
            while first < last and not self.target.text[first].isalnum():
                first += 1
        if is_punctuation(self.source.text[element.end :].lstrip()[:1]):
            while first < last and not self.target.text[last - 1].isalnum():
                last -= 1
        return first, last

    def _targets(self, words: Sequence[int], start: int, end: int) -> list[int]:
        """Return the target words of source words that are between `start` and `end`."""
        places = self.target.places
        return [j for i in words for j in self.aligned.get(i, ()) if start <= places[j][0] < places[j][1] <= end]

    def _point(self, offset: int, start: int, end: int) -> int:
        """Return the place of what has no words: before the next word, or after the word that it touches."""
        before = [i for i, (_, b) in enumerate(self.source.places) if b <= offset]
        after = [i for i, (a, _) in enumerate(self.source.places) if a >= offset]
        if not before or not after:
            return start if not before else end
        touches = not self.source.text[offset - 1].isspace()
        for i in [before[-1], *after] if touches else after:
            if targets := self._targets([i], start, end):
                is_before = i == before[-1]
                return self.target.places[max(targets)][1] if is_before else self.target.places[min(targets)][0]
        return end


def is_punctuation(text: str) -> bool:
    return bool(text) and not any(map(str.isalnum, text))
