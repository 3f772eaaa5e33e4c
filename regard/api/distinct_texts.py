"""Alternatives that differ: several hypotheses may decode to the same text, and a user wants different ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from regard.api.results import Translation
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.minimum_risk import MinimumRisk
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Search

BEAM_FACTORS = (1, 2, 4)  # times the width, with all hypotheses of the beam
SAMPLE_FACTORS = (4, 16)  # times the number of samples


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
