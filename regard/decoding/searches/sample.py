"""Sampling: the next token is drawn, from all or from the likelier ones.

C2, E10. Filters: Fan et al. 2018 (top-k), Holtzman et al. 2020 (top-p), Nguyen et al. 2024 (min-p).

    R rows   V vocabulary
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regard.decoding.searches.logit_rules import Rule
from regard.decoding.searches.search import Inputs, Lines, Picked, Run, best
from regard.errors import UsageError


@dataclass(frozen=True)
class Sample:
    """Draw each token by its probability.

    C2, E10. In this order, after the rules: `temperature` divides the logits (below 1 sharper, and towards 0 greedy),
    `top_k` leaves the k most probable tokens, `top_p` the fewest whose probabilities sum to p, `min_p` those at least p
    times as probable as the best; what is left is scaled to sum to 1 each time. Of equals the lower token is left.

    The draw is a function of the seed, the input's place in the list, the number of the alternative and the step, and
    of nothing else: batches, order and neighbours leave it alone.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int = 0
    rules: tuple[Rule, ...] = ()

    streams: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise UsageError(f"temperature must be a number above 0, got {self.temperature!r}; its limit 0 is Greedy()")
        if self.top_k is not None and (not isinstance(self.top_k, int) or self.top_k < 1):
            raise UsageError(f"top_k must be a whole number from 1, got {self.top_k!r}")
        for name, share in (("top_p", self.top_p), ("min_p", self.min_p)):
            if share is not None and not 0 < share <= 1:
                raise UsageError(f"{name} must be a share above 0 and up to 1, got {share!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not -(2**63) <= self.seed < 2**63:
            raise UsageError(f"seed must be a whole number of 64 bits, got {self.seed!r}")

    def rows(self, alternatives: int) -> int:
        return alternatives

    def begin(self, inputs: Inputs) -> Run:
        return Lines(inputs, self._draw)

    def probabilities(self, logps: Tensor) -> Tensor:
        """What is drawn from, (R, V), given the model's log-probabilities or logits (R, V)."""
        # A draw that lands next to a border should not depend on float32; Apple's GPUs have nothing finer.
        x = logps.to(_precision(logps.device))
        x = (x - x.amax(-1, keepdim=True)) / self.temperature
        if self.top_k is not None:
            x = keep_top_k(x, self.top_k)
        if self.top_p is not None:
            x = keep_top_p(x, self.top_p)
        if self.min_p is not None:
            x = keep_min_p(x, self.min_p)
        return x.softmax(-1)

    def _draw(self, logps: Tensor, numbers: Tensor, alternatives: Tensor, step: int) -> Picked:
        probabilities = self.probabilities(logps)
        draws = uniform(self.seed, numbers, alternatives, step)
        return Picked(invert(probabilities, draws), draws, probabilities)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """-inf for all but the k highest of each row; Fan et al. 2018, section 5."""
    if k >= logits.shape[-1]:
        return logits
    values, places = best(logits, k)
    return torch.full_like(logits, -math.inf).scatter(-1, places, values)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """-inf for all but the fewest, most probable ones, whose probabilities reach p; Holtzman et al. 2020, eq. 2."""
    probabilities = logits.softmax(-1)
    looked_at = 0
    while True:  # a few tokens hold most of the probability, so a sort of all is seldom needed
        looked_at = min(8 * looked_at or 128, logits.shape[-1])
        values, places = best(probabilities, looked_at)
        sums = values.cumsum(-1)
        if looked_at == logits.shape[-1] or bool((sums[..., -1] >= p).all()):
            break
    out = (sums - values) >= p  # the more probable ones reach p without it
    values = logits.gather(-1, places).masked_fill(out, -math.inf)
    return torch.full_like(logits, -math.inf).scatter(-1, places, values)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """-inf for what is less than p times as probable as the best; Nguyen et al. 2024, section 3."""
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(p), -math.inf)


def invert(probabilities: Tensor, draws: Tensor) -> Tensor:
    """The token (R,) at which the running sum of the probabilities (R, V) passes the draw (R,) in [0, 1)."""
    # A token of probability 0 has no part of the line, whatever the rounding of the sums.
    sums = torch.where(probabilities > 0, probabilities.cumsum(-1), 0)
    return (sums > draws[:, None] * sums.amax(-1, keepdim=True)).byte().argmax(-1)


def uniform(seed: int, numbers: Tensor, alternatives: Tensor, step: int) -> Tensor:
    """One number of [0, 1) for each row, (R,), from a hash of the four: no generator, so no state and no order."""
    bits = torch.zeros_like(numbers)
    for part in (seed, numbers, alternatives, step):
        bits = scramble(bits + part)
    precision = _precision(numbers.device)
    digits = 24 if precision == torch.float32 else 53  # what the mantissa holds
    return _shift(bits, 64 - digits).to(precision) * 2.0**-digits


def scramble(x: Tensor) -> Tensor:
    """The next number of splitmix64, whose state is x: whole numbers of 64 bits, whose products wrap around.

    Steele, Lea & Flood 2014, figures 13 and 16 ("mix64variant13").
    """
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, places: int) -> Tensor:
    """x shifted right as if it had no sign."""
    return (x >> places) & (2 ** (64 - places) - 1)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _precision(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64
