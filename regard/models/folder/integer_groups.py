"""Matrices as integers in groups: 32 neighbours in a row share a scale and a minimum.

    w = scale · u + minimum        u of 4 bits (0 to 15) or 8 bits (0 to 255)

Scales and minima are float16 numbers, so that a weight of 4 bits takes 5 bits with its share of them. A large number
makes only the numbers of its own group less exact.

    o rows   i columns   G groups of a row, ceil(i / 32)
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.errors import UsageError
from regard.machine.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor

GROUP = 32  # numbers that share a scale and a minimum; as ROW_GROUP in regard/kernels/native/decoder/matrix.h
LARGEST_HALF = 65504.0
NUMBERS_AT_ONCE = 2**17  # that are rounded, so that intermediate results stay in the cache
# How far the range of 4 bits is narrowed on either side, if that makes the squared error of a group smaller.
NARROWER = (1.0, 0.9)


class IntegerGroups(NamedTuple):
    """A matrix as integers (o, i) of 8 bits, or (o, ceil(i / 2)) with two of 4 bits in a byte, the first one below."""

    numbers: Tensor
    scales: Tensor  # (o, G), float16
    minima: Tensor  # (o, G), float16


def bits_of(name: str) -> int:
    """Return the bits of a matrix of an int4 model: 4 in a block, 8 in the tables of tokens and the output layer.

    Those tables are more sensitive: with 4 bits, the perplexity of SmolLM2-135M grows by 5 to 8% from them alone.
    """
    return 4 if ".blocks." in name and name.endswith("weight") else 8


def to_groups(weight: Tensor, bits: int) -> IntegerGroups:
    """Round a matrix (o, i) of float32 numbers. A matrix that was rounded before stays as it is."""
    if not bool(weight.isfinite().all()) or bool((weight.abs() > LARGEST_HALF).any()):
        raise UsageError(f"a matrix with infinite numbers, or numbers above {LARGEST_HALF:.0f}, has no int{bits} form")
    rows = max(1, NUMBERS_AT_ONCE // max(1, weight.shape[1]))
    parts = [_round(part, bits) for part in weight.split(rows)]
    numbers, scales, minima = (torch.cat(column) for column in zip(*parts, strict=True))
    numbers = numbers[:, : weight.shape[1]]
    return IntegerGroups(_two_in_a_byte(numbers) if bits == 4 else numbers.contiguous(), scales, minima)


def integers(numbers: Any, bits: int, columns: int) -> Any:
    """Return the integers (o, i), uint8, of a tensor or an array."""
    if bits == 8:
        return numbers
    xp: Any = torch if hasattr(numbers, "new_empty") else __import__("numpy")
    return xp.stack([numbers & 15, numbers >> 4], -1).reshape(len(numbers), -1)[:, :columns]


def from_groups(groups: IntegerGroups, bits: int, columns: int) -> Tensor:
    """Return the matrix (o, i) of float32 numbers."""
    scales, minima = (each.float().repeat_interleave(GROUP, 1)[:, :columns] for each in groups[1:])
    return torch.addcmul(minima, scales, integers(groups.numbers, bits, columns).float())


def _two_in_a_byte(numbers: Tensor) -> Tensor:
    even = torch.nn.functional.pad(numbers, (0, numbers.shape[1] % 2))
    return even[:, 0::2] | even[:, 1::2] << 4


def _round(weight: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """(o, i) -> integers (o, 32 G), scales and minima (o, G)."""
    o, i = weight.shape
    padding = weight[:, -1:].expand(o, -i % GROUP)  # does not change the range of the last group
    groups = torch.cat([weight, padding], 1).view(o, -1, GROUP)
    low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
    top = 2**bits - 1
    best = _Fit.of(groups, (high - low) / top, low, top)
    if bits == 4 and bool((best.error > 1e-12 * (high - low).square()).any()):
        for below, above in product(NARROWER, repeat=2):
            fit = _Fit.of(groups, (above * high - below * low) / top, below * low, top)
            refitted = _Fit.of(groups, *fit.least_squares(groups), top)
            best = best.better(fit, top).better(refitted, top)
    return best.numbers.to(torch.uint8).view(o, -1), best.scale[..., 0].half(), best.minimum[..., 0].half()


class _Fit(NamedTuple):
    """Groups (o, G, 32) as integers, which are still floats, with scales and minima (o, G, 1) and squared errors."""

    numbers: Tensor
    scale: Tensor
    minimum: Tensor
    error: Tensor

    @classmethod
    def of(cls, groups: Tensor, scale: Tensor, minimum: Tensor, top: int) -> _Fit:
        scale, minimum = scale.half().float(), minimum.half().float()
        inverse = torch.where(scale > 0, 1 / scale, 0)
        numbers = ((groups - minimum) * inverse).round_().clamp_(0, top)
        error = torch.addcmul(minimum - groups, numbers, scale).square_().sum(2, keepdim=True)
        return cls(numbers, scale, minimum, error)

    def least_squares(self, groups: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scale and the minimum that suit the integers best."""
        mean, centre = self.numbers.mean(2, keepdim=True), groups.mean(2, keepdim=True)
        deviations = self.numbers - mean
        variance = deviations.square().sum(2, keepdim=True)
        covariance = (deviations * groups).sum(2, keepdim=True)
        scale = torch.where(variance > 0, covariance / variance, self.scale)
        return scale, centre - scale * mean

    def better(self, other: _Fit, top: int) -> _Fit:
        """Take groups from the other fit where its error is smaller and its range is used from end to end.

        With integers at both ends, rounding the result again finds the same scale and minimum.
        """
        low, high = other.numbers.amin(2, keepdim=True), other.numbers.amax(2, keepdim=True)
        chosen = (other.error < self.error) & (low == 0) & (high == top)
        return _Fit(*(torch.where(chosen, theirs, ours) for ours, theirs in zip(self, other, strict=True)))
