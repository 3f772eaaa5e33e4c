"""Rules for what a search may write: they bar tokens or make them less likely, from what the text holds already.

E8, E10. A rule is any function of the log-probabilities, the text and how much of it is new; a search has as many of
them as it likes. It chooses and ranks by what the rules leave; the log-probabilities that it reports are the model's.

    R rows   V vocabulary   T tokens of the text, the prefix among them   n length of a phrase
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import END


class Rule(Protocol):
    """Changes the log-probabilities (R, V) of what follows each text (R, T) where they stand.

    The last `written` tokens of a text are the search's own, what is before them was given. -inf bars a token. No
    number may rise above 0: a beam relies on scores that only fall.
    """

    def __call__(self, logps: Tensor, text: Tensor, written: int) -> None: ...


@dataclass(frozen=True)
class MinTokens:
    """No END before so many tokens are written."""

    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 0:
            raise UsageError(f"the least number of tokens must be a whole number from 0, got {self.count!r}")

    def __call__(self, logps: Tensor, text: Tensor, written: int) -> None:
        if written < self.count:
            logps[:, END] = -math.inf


@dataclass(frozen=True)
class RepetitionPenalty:
    """What the text holds already is less likely to come again: p becomes p^penalty.

    Keskar et al. 2019, section 4.1, who divide the logit by the penalty; which way that goes depends on the logit's
    sign, and a logarithm of a probability has but one. 1 changes nothing, 1.2 is their choice. The prefix counts.
    """

    penalty: float = 1.2

    def __post_init__(self) -> None:
        if not 1 <= self.penalty < math.inf:
            raise UsageError(f"a repetition penalty must be a number from 1, got {self.penalty!r}")

    def __call__(self, logps: Tensor, text: Tensor, written: int) -> None:
        logps.scatter_(1, text, logps.gather(1, text) * self.penalty)


@dataclass(frozen=True)
class NoRepeat:
    """No phrase of so many tokens comes twice; Paulus et al. 2018, section 2.5. The prefix counts."""

    length: int = 3

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, int) or self.length < 1:
            raise UsageError(f"the length of a phrase must be a whole number from 1, got {self.length!r}")

    def __call__(self, logps: Tensor, text: Tensor, written: int) -> None:
        if text.shape[1] < self.length:
            return
        phrases = text.unfold(1, self.length, 1)  # (R, T - n + 1, n)
        begun = text[:, text.shape[1] - self.length + 1 :]  # (R, n - 1)
        again = (phrases[:, :, :-1] == begun[:, None]).all(-1)  # (R, T - n + 1)
        most = torch.zeros_like(again, dtype=logps.dtype).masked_fill(again, -math.inf)
        logps.scatter_reduce_(1, phrases[:, :, -1], most, "amin")  # a token may follow in several places


def apply_rules(rules: Sequence[Rule], logps: Tensor, prefix: Tensor, written: Tensor) -> Tensor:
    """What the rules make of the log-probabilities (R, V) after prefix and text. Where nothing is left, END is."""
    changed, text = logps.clone(), torch.cat([prefix, written], dim=1)  # (R, T)
    for rule in rules:
        rule(changed, text, written.shape[1])
    stuck = changed.amax(1) == -math.inf
    changed[:, END] = torch.where(stuck, logps[:, END], changed[:, END])
    return changed
