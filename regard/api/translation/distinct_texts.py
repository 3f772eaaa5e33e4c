"""Alternatives that differ: several hypotheses may decode to the same text, and a user wants different ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from regard.api.results import Translation
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.minimum_risk import MinimumRisk
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Search

BEAM_FACTORS = (1, 2, 4)  # times the width, with all hypotheses of the beam
SAMPLE_FACTORS = (4, 16)  # times the number of samples


def find_distinct(
    translations: Callable[[Sequence[int], Search, int], list[list[Translation]]],
    sentences: int,
    search: Search,
    alternatives: int,
) -> list[list[Translation]]:
    """Return up to `alternatives` translations of each sentence, all with different texts.

    `translations(which, search, count)` searches for `count` translations of the sentences with these indices. A
    sentence with too few different texts is searched again, wider each time.
    """
    if alternatives == 1:
        return translations(range(sentences), search, 1) if sentences else []
    results: list[list[Translation]] = [[] for _ in range(sentences)]
    for wider, count in chain([(search, alternatives)], wider_searches(search, alternatives)):
        missing = [i for i, texts in enumerate(results) if len(texts) < alternatives]
        if not missing:
            break
        for i, texts in zip(missing, translations(missing, wider, count), strict=True):
            results[i] = without_copies([*results[i], *texts])[:alternatives]
    return results


def without_copies(translations: Iterable[Translation]) -> list[Translation]:
    """Return the first translation with each text; spaces at the ends do not count."""
    first: dict[str, Translation] = {}
    for translation in translations:
        first.setdefault(translation.text.strip(), translation)
    return list(first.values())


def wider_searches(search: Search, alternatives: int) -> Iterator[tuple[Search, int]]:
    """Yield searches that find more hypotheses, with the number of hypotheses to ask for."""
    if isinstance(search, Beam):
        for factor in BEAM_FACTORS:
            yield replace(search, width=factor * search.width), factor * search.width
    elif isinstance(search, Sample):
        for factor in SAMPLE_FACTORS:
            yield search, factor * alternatives
    elif isinstance(search, MinimumRisk):
        yield search, search.candidates


def linked(translations: list[Translation]) -> Translation:
    """Return the best of several translations, each with all of them as its alternatives."""
    for translation in translations:
        translation.alternatives = translations
    return translations[0]
