"""Rotary positions: queries and keys are rotated by an angle that grows with their position.

Letters: B batch, H heads, T length, D width of a head, r ≤ D the width that is rotated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self, get_args

import torch
from torch import Tensor

from regard.errors import unknown_name
from regard.positions.interface import ModelSizes, Position, check_positions, check_size, check_width

Layout = Literal["halves", "interleaved"]
LAYOUTS = get_args(Layout)
SCALINGS = ("none", "linear", "llama3", "yarn")


class Rotary(Position):
    """Rotate pairs of numbers in each query and key, so that q_i . k_j depends on i and j only through i - j.

    Su et al. 2021 (RoFormer), equations 15 and 34; B7: pair c at position t is rotated by t * base^(-2c/r).

    layout determines the pairs: "halves" pairs c with c + r/2, as Llama's checkpoints do, "interleaved" pairs 2c with
    2c + 1, as the paper does. fraction is the fraction of the head that is rotated (1/4 in GPT-NeoX). scaling extends
    the context of a trained model: any function from frequencies (r/2,) to frequencies, such as `Interpolation`,
    `LlamaScaling` or `Yarn`. amplitude multiplies the sines and cosines, which YaRN uses to sharpen attention. Angles
    are float32 even when x is not.
    """

    acts_on = "attention"

    def __init__(
        self,
        *,
        head_dim: int,
        base: float = 10000.0,
        layout: Layout = "halves",
        fraction: float = 1.0,
        scaling: Callable[[Tensor], Tensor] | None = None,
        amplitude: float = 1.0,
    ) -> None:
        super().__init__()
        check_size("head_dim", head_dim)
        for name, value in (("base", base), ("amplitude", amplitude)):
            if not value > 0:
                raise ValueError(f"{name} must be positive, not {value}")
        if layout not in LAYOUTS:
            raise ValueError(unknown_name("layout", layout, LAYOUTS))
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction must be above 0 and at most 1, not {fraction}")
        rotated_dim = int(head_dim * fraction)
        if rotated_dim < 2 or rotated_dim % 2:
            raise ValueError(
                f"head_dim * fraction must be even, because pairs are rotated, not "
                f"{head_dim} * {fraction} = {rotated_dim}"
            )
        self.head_dim, self.rotated_dim = head_dim, rotated_dim
        self.base, self.layout, self.scaling, self.amplitude = base, layout, scaling, amplitude

    @classmethod
    def for_model(cls, sizes: ModelSizes) -> Self:
        return cls(head_dim=sizes.head_dim, **sizes.rotary)

    @property
    def traits(self) -> frozenset[str]:
        options = {
            "rotary-interleaved": self.layout == "interleaved",
            "rotary-fraction": self.rotated_dim != self.head_dim,
            "rotary-scaling": self.scaling is not None,
            "rotary-amplitude": self.amplitude != 1.0,
        }
        return super().traits | {name for name, used in options.items() if used}

    def frequencies(self, device: torch.device | str | None = None) -> Tensor:
        """Return the angle of one step for each pair, (r/2,): base^(-2c/r), then scaled."""
        # Computed in each call: `.to(bfloat16)` would round a buffer, and the meta device would leave it empty.
        c = torch.arange(0, self.rotated_dim, 2, device=device, dtype=torch.float32)  # this is 2c
        theta = 1.0 / self.base ** (c / self.rotated_dim)
        return theta if self.scaling is None else self.scaling(theta)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        check_width("x", x, self.head_dim)
        check_positions("positions", positions, batch=x.shape[0], length=x.shape[-2])
        angles = positions[..., None] * self.frequencies(x.device)  # (T, r/2) or (B, T, r/2)
        if positions.ndim == 2:
            angles = angles[:, None]  # (B, 1, T, r/2): the same for all heads
        cos, sin = angles.cos(), angles.sin()
        if self.amplitude != 1.0:
            cos, sin = cos * self.amplitude, sin * self.amplitude
        pairs, unchanged = x[..., : self.rotated_dim], x[..., self.rotated_dim :]
        if self.layout == "halves":
            a, b = pairs.chunk(2, -1)  # each (B, H, T, r/2)
        else:
            a, b = pairs[..., 0::2], pairs[..., 1::2]
        pair = (a * cos - b * sin, b * cos + a * sin)
        rotated = torch.cat(pair, -1) if self.layout == "halves" else torch.stack(pair, -1).flatten(-2)
        rotated = rotated.to(x.dtype)  # (B, H, T, r)
        return rotated if self.rotated_dim == self.head_dim else torch.cat((rotated, unchanged), -1)

    def extra_repr(self) -> str:
        return (
            f"head_dim={self.head_dim}, rotated_dim={self.rotated_dim}, base={self.base}, layout={self.layout!r}, "
            f"scaling={self.scaling}{'' if self.amplitude == 1.0 else f', amplitude={self.amplitude}'}"
        )


@dataclass(frozen=True)
class Interpolation:
    """Position interpolation: divide every frequency by a factor, so that positions fit the trained range.

    Chen et al. 2023 (position interpolation); B7.
    """

    factor: float

    def __post_init__(self) -> None:
        if not self.factor > 0:
            raise ValueError(f"factor must be positive, not {self.factor}")

    def __call__(self, theta: Tensor) -> Tensor:
        return theta / self.factor


@dataclass(frozen=True)
class LlamaScaling:
    """Llama 3.1's scaling: interpolate low frequencies, keep high ones, and blend those in between.

    The released configurations of Llama 3.1; B7. trained_length is the context before scaling; a frequency
    is high if it completes more than `high` periods in it, and low if it completes fewer than `low`.
    """

    factor: float = 8.0
    low: float = 1.0
    high: float = 4.0
    trained_length: int = 8192

    def __post_init__(self) -> None:
        if not self.factor > 0:
            raise ValueError(f"factor must be positive, not {self.factor}")
        if not 0 < self.low < self.high:
            raise ValueError(f"low and high must be 0 < low < high, not {self.low} and {self.high}")
        check_size("trained_length", self.trained_length)

    def __call__(self, theta: Tensor) -> Tensor:
        periods = self.trained_length * theta / (2 * math.pi)  # within the trained length
        keep = ((periods - self.low) / (self.high - self.low)).clamp(0, 1)
        return keep * theta + (1 - keep) * theta / self.factor


@dataclass(frozen=True)
class Yarn:
    """YaRN: interpolate pairs that turn slowly, keep pairs that turn fast, and blend those in between by their index.

    Peng et al. 2024 (YaRN), section 3.2; B7. A pair turns fast if it completes more than `fast` periods within
    trained_length, the context before scaling, and slowly if it completes fewer than `slow`. With `truncate` the
    indices of these two bounds are rounded outwards. `base` is that of the frequencies.
    """

    factor: float
    trained_length: int
    base: float = 10000.0
    fast: float = 32.0
    slow: float = 1.0
    truncate: bool = True

    def __post_init__(self) -> None:
        for name in ("factor", "fast", "slow"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if not self.base > 1:
            raise ValueError(f"base must be above 1, not {self.base}")
        check_size("trained_length", self.trained_length)

    def __call__(self, theta: Tensor) -> Tensor:
        low, high = (self._pair(periods, 2 * len(theta)) for periods in (self.fast, self.slow))
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * len(theta) - 1)
        width = high - low if high != low else 0.001  # as in the authors' code
        c = torch.arange(len(theta), device=theta.device, dtype=theta.dtype)
        interpolated = ((c - low) / width).clamp(0, 1)
        return theta / self.factor * interpolated + theta * (1 - interpolated)

    def _pair(self, periods: float, rotated_dim: int) -> float:
        """Return the index of the pair that completes so many periods within the trained length."""
        turns = math.log(self.trained_length / (periods * 2 * math.pi))
        return rotated_dim * turns / (2 * math.log(self.base))


def make_scaling(
    name: str,
    *,
    base: float,
    factor: float,
    trained_length: int | None,
    low: float,
    high: float,
    fast: float,
    slow: float,
    truncate: bool,
) -> Callable[[Tensor], Tensor] | None:
    """Return the scaling of that name from SCALINGS; each takes the arguments that it needs."""
    if name == "none":
        return None
    if name == "linear":
        return Interpolation(factor)
    if trained_length is None:
        raise ValueError(f"the scaling {name!r} needs trained_length, the context before scaling")
    if name == "llama3":
        return LlamaScaling(factor=factor, low=low, high=high, trained_length=trained_length)
    if name == "yarn":
        return Yarn(factor, trained_length, base, fast, slow, truncate)
    raise ValueError(unknown_name("scaling", name, SCALINGS))
