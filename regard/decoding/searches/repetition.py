"""Texts that go in circles, or never begin: found, and kept from it.

A weak moment of a model can be its last: what it has written twice looks likely to it a third time, and so on for ever.

    R rows   V vocabulary   T tokens written
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from regard.text.tokenizers.special_tokens import END

COPIES = 2  # of the same, one right after the other, that a text may have


class Circle(NamedTuple):
    """The most copies of the same that stand in a row: in a b c b c b c three copies, of which the first ends at 3."""

    copies: int
    end: int


def find_circle(items: Sequence[object]) -> Circle:
    """The circle of tokens or words with the most copies, of those the one with the shortest; one copy is none."""
    best = Circle(min(len(items), 1), len(items))
    for period in range(1, len(items) // 2 + 1):
        if len(items) // period <= best.copies:
            break
        run = 0  # of items that are equal to the one a period before
        for i in range(period, len(items)):
            run = run + 1 if items[i] == items[i - period] else 0
            if run // period + 1 > best.copies:
                best = Circle(run // period + 1, i + 1 - run)
    return best


def bar_nonsense(logps: Tensor, text: Tensor, written: int) -> None:
    """A rule (rules.py): bar what would complete one copy too many of what was written, and END for empty texts."""
    length = text.shape[1]
    if not written:
        logps[:, END] = -math.inf
    for period in range(1, (written + 1) // (COPIES + 1) + 1):
        tail = text[:, length - ((COPIES + 1) * period - 1) :]
        circling = (tail[:, :-period] == tail[:, period:]).all(1, keepdim=True)  # (R, 1)
        following = tail[:, -period, None]  # (R, 1): the token that would complete the copy
        logps.scatter_(1, following, logps.gather(1, following).masked_fill(circling, -math.inf))
