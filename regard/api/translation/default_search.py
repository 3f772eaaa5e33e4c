"""The search of a translator, and what its rules require."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens
from regard.decoding.searches.search import Search
from regard.errors import UsageError

BEAM = 5


def chosen_search(
    beam: int | None, search: Search | None, alternatives: int, *, default: Mapping[str, Any] | None = None
) -> Search:
    """Return the requested search; by default a beam that is wide enough for the alternatives.

    `default` are the width and the length penalty that the authors of an imported model recommend.
    """
    if beam is not None and search is not None:
        raise UsageError("give beam or search, not both")
    if alternatives < 1:
        raise UsageError(f"alternatives must be at least 1, got {alternatives}")
    if search is not None:
        return search
    if beam is not None and beam < 1:
        raise UsageError(f"beam must be at least 1, got {beam}")
    usual = default or {}
    beam = beam or max(usual.get("beam", BEAM), alternatives)
    if beam == 1:
        return Greedy()
    penalty = usual.get("length_penalty")
    return Beam(beam) if penalty is None else Beam(beam, length_penalty=penalty)


def required_tokens(search: Search) -> int:
    """Return the smallest number of tokens that the rules of a search allow."""
    return max((rule.count for rule in search.rules if isinstance(rule, MinTokens)), default=0)
