"""When attention by features goes to kernels, on NVIDIA GPUs, and what they are told.

F3. op_triton.py has those for texts, step_triton.py the one for a single token. They make the features themselves, so
nothing of their size is ever written.

    B batch   H heads   G heads of keys   m queries   n keys   d, e widths   M rows of W
"""

from __future__ import annotations

import importlib.util
import math
import os

import torch
from torch import Tensor
from torch.nn import functional

from regard.attention.linear.feature_maps import EluPlusOne, Hyperbolic, OptimalPositive, Plain, Positive, Trig
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.state import FeatureState

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SIZES = (16, 32, 64, 128)  # tiles of matrix units
LARGEST = 128 * 64  # numbers of a tile of the state: more, registers do not hold; of float32 half as many
HAVE_TRITON = importlib.util.find_spec("triton") is not None  # only looked for: to load it takes a while
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # by the CPU, to test the kernels


def why_not_fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    features: RandomFeatures,
    gate: Tensor | None,
    causal: bool,
    state: FeatureState | None,
    back: bool,
) -> str | None:
    """What keeps q (B, H, m, d), k (B, G, n, d), v (B, G, n, e) from the kernels, or None; `back`: wants a state."""
    if not HAVE_TRITON or not (q.is_cuda or INTERPRETED):
        return f"it is for NVIDIA GPUs, with Triton installed, and q is on {q.device}"
    if q.dtype not in DTYPES:
        return f"it is for float32, bfloat16 and float16, got {q.dtype}"
    sizes = (features.rows or features.dim, features.dim, v.shape[3])
    largest = LARGEST // 2 if q.dtype == torch.float32 else LARGEST
    if kernel_map(features) is None or not {*sizes} <= {*SIZES} or sizes[0] * max(sizes[1:]) > largest:
        return (
            "it knows regard's maps with rows of W (half the features of a map of pairs) and widths of 16, 32, 64 or "
            f"128, at most 128 rows at width 64, of float32 64; got {type(features.map).__name__} with (rows, d, e) = "
            f"{sizes} of {q.dtype}"
        )
    m, n = q.shape[2], k.shape[2]
    if not min(q.numel(), k.numel()) or (causal and (m != n or m == 1)):
        return f"causal attention must have as many queries as keys, more than one; got {m} and {n}"
    if state is not None and (q.dtype == torch.float16 or state.S.dtype != torch.float32):
        return "a state must be of float32, and float16 cannot be added to one: its numbers may be greater than 65504"
    leaves = [None if state is None else state.S, *((q, k, v, gate, features.sigma) if back else ())]
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in leaves):
        return "it has no gradients for a state: use torch.no_grad(), or detach() the state"
    if q.is_cuda:
        from regard.kernels.gpu import AMPERE

        if not AMPERE:
            return "it needs an NVIDIA GPU of compute capability 8.0 or more"
    return None


def steps_fused(x: Tensor, v: Tensor, features: RandomFeatures, state: FeatureState) -> bool:
    """Whether one token x (B, G, r + 1, d), v (B, G, 1, e) goes to the kernel of step_triton.py."""
    if not HAVE_TRITON or not (x.is_cuda or INTERPRETED) or torch.compiler.is_compiling():
        return False
    if x.is_cuda:
        from regard.kernels.gpu import AMPERE

        if not AMPERE:
            return False
    sizes = (features.rows or features.dim, features.dim, v.shape[3])
    return (
        x.dtype in DTYPES
        and state.S.dtype == torch.float32
        and all(part.is_contiguous() for part in (state.S, state.z, state.level, state.forgotten))
        and kernel_map(features) is not None
        and {*sizes} <= {*SIZES}
        and sizes[0] * max(sizes[1:]) <= LARGEST
    )


def attend_fused(
    q: Tensor,  # (B, H, m, d)
    k: Tensor,  # (B, G, n, d)
    v: Tensor,  # (B, G, n, e)
    *,
    features: RandomFeatures,
    keep: Tensor | None,  # (B, G, n), broadcastable
    causal: bool,
    gate: Tensor | None,  # (B, G, n), before the sigmoid
    state: FeatureState | None,
    back: bool,
) -> tuple[Tensor, FeatureState | None]:
    """Output (B, H, m, e), and the state after the last key if it is to be given `back`."""
    from regard.kernels.linear.operators import attend_walk, sum_up

    c, log_g = key_weights(k, keep, gate)
    a = torch.full((1, features.dim), features.scale**0.5, device=q.device)
    a = a if features.sigma is None else a * features.sigma.float()
    known = kernel_map(features)
    assert known is not None
    normalize = features.normalize and not features.map.raw
    before = (None, None, None) if state is None else (state.S, state.z, state.level)
    rest = (features.W, a, c, log_g, *before)
    map, (sign, *numbers, floor) = known
    levels = needs_levels(q.dtype, features, log_g)
    if not levels and normalize:  # with them it is for sums that are divided by the weight of the heaviest key
        floor *= math.exp(sign * features.scale / 2)
    how = (normalize, features.sigma is not None, levels, map, (sign, *numbers, floor), 0)
    y, _, _ = attend_walk(q, k, v, *rest, causal, *how)
    if not back:
        return y, None
    S, z, level = sum_up(k, v, *rest, *how)
    forgotten = torch.zeros_like(level) if state is None else state.forgotten
    forgotten = forgotten if log_g is None else forgotten + log_g.sum(-1)
    return y, FeatureState(S, z, level, forgotten, features.draw)


def key_weights(k: Tensor, keep: Tensor | None, gate: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Logarithms of what keys' weights are multiplied by, and of their gates, (B, G, n): 1 - g, g; if padded 0, 1."""
    c = log_g = None
    if gate is not None:
        gate = gate.float()
        c, log_g = functional.logsigmoid(-gate), functional.logsigmoid(gate)
    if keep is not None:
        c = torch.zeros(keep.shape, device=k.device) if c is None else c
        c = c.masked_fill(~keep, float("-inf")).expand(k.shape[:3])
        log_g = None if log_g is None else log_g.masked_fill(~keep, 0.0)
    return c, log_g


def needs_levels(dtype: torch.dtype, features: RandomFeatures, log_g: Tensor | None) -> bool:
    """Whether the kernels must guard against features and weights too large or too small for the dtype.

    A feature of a normalised x is e^u times less than 2, with |u| <= |w| |x| and |w| about sqrt(d): of N(0, I) it is 5
    more for one row in 300,000. If that is at most e^20 = 2^29, products of two are between 2^-60, which is above the
    floor of denominators, and 2^60, and so the sum of 2^31 of them is below 2^127, where bfloat16 and float32 end.
    Float16 ends at 2^16; gates make weights as small as they like.
    """
    known = kernel_map(features)
    assert known is not None
    map, (sign, _, stretch, bend, _) = known
    if dtype == torch.float16 or log_g is not None:
        return True
    if map == "elu" or (map == "trig" and sign == 0.0):  # whose features are as large as x, or at most 1
        return False
    w = features.dim**0.5 + 5
    largest = abs(bend) * w**2 + stretch * w * features.scale**0.5 + features.scale / 2
    return not features.normalize or features.sigma is not None or largest > 20


def kernel_map(features: RandomFeatures) -> tuple[str, tuple[float, ...]] | None:
    """The kernels' name of the map and its numbers, in the order of op_triton's Settings; None: they know it not."""
    map, M, d = features.map, features.rows, features.dim
    kind = type(map)
    if kind is Hyperbolic:
        return "hyperbolic", (-1.0, (2 * M) ** -0.5, 1.0, 0.0, map.floor)
    if kind is Positive:
        return "positive", (-1.0, M**-0.5, 1.0, 0.0, map.floor)
    if isinstance(map, OptimalPositive) and kind is OptimalPositive:
        A = map.best_a(d)
        return "positive", (-1.0, M**-0.5 * (1 - 4 * A) ** (d / 4), math.sqrt(1 - 4 * A), A, map.floor)
    if kind in (Trig, Plain):
        return "trig", (1.0 if kind is Trig else 0.0, M**-0.5, 1.0, 0.0, map.floor)
    if kind is EluPlusOne:
        return "elu", (0.0, 1.0, 1.0, 0.0, map.floor)
    return None
