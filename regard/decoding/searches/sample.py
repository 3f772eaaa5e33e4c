"""Sampling: draw the next token from the model's distribution, or from its more probable part.

C2, E10. Filters: Fan et al. 2018 (top-k), Holtzman et al. 2020 (top-p), Nguyen et al. 2024 (min-p).

    R rows   V vocabulary
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from regard.decoding.searches.logit_rules import Rule
from regard.decoding.searches.search import IndependentRows, Inputs, Pick, Run, stable_topk
from regard.errors import UsageError
from regard.machine.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor

FIRST_TOP_P_CANDIDATES = 128  # sorted first; eight times as many if their probabilities do not reach p
Integers = TypeVar("Integers", "Tensor", np.ndarray)  # of 64 bits
MIN_TEMPERATURE = 1e-6  # far below, logits divided by it are not finite


@dataclass(frozen=True)
class Sample:
    """Draw each token with its probability.

    C2, E10. In this order, after the rules: `temperature` divides the logits (below 1 the distribution is sharper, and
    the limit 0 is greedy), `top_k` keeps the k most probable tokens, `top_p` the smallest set whose probabilities sum
    to p, `min_p` the tokens at least p times as probable as the best one. After each filter the rest is normalised to
    sum to 1. Among equals the lower token is kept.

    A draw depends only on the seed, the number of the input, the number of the alternative and the step; not on
    batches, order or neighbours.

    >>> import regard
    >>> writer = regard.load("shakespeare", device="cpu")
    >>> search = Sample(temperature=0.8, top_p=0.9, seed=1)
    >>> writer.write("ROMEO:", search=search) == writer.write("ROMEO:", search=search)
    True
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
        if self.temperature < MIN_TEMPERATURE:
            raise UsageError(f"temperature must be at least {MIN_TEMPERATURE:g}, got {self.temperature!r}")
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
        return IndependentRows(inputs, self._draw)

    def probabilities(self, logps: Tensor) -> Tensor:
        """Return the distribution to draw from, (R, V), given log-probabilities or logits (R, V)."""
        # In float64, so that a draw close to a boundary does not depend on rounding; Apple's GPUs only have float32.
        x = logps.to(_precision(logps.device))
        x = (x - x.amax(-1, keepdim=True)) / self.temperature
        if self.top_k is not None:
            x = keep_top_k(x, self.top_k)
        if self.top_p is not None:
            x = keep_top_p(x, self.top_p)
        if self.min_p is not None:
            x = keep_min_p(x, self.min_p)
        return x.softmax(-1)

    def _draw(self, logps: Tensor, numbers: Tensor, alternatives: Tensor, step: int) -> Pick:
        draws = uniform(self.seed, numbers, alternatives, step)
        if self.top_k is None or self.top_k >= logps.shape[-1]:
            probabilities = self.probabilities(logps)
            return Pick(invert(probabilities, draws), draws, probabilities)
        # Only the k candidates, in the order of the vocabulary: the other tokens have probability 0.
        candidates = stable_topk(logps, self.top_k)[1].sort(dim=-1)[0]  # (R, k)
        shares = self.probabilities(logps.gather(-1, candidates))  # (R, k)
        tokens = candidates.gather(-1, invert(shares, draws)[:, None])[:, 0]  # (R,)
        return Pick(tokens, draws, shares.new_zeros(logps.shape).scatter(-1, candidates, shares))


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Set all but the k highest logits of each row to -inf; Fan et al. 2018, section 5."""
    if k >= logits.shape[-1]:
        return logits
    values, tokens = stable_topk(logits, k)
    return torch.full_like(logits, -math.inf).scatter(-1, tokens, values)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest, most probable tokens whose probabilities sum to p, and set the rest to -inf.

    Holtzman et al. 2020, equation 2.
    """
    probabilities = logits.softmax(-1)
    count = 0
    while True:  # a few tokens have most of the probability, so that it is rarely necessary to sort all
        count = min(8 * count or FIRST_TOP_P_CANDIDATES, logits.shape[-1])
        values, tokens = stable_topk(probabilities, count)
        sums = values.cumsum(-1)
        if count == logits.shape[-1] or bool((sums[..., -1] >= p).all()):
            break
    dropped = (sums - values) >= p  # the more probable tokens reach p without it
    values = logits.gather(-1, tokens).masked_fill(dropped, -math.inf)
    return torch.full_like(logits, -math.inf).scatter(-1, tokens, values)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Set tokens less than p times as probable as the best one to -inf; Nguyen et al. 2024, section 3."""
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(p), -math.inf)


def invert(probabilities: Tensor, draws: Tensor) -> Tensor:
    """Return the token (R,) at which the cumulative probability (R, V) exceeds the draw (R,) in [0, 1)."""
    # A token of probability 0 can never be drawn, whatever the rounding of the sums.
    sums = torch.where(probabilities > 0, probabilities.cumsum(-1), 0)
    return (sums > draws[:, None] * sums.amax(-1, keepdim=True)).byte().argmax(-1)


def uniform(seed: int, numbers: Tensor, alternatives: Tensor, step: int) -> Tensor:
    """Return one number in [0, 1) for each row, (R,), from a hash of the arguments: there is no generator state."""
    precision = _precision(numbers.device)
    digits = 24 if precision == torch.float32 else 53  # of the mantissa
    if numbers.device.type == "cpu":  # for a few numbers, an operation of NumPy takes a fraction of the time of torch's
        return torch.from_numpy(_hash(seed, numbers.numpy(), alternatives.numpy(), step, digits) * 2.0**-digits)
    return _hash(seed, numbers, alternatives, step, digits).to(precision) * 2.0**-digits


def _hash(seed: int, numbers: Integers, alternatives: Integers, step: int, digits: int) -> Integers:
    """Return so many binary digits for each row, (R,)."""
    bits = numbers * 0
    for part in (seed, numbers, alternatives, step):
        bits = scramble(bits + part)
    return _shift(bits, 64 - digits)


def scramble(x: Integers) -> Integers:
    """Return the output of splitmix64 for the state x, in 64-bit integers whose products wrap around.

    Steele, Lea & Flood 2014, figures 13 and 16 ("mix64variant13").
    """
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: Integers, count: int) -> Integers:
    """Shift x right as an unsigned integer."""
    return (x >> count) & (2 ** (64 - count) - 1)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _precision(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64
