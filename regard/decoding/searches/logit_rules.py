"""Rules for what a search may write: they bar tokens or make them less likely, depending on the text so far.

E8, E10. A rule is any function of the log-probabilities, the text, and the number of its new tokens; a search has any
number of rules. It chooses and ranks by the log-probabilities after the rules, and reports those of the model.

    R rows   V vocabulary   T tokens of the text, the prefix included   n length of a phrase
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from regard.errors import UsageError
from regard.machine.lazy_torch import torch
from regard.text.tokenizers.special_tokens import DEFAULT, END, SpecialTokens

if TYPE_CHECKING:
    from torch import Tensor


class Rule(Protocol):
    """Changes the log-probabilities (R, V) of the token after each text (R, T), in place.

    The search has written the last `written` tokens of a text; those before are the prefix. -inf bars a token. No
    value may rise above 0: beam search relies on scores that never increase.
    """

    def __call__(self, logps: Tensor, text: Tensor, written: int) -> None: ...


@dataclass(frozen=True)
class MinTokens:
    """Bar END until `count` tokens are written. The search replaces `ends` by the end tokens of its model."""

    count: int
    ends: tuple[int, ...] = (END,)

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 0:
            raise UsageError(f"the minimum number of tokens must be an integer of at least 0, got {self.count!r}")

    def __call__(self, logps: Tensor, text: Tensor, written: int) -> None:
        if written < self.count:
            logps[:, list(self.ends)] = -math.inf


@dataclass(frozen=True)
class RepetitionPenalty:
    """Make tokens that the text already contains less likely: p becomes p^penalty.

    Keskar et al. 2019, section 4.1, divide the logit by the penalty; the effect of that depends on the sign of the
    logit, while a log-probability is never positive. 1 changes nothing, they use 1.2. The prefix counts.
    """

    penalty: float = 1.2

    def __post_init__(self) -> None:
        if not 1 <= self.penalty < math.inf:
            raise UsageError(f"a repetition penalty must be a number from 1, got {self.penalty!r}")

    def __call__(self, logps: Tensor, text: Tensor, written: int) -> None:
        logps.scatter_(1, text, logps.gather(1, text) * self.penalty)


@dataclass(frozen=True)
class NoRepeat:
    """Bar a second occurrence of any phrase of `length` tokens; Paulus et al. 2018, section 2.5. The prefix counts."""

    length: int = 3

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, int) or self.length < 1:
            raise UsageError(f"the length of a phrase must be a whole number from 1, got {self.length!r}")

    def __call__(self, logps: Tensor, text: Tensor, written: int) -> None:
        if text.shape[1] < self.length:
            return
        phrases = text.unfold(1, self.length, 1)  # (R, T - n + 1, n)
        begun = text[:, text.shape[1] - self.length + 1 :]  # (R, n - 1)
        repeats = (phrases[:, :, :-1] == begun[:, None]).all(-1)  # (R, T - n + 1)
        bounds = torch.zeros_like(repeats, dtype=logps.dtype).masked_fill(repeats, -math.inf)
        logps.scatter_reduce_(1, phrases[:, :, -1], bounds, "amin")  # a token may end several phrases


@dataclass(frozen=True)
class EachOnce:
    """Write each of `tokens` exactly once, and none of `barred`; the prefix counts.

    Where the model would end the text while tokens are missing, only these may follow. The search replaces `ends` by
    the end tokens of its model.
    """

    tokens: tuple[int, ...]
    barred: tuple[int, ...] = ()
    ends: tuple[int, ...] = (END,)

    def __call__(self, logps: Tensor, text: Tensor, written: int) -> None:
        tokens = torch.tensor(self.tokens, dtype=torch.long, device=text.device)  # (P,)
        used = (text[:, :, None] == tokens).any(1)  # (R, P)
        missing = ~used.all(1)  # (R,)
        ends = missing & torch.isin(logps.argmax(1), logps.new_tensor(self.ends, dtype=torch.long))
        logps[:, list(self.barred)] = -math.inf
        allowed = logps[:, tokens].masked_fill(used, -math.inf)  # (R, P)
        logps.masked_fill_(ends[:, None], -math.inf)
        for end in self.ends:
            logps[:, end] = logps[:, end].masked_fill(missing, -math.inf)
        logps[:, tokens] = allowed


def adapt_rule(rule: Rule, special: SpecialTokens) -> Rule:
    """Return the rule for a model with these special tokens: a rule about the end of a text has a field `ends`."""
    if special.ends == DEFAULT.ends or not hasattr(rule, "ends"):
        return rule
    return dataclasses.replace(rule, ends=special.ends)  # type: ignore[type-var]  # rules with `ends` are dataclasses


def apply_rules(
    rules: Sequence[Rule], logps: Tensor, prefix: Tensor, written: Tensor, special: SpecialTokens = DEFAULT
) -> Tensor:
    """Return the log-probabilities (R, V) after the rules. Where every token is barred, END is allowed again."""
    changed, text = logps.clone(), torch.cat([prefix, written], dim=1)  # (R, T)
    for rule in rules:
        rule(changed, text, written.shape[1])
    stuck = changed.amax(1) == -math.inf
    changed[:, special.end] = torch.where(stuck, logps[:, special.end], changed[:, special.end])
    return changed
