"""Degenerate output: texts that repeat the same words without end, or that are empty. Find them, and bar them.

What a model has written twice looks likely to it a third time, and so it may go on for ever.

    R rows   V vocabulary   T tokens of the text
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from regard.text.tokenizers.special_tokens import END

if TYPE_CHECKING:
    from torch import Tensor

MAX_COPIES = 2  # of the same tokens, one right after the other, that a text may have


class Repetition(NamedTuple):
    """Consecutive copies of the same items: in `a b c b c b c` there are three, of which the first ends at 3."""

    copies: int
    end: int  # of the first copy


def find_repetition(items: Sequence[object]) -> Repetition:
    """Return the repetition of tokens or words with the most copies, among equals the shortest; one copy is none."""
    best = Repetition(min(len(items), 1), len(items))
    for period in range(1, len(items) // 2 + 1):
        if len(items) // period <= best.copies:
            break
        run = 0  # consecutive items that equal the item one period before
        for i in range(period, len(items)):
            run = run + 1 if items[i] == items[i - period] else 0
            if run // period + 1 > best.copies:
                best = Repetition(run // period + 1, i + 1 - run)
    return best


@dataclass(frozen=True)
class BarDegenerateOutput:
    """A rule (logit_rules.py): bar tokens that would complete one copy too many, and END for empty texts."""

    ends: tuple[int, ...] = (END,)

    def __call__(self, logps: Tensor, text: Tensor, written: int) -> None:
        length = text.shape[1]
        if not written:
            logps[:, list(self.ends)] = -math.inf
        for period in range(1, (written + 1) // (MAX_COPIES + 1) + 1):
            tail = text[:, length - ((MAX_COPIES + 1) * period - 1) :]
            repeats = (tail[:, :-period] == tail[:, period:]).all(1, keepdim=True)  # (R, 1)
            following = tail[:, -period, None]  # (R, 1): the token that would complete the copy
            logps.scatter_(1, following, logps.gather(1, following).masked_fill(repeats, -math.inf))


bar_degenerate_output = BarDegenerateOutput()
