"""Greedy search: the most probable token at each step.

E8.

    R rows   V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from regard.decoding.searches.logit_rules import Rule
from regard.decoding.searches.search import IndependentRows, Inputs, Pick, Run
from regard.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Greedy:
    """Take the most probable token at each step; among equals the one with the lower number. E8."""

    rules: tuple[Rule, ...] = ()

    streams: ClassVar[bool] = True

    def rows(self, alternatives: int) -> int:
        if alternatives != 1:
            raise UsageError(
                f"greedy search finds one text, and alternatives={alternatives}: search with Beam or Sample for more"
            )
        return 1

    def begin(self, inputs: Inputs) -> Run:
        return IndependentRows(inputs, _most_probable)


def _most_probable(logps: Tensor, numbers: Tensor, alternatives: Tensor, step: int) -> Pick:
    return Pick(logps.argmax(-1))
