"""What the Triton kernels of random-feature attention can compute, and where.

F3. operators.py has the kernels for whole sequences, step_triton.py the one for a single token. Both compute the
features themselves, so nothing of their size is ever written to memory.

    B batch   H heads   G key-value heads   r = H/G   m queries   n keys   d, e widths   M rows of W
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.attention.linear.feature_maps import EluPlusOne, Hyperbolic, OptimalPositive, Plain, Positive, Trig
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.state import FeatureState
from regard.kernels.devices import runs_triton
from regard.traits import why_unknown

KNOWN_TRAITS = frozenset(
    {
        *("map trig", "map plain", "map positive", "map hyperbolic", "map optimal", "map elu"),
        *("normalize", "feature-scale", "learned-scale"),
    }
)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
TILE_SIZES = (16, 32, 64, 128)  # of matrix units
MAX_TILE_NUMBERS = 128 * 64  # of a state: registers hold no more; in float32 half as many
NEEDS_GPU = "it is for NVIDIA GPUs of compute capability 8.0 or more, with Triton installed"


def why_not_attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    features: RandomFeatures,
    gate: Tensor | None,
    causal: bool,
    state: FeatureState | None,
    return_state: bool,
) -> str | None:
    """Return why the kernels cannot attend with q (B, H, m, d), k (B, G, n, d) and v (B, G, n, e), or None."""
    if not runs_triton(q.device):
        return f"{NEEDS_GPU}, and q is on {q.device}"
    if q.dtype not in DTYPES:
        return f"it is for float32, bfloat16 and float16, got {q.dtype}"
    unknown = why_unknown(features, KNOWN_TRAITS)
    if unknown is not None:
        return unknown
    sizes = (features.rows or features.dim, features.dim, v.shape[3])
    max_tile = MAX_TILE_NUMBERS // 2 if q.dtype == torch.float32 else MAX_TILE_NUMBERS
    if not {*sizes} <= {*TILE_SIZES} or sizes[0] * max(sizes[1:]) > max_tile:
        return (
            "rows of W (half the features of a map of pairs) and widths must be 16, 32, 64 or 128, with at most 128 "
            f"rows at width 64, in float32 64; got (rows, d, e) = {sizes} in {q.dtype}"
        )
    m, n = q.shape[2], k.shape[2]
    if not min(q.numel(), k.numel()) or (causal and (m != n or m == 1)):
        return f"causal attention must have as many queries as keys, more than one; got {m} and {n}"
    if state is not None and (q.dtype == torch.float16 or state.S.dtype != torch.float32):
        return "a state must be of float32, and float16 cannot be added to one: its numbers may be greater than 65504"
    leaves = [None if state is None else state.S, *((q, k, v, gate, features.sigma) if return_state else ())]
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in leaves):
        return "it has no gradients for a state: use torch.no_grad(), or detach() the state"
    return None


def why_not_step(x: Tensor, v: Tensor, features: RandomFeatures, state: FeatureState) -> str | None:
    """Return why the kernel cannot take the step of one token, x (B, G, r + 1, d) and v (B, G, 1, e), or None."""
    if not runs_triton(x.device):
        return f"{NEEDS_GPU}, and x is on {x.device}"
    if torch.compiler.is_compiling():
        return "torch.compile traces the plain step"
    if x.dtype not in DTYPES or state.S.dtype != torch.float32:
        return f"it is for float32, bfloat16 and float16 and a state in float32; got {x.dtype} and {state.S.dtype}"
    if not all(part.is_contiguous() for part in (state.S, state.z, state.log_scale, state.log_decay)):
        return "the state must be contiguous"
    unknown = why_unknown(features, KNOWN_TRAITS)
    if unknown is not None:
        return unknown
    sizes = (features.rows or features.dim, features.dim, v.shape[3])
    if not {*sizes} <= {*TILE_SIZES} or sizes[0] * max(sizes[1:]) > MAX_TILE_NUMBERS:
        return f"rows of W and widths must be 16, 32, 64 or 128; got (rows, d, e) = {sizes}"
    return None


def kernel_map(features: RandomFeatures) -> tuple[str, tuple[float, ...]]:
    """Return the map's name in the kernels and its numbers, in the order of launch_triton's Settings."""
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
    raise ValueError(f"the kernels have no map {kind.__name__}")
