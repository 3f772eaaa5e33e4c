"""Launch the Triton kernels of random-feature attention: tensors, strides, and launch configurations.

F3.

    B batch   H heads   G heads of keys   m queries   n keys   d, e widths   M rows of W   F features
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.kernels.linear.attention_triton import mix
from regard.kernels.linear.cached_launch import CachedLaunch
from regard.kernels.linear.gradients_triton import deltas, grad
from regard.kernels.linear.segment_sums_triton import scan, sums
from regard.machine import multiprocessors

PAIRS = ("hyperbolic", "trig")
PROGRAMS = 2  # per multiprocessor of the GPU
LN2 = math.log(2)  # kernels use logarithms to base 2
SCANNED_SLOTS, BLOCK = 16, 256  # states that a program of the scan loads at once, and numbers of each
LAUNCHES: dict[Any, CachedLaunch] = {}  # by kernel


class LaunchShape(NamedTuple):
    """A launch configuration: tokens of a chunk, warps, pipeline stages, and registers per thread.

    Without an explicit limit of 255 registers, the assembler uses 32 for the largest kernel.
    """

    chunk: int = 64
    warps: int = 4
    stages: int = 2
    registers: int = 255


# Measured on an H200, 65,536 tokens of 16 heads, 128 features: with three stages `mix` takes 0.357 ms and `sums` 0.127
# ms, with two 0.375 and 0.134. With log_scales or the map "trig", three stages are up to 28% slower.
FORWARD, SUMS, BACKWARD = LaunchShape(stages=3), LaunchShape(stages=3), LaunchShape()
SMALL_STATE = 64 * 64  # M e: a larger one has no room for three stages, and needs eight warps


class Side(NamedTuple):
    """Queries and dy, or keys and values."""

    x: Tensor  # (B, heads, length, d)
    y: Tensor  # (B, heads, length, e)


class Queries(NamedTuple):
    """The results of `deltas` for the backward pass, (B, H, m) each."""

    h: Tensor
    t: Tensor
    sign: Tensor


class KernelArguments(NamedTuple):
    """All arguments of the kernels besides queries, keys and values."""

    W: Tensor  # (1 or G, M, d)
    a: Tensor  # (1 or G, d): the factors of x
    c: Tensor | None  # (B, G, n): added to the logarithms of the keys' weights
    log_g: Tensor | None  # (B, G, n): logarithms of the gates
    state: tuple[Tensor, Tensor, Tensor] | None  # S (B, G, F, e), z (B, G, F), log_scale (B, G) before the text
    causal: bool
    normalize: bool
    scaled: bool  # whether the entries of `a` differ
    log_scales: bool  # whether features or weights may overflow, and need log_scales
    map: str  # "hyperbolic", "positive", "trig" or "elu"
    per: int  # tokens of a segment
    sign: float  # of |x|²/2 in the logarithm of a key's weight
    factor: float  # of the features
    stretch: float  # of u
    bend: float  # of |w|², which is added to u
    floor: float  # of denominators

    @property
    def signed(self) -> bool:
        return self.map == "trig" and self.log_scales  # other features are positive, and so are denominators

    def features(self, d: int) -> int:
        return count(self.map, self.W, d)

    def keys(self, x: Tensor) -> list[Any]:
        """Pointers to c and log_g; any tensor where there is none, because it will not be read."""
        return [x if part is None else part for part in (self.c, self.log_g)]

    def strides(self) -> list[int]:
        small = [(0, 0) if part is None else part.stride()[:2] for part in (self.c, self.log_g)]
        # Key-value heads have W and a of their own, or share them.
        return [*small[0], *small[1], *(x.stride(0) if x.shape[0] > 1 else 0 for x in (self.W, self.a))]

    def numbers(self) -> tuple[float, float, float]:
        return self.factor, self.stretch, self.bend

    def constants(self, x: Tensor, e: int, *, reverse: bool) -> dict[str, Any]:
        d = x.shape[-1]
        F = self.features(d)
        return {
            "MAP": self.map,
            "SIGN": self.sign,
            "NORMALIZE": self.normalize,
            "SCALED": self.scaled,
            "GIVEN": self.c is not None,
            "GATED": self.log_g is not None,
            "SIGNED": self.signed and reverse,
            "REVERSE": reverse,
            "BENT": self.bend != 0.0,
            "LOG_SCALES": self.log_scales,
            "PRECISION": "tf32x3" if x.dtype == torch.float32 else "tf32",  # float32 as three products
            "D": d,
            "E": e,
            "M": F // 2 if self.map in PAIRS else F,
        }


def cdiv(number: int, divisor: int) -> int:
    """Divide and round up; triton.cdiv is for kernels too, and takes ten times as long."""
    return -(-number // divisor)


def count(map: str, W: Tensor, d: int) -> int:
    """Return the number of features F."""
    return d if map == "elu" else W.shape[-2] * (2 if map in PAIRS else 1)


def add_up(
    side: Side, has: KernelArguments, asked: Queries | None, shared: int, *, last: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the states before each segment and after the last, (B heads, slots, F (e + 1)), and their log_scales.

    The states of keys; with `asked` those of queries, from the last segment to the first. Without `last`, the state
    after the last segment, which causal attention does not need, is left out.
    """
    x, y = side
    B, heads, n, d = x.shape
    e, F = y.shape[-1], has.features(d)
    summed = cdiv(n, has.per) - (0 if last else 1)
    totals = x.new_empty(B * heads, summed + 1, F * (e + 1), dtype=torch.float32)
    log_scales, left, after = x.new_empty(3, B * heads, summed + 1, dtype=torch.float32).unbind()
    before = has.state if asked is None else None
    if before is not None:
        S, z, log_scale = before
        totals[:, 0] = torch.cat([S.flatten(2), z], dim=2).flatten(0, 1)
        if has.log_scales:
            log_scales[:, 0] = log_scale.flatten() / LN2
        else:
            totals[:, 0] *= log_scale.flatten().exp()[:, None]
            log_scales[:, 0] = 0.0
    of_queries = (x, x, x) if asked is None else asked
    strides = (*x.stride()[:3], *y.stride()[:3], *has.strides())
    launch(
        sums,
        (summed, B * heads),
        (x, y, *has.keys(x), *of_queries, has.W, has.a, totals, log_scales, left),
        (*strides, heads, shared, n, has.per, *has.numbers()),
        has.constants(x, e, reverse=asked is not None) | shape(has, x, e, SUMS if asked is None else BACKWARD),
    )
    size = F * (e + 1)
    constants = {"GIVEN": before is not None, "LOG_SCALES": has.log_scales, "SLOTS": SCANNED_SLOTS, "BLOCK": BLOCK}
    grid = B * heads, cdiv(size, BLOCK)
    launch(scan, grid, (totals, log_scales, left, after), (summed + 1, size), constants)
    return totals, after


def launch(
    kernel: Any, grid: tuple[int, ...], tensors: Sequence[Tensor], numbers: Sequence[float], constants: dict[str, Any]
) -> None:
    """Launch a kernel, from the second time on without Triton's analysis of its arguments."""
    cached = LAUNCHES.get(kernel)
    if cached is None:
        cached = LAUNCHES[kernel] = CachedLaunch(kernel)
    cached(grid, tensors, numbers, constants)


def shape(has: KernelArguments, x: Tensor, e: int, usual: LaunchShape) -> dict[str, int]:
    """Choose a launch configuration: a large state needs eight warps, or it spills; wide tiles leave less room."""
    F = has.features(x.shape[-1])
    M = F // 2 if has.map in PAIRS else F
    chunk, warps, stages, registers = usual
    if M * e > SMALL_STATE:
        chunk, warps, registers = 64, 8, 255
    if x.dtype == torch.float32:
        stages = 1
    elif M * e > SMALL_STATE or x.shape[-1] > 64 or has.log_scales or has.map == "trig":
        stages = min(stages, 2)
    return {"C": chunk, "num_warps": warps, "num_stages": stages, "maxnreg": registers}


def states_for(side: Side, has: KernelArguments, asked: Queries | None, shared: int) -> tuple[Tensor, Tensor] | None:
    """Return the states that segments start from, or None if there is only one segment, from an empty state."""
    alone = has.causal and side.x.shape[2] <= has.per and (has.state is None or asked is not None)
    if alone:
        return None
    # The order of the slots is that of the segments for keys only.
    needs_last = not has.causal or asked is not None or side.x.shape[2] <= has.per
    return add_up(side, has, asked, shared, last=needs_last)


def settings(
    q: Tensor,
    W: Tensor,
    a: Tensor,
    c: Tensor | None,
    log_g: Tensor | None,
    S: Tensor | None,
    z: Tensor | None,
    log_scale: Tensor | None,
    causal: bool,
    normalize: bool,
    scaled: bool,
    log_scales: bool,
    map: str,
    numbers: Sequence[float],
    per: int,
) -> KernelArguments:
    c, log_g = (None if part is None else in_rows(part) for part in (c, log_g))
    state = None if S is None or z is None or log_scale is None else (S, z, log_scale)
    if not per:  # a few programs per multiprocessor: fewer leave some idle, more add up more states
        segments = max(1, PROGRAMS * multiprocessors(q.device) // (q.shape[0] * q.shape[1]))
        chunk = max(FORWARD.chunk, SUMS.chunk, BACKWARD.chunk)
        per = cdiv(cdiv(q.shape[2], chunk), segments) * chunk
    how = (causal, normalize, scaled, log_scales, map, per)
    return KernelArguments(W.contiguous(), a.contiguous(), c, log_g, state, *how, *numbers)


def in_rows(x: Tensor) -> Tensor:
    """Return x with a contiguous last axis."""
    return x if x.stride(-1) == 1 else x.contiguous()


def like(q: Tensor, width: int) -> Tensor:
    """Return an empty (B, H, m, width) with the heads of a token adjacent in memory, as the next product reads them."""
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], width).transpose(1, 2)


def walk(
    x: Tensor,
    answer: Side,
    has: KernelArguments,
    states: tuple[Tensor, Tensor] | None,
    asked: Queries | None,
    out: Tensor,
    top: Tensor,
    den: Tensor,
    shared: int,
) -> None:
    """Launch `mix`: the output of queries x; with `asked`, the gradient of the values for keys x."""
    k, v = answer
    B, m = x.shape[0], x.shape[2]
    heads, e = out.shape[1], v.shape[-1]
    h, _, sign = (top, top, top) if asked is None else asked
    at, log_scales = (top, top) if states is None else states
    strides = (*x.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], *has.strides())
    slots = 0 if states is None else log_scales.shape[1]
    constants = has.constants(x, e, reverse=asked is not None)
    constants |= {"CAUSAL": has.causal, "STATES": states is not None}
    launch(
        mix,
        (cdiv(m, has.per), B * heads),
        (x, k, v, *has.keys(x), h, sign, has.W, has.a, at, log_scales, out, top, den),
        (*strides, heads, shared, m, k.shape[2], has.per, slots, *has.numbers(), has.floor),
        constants | shape(has, x, e, FORWARD if asked is None else BACKWARD),
    )


def walk_back(
    ask: Side,
    answer: Side,
    has: KernelArguments,
    states: tuple[Tensor, Tensor] | None,
    asked: Queries,
    shared: int,
    *,
    reverse: bool,
    learned: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Launch `grad`: gradients of queries, or with `reverse` of keys for each query head; then of c and of a."""
    (x, y), (k, v) = ask, answer
    B, heads, m, d = x.shape[0], asked.h.shape[1], x.shape[2], x.shape[3]
    e, segments = y.shape[-1], cdiv(x.shape[2], has.per)
    out = x.new_empty(B, m, heads, d, dtype=x.dtype if shared == 1 or not reverse else torch.float32).transpose(1, 2)
    to_c = x.new_empty(B, heads, m if has.c is not None and reverse else 0, dtype=torch.float32)
    to_a = x.new_empty(B, heads, segments if learned else 0, d, dtype=torch.float32)
    at, log_scales = (asked.h, asked.h) if states is None else states
    strides = [stride for part in (x, y, k, v, out) for stride in part.stride()[:3]] + has.strides()
    slots = 0 if states is None else log_scales.shape[1]
    constants = has.constants(x, e, reverse=reverse) | {"SIGNED": has.signed, "LEARNED": learned}
    constants |= {"CAUSAL": has.causal, "STATES": states is not None}
    launch(
        grad,
        (segments, B * heads),
        (x, y, k, v, *has.keys(x), *asked, has.W, has.a, at, log_scales, out, to_c, to_a),
        (*strides, heads, shared, m, k.shape[2], has.per, slots, *has.numbers()),
        constants | shape(has, x, e, BACKWARD),
    )
    return out, to_c, to_a


def find_deltas(
    y: Tensor, dy: Tensor, top: Tensor, den: Tensor, has: KernelArguments
) -> tuple[Tensor, Queries, Tensor]:
    """Launch `deltas`: dy and what queries carry in the backward pass, and the gates' share of floored queries."""
    B, H, m, e = y.shape
    asked, fixed = Queries(*(torch.empty_like(den) for _ in range(3))), torch.empty_like(den)
    out = dy if has.log_scales else like(dy, e)
    constants = {"GATED": has.log_g is not None, "SIGNED": has.signed, "LOG_SCALES": has.log_scales}
    launch(
        deltas,
        (cdiv(m, BACKWARD.chunk), B * H),
        (y, dy, top, den, *asked, fixed, out),
        (*y.stride()[:3], *dy.stride()[:3], *out.stride()[:3], H, m, has.floor),
        constants | {"C": BACKWARD.chunk, "E": e},
    )
    return out, asked, fixed
