"""The step of a layer of random features on a CPU, as one call of C (linear_step.h).

F3; Peng et al. 2021, eq. 7. For one row the step in PyTorch is a hundred operations of a few microseconds, most of it
overhead: longer than exact attention over a thousand keys. Without a compiler the plain step remains.

    B batch   H heads   G key-value heads   d, e widths of keys and values
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from ctypes import Structure, byref, c_float, c_int, c_long, c_void_p
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attention.linear.cache import FeatureCache
from regard.attention.linear.feature_maps import (
    EluPlusOne,
    Hyperbolic,
    OptimalPositive,
    Plain,
    Positive,
    Trig,
)
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.layer import RandomFeatureAttention
from regard.kernels.native.compiler import load_library, pointer
from regard.positions import Position
from regard.positions.rotary import Rotary
from regard.traits import own_traits, traits_of

SOURCE = Path(__file__).with_name("linear_step.c")
KINDS = (Trig, Plain, Positive, Hyperbolic, OptimalPositive, EluPlusOne)  # in the order of linear_step.h
KNOWN_TRAITS = frozenset(
    {
        *("random-features", "grouped-query", "head-widths", "input-widths", "gate", "key-dropout"),
        *("no-output", "attention-bias"),
        *("map trig", "map plain", "map positive", "map hyperbolic", "map optimal", "map elu"),
        *("normalize", "feature-scale", "learned-scale"),
        *("position Rotary", "rotary-interleaved", "rotary-fraction", "rotary-scaling"),
    }
)
STACK = 65_536  # numbers on the stack of a thread, at most
A_THREAD = 100_000  # numbers of S for each thread: waking one up takes microseconds


class Features(Structure):
    """The struct of this name in linear_step.h, like the others below."""

    _fields_ = (
        *((name, c_void_p) for name in ("W", "sigma")),
        *((name, c_int) for name in ("map", "heads", "kv_heads", "d", "e", "M", "F", "normalize")),
        *((name, c_float) for name in ("root", "A", "factor", "floor")),
        *((name, c_int) for name in ("turning", "interleaved")),
    )


class Sums(Structure):
    _fields_ = tuple((name, c_void_p) for name in ("S", "z", "log_scale", "log_decay"))


class New(Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("q", "k", "v")),
        *((name, c_long) for name in ("q_row", "k_row", "v_row")),
    )


def why_not(layer: RandomFeatureAttention) -> str | None:
    """Return why the C code does not implement the steps of this layer (options, map, positions), or None."""
    traits = own_traits(layer) | traits_of(layer.features)
    if layer.position is not None:
        traits |= traits_of(layer.position)
    unknown = sorted(traits - KNOWN_TRAITS)
    return f"not implemented in C: {', '.join(unknown)}" if unknown else None


def step_in_c(
    q: Tensor,  # (B, H, 1, d)
    k: Tensor,  # (B, G, 1, d)
    v: Tensor,  # (B, G, 1, e)
    *,
    features: RandomFeatures,
    position: Position | None,
    gate: Tensor | None,  # (B, 1, G), before the sigmoid
    cache: FeatureCache,
) -> Tensor | None:
    """Return the output (B, 1, H · e) and update the cache's state; or return None and change nothing."""
    if (
        type(q) is not Tensor  # a fake or a distributed tensor
        or q.dtype is not torch.float32
        or any(
            x.stride(1) != x.shape[3] or x.stride(3) != 1 for x in (q, k, v)
        )  # the heads of a row must be adjacent in memory
        or torch.compiler.is_compiling()
        or not (is_plain(cache) and is_written(features, position, q.shape[1]))
        or (code := compiled()) is None
    ):
        return None
    B, H, _, e = (*q.shape[:3], v.shape[3])
    turns = position if isinstance(position, Rotary) else None
    y = q.new_empty(B, 1, H * e)
    failed = code.feature_step(
        byref(describe(features, turns, H, e)),
        byref(sums(cache)),
        byref(New(q.data_ptr(), k.data_ptr(), v.data_ptr(), q.stride(0), k.stride(0), v.stride(0))),
        pointer(gate),
        None if turns is None else frequencies(turns.rotated_dim, turns.base, turns.scaling),
        *map(pointer, (cache.lengths, y)),
        B,
        min(torch.get_num_threads(), B * k.shape[1], 1 + cache.state.S.numel() // A_THREAD),
    )
    if failed:
        raise MemoryError(f"not enough memory for a step of {B} rows")
    return y


def is_plain(cache: FeatureCache) -> bool:
    """Whether the state is contiguous, in float32, on a CPU, and without gradients."""
    state = cache.state
    return (
        state.S.dtype is torch.float32
        and state.S.device.type == "cpu"
        and not state.S.requires_grad
        and all(part.is_contiguous() for part in (state.S, state.z, state.log_scale, state.log_decay, cache.lengths))
    )


def is_written(features: RandomFeatures, position: Position | None, heads: int) -> bool:
    """Whether linear_step.h implements these features and positions, and no hook observes the features."""
    wide = (heads // features.heads + 1) * (features.features + features.dim)
    return (
        type(features.map) in KINDS
        and features.W.dtype is torch.float32
        and not (features._forward_hooks or features._forward_pre_hooks)
        and (position is None or (type(position) is Rotary and isinstance(position.scaling, Hashable)))
        and wide <= STACK
    )


def describe(features: RandomFeatures, turns: Rotary | None, heads: int, e: int) -> Features:
    """Describe features and positions for C. It contains pointers to W and sigma, so it must not outlive them."""
    kind, M, F, d = features.map, features.rows, features.features, features.dim
    A = kind.best_a(d) if isinstance(kind, OptimalPositive) else 0.0
    waves = isinstance(kind, Trig | Plain)
    if waves or isinstance(kind, EluPlusOne):
        factor = M**-0.5 if waves else 1.0
    else:
        factor = math.log(F**-0.5 * (1 - 4 * A) ** (d / 4))
    return Features(
        features.W.data_ptr(),
        None if features.sigma is None else features.sigma.data_ptr(),
        *(KINDS.index(type(kind)), heads, features.heads, d, e, M, F, features.normalize),
        *(features.scale**0.5, A, factor, kind.floor),
        *((0, 0) if turns is None else (turns.rotated_dim, turns.layout == "interleaved")),
    )


def sums(cache: FeatureCache) -> Sums:
    state = cache.state
    return Sums(*(part.data_ptr() for part in (state.S, state.z, state.log_scale, state.log_decay)))


@lru_cache(maxsize=64)
def frequencies(turning: int, base: float, scaling: Any) -> Any:
    """The angular frequencies of rotary positions; cached, because PyTorch takes as long for them as C for a step."""
    theta = Rotary(head_dim=turning, base=base, scaling=scaling).frequencies()
    return (c_float * len(theta))(*theta.tolist())


@cache
def compiled() -> Any:
    """Load the functions of linear_step.c; None where they cannot be compiled."""
    code = load_library(SOURCE)
    if code is not None:
        code.feature_step.argtypes = [*[c_void_p] * 7, c_int, c_int]
    return code
