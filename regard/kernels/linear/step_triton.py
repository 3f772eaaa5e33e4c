"""The step of a decoder as one Triton kernel: regard/attention/linear/step.py does it in about thirty operations.

F3: S_t = g_t S_{t-1} + w_t phi(k_t) v_t^T, z_t likewise, o_t = phi(q_t) S_t / phi(q_t).z_t; Peng et al. 2021, eq. 7.
The state is read once and written once, which is the minimum; separate operations read it four times.

    B batch   G key-value heads   r query heads for each   d, e widths of keys and values   M rows of W   F features
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton import language as tl

from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.state import FeatureState
from regard.kernels.linear.capabilities import kernel_map
from regard.kernels.linear.features_triton import LOG2E, load_w, normal, numbers
from regard.kernels.linear.launch_triton import PAIRS


@triton.jit
def phi_of_one(
    x, w, bias, scale, factor,
    KEYS: tl.constexpr, MAP: tl.constexpr, SIGN: tl.constexpr, NORMALIZE: tl.constexpr, SCALED: tl.constexpr,
    BENT: tl.constexpr,
):  # fmt: skip
    """Features of one vector x (d,) as columns (M, 1), both halves; for a key also the logarithm of its weight (1,)."""
    x, half, _ = normal(x[None, :], scale, NORMALIZE, SCALED)
    if MAP == "elu":
        u = tl.trans(x)
    else:
        u = tl.sum(w * x, 1)[:, None]
    return numbers(u, bias[:, None], half * (SIGN * LOG2E), factor, 0, KEYS, MAP, BENT, True)


@triton.jit(do_not_specialize=["G"])
def step(
    x, v, gate,  # (B, G, r + 1, d) with the key last, (B, G, e), (B, G)
    W, a, S, z, log_scale_at, log_decay, out,  # the state is overwritten; out (B, G, r, e)
    G, w_head, a_head, factor, stretch, bend, floor,
    R: tl.constexpr, MAP: tl.constexpr, SIGN: tl.constexpr, NORMALIZE: tl.constexpr, SCALED: tl.constexpr,
    GATED: tl.constexpr, BENT: tl.constexpr, D: tl.constexpr, E: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """Take the step of one head of one text. Logarithms are to base 2 here; those in the state are natural."""
    PAIR: tl.constexpr = MAP == "hyperbolic" or MAP == "trig"
    F: tl.constexpr = 2 * M if PAIR else M
    row = tl.program_id(0).to(tl.int64)
    g = row % G
    wide, column, r = tl.arange(0, D), tl.arange(0, E), tl.arange(0, M)
    w, bias, scale = load_w(W + g * w_head, a + g * a_head, stretch, bend, M, D, MAP)
    x += row * (R + 1) * D
    key = tl.load(x + R * D + wide).to(tl.float32)
    k1, k2, new = phi_of_one(key, w, bias, scale, factor, True, MAP, SIGN, NORMALIZE, SCALED, BENT)
    new, old = tl.max(new, 0), tl.load(log_scale_at + row) * LOG2E
    if GATED:
        t = tl.load(gate + row).to(tl.float32)
        log_g = (
            tl.minimum(t, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(t)))
        ) * LOG2E  # log sigmoid(t); log sigmoid(-t) is t less
        new, old = new + log_g - t * LOG2E, old + log_g
        tl.store(log_decay + row, tl.load(log_decay + row) + log_g / LOG2E)
    log_scale = tl.maximum(old, new)
    decay, weight = tl.exp2(old - log_scale), tl.exp2(new - log_scale)
    tl.store(log_scale_at + row, log_scale / LOG2E)

    value = tl.load(v + row * E + column).to(tl.float32)[None, :]
    here, sums = S + row * F * E + r[:, None] * E + column[None, :], z + row * F + r[:, None]
    S1, z1 = tl.load(here) * decay + k1 * weight * value, tl.load(sums) * decay + k1 * weight
    tl.store(here, S1)
    tl.store(sums, z1)
    if PAIR:
        S2, z2 = tl.load(here + M * E) * decay + k2 * weight * value, tl.load(sums + M) * decay + k2 * weight
        tl.store(here + M * E, S2)
        tl.store(sums + M, z2)
    for i in tl.static_range(R):
        query = tl.load(x + i * D + wide).to(tl.float32)
        q1, q2, _ = phi_of_one(query, w, bias, scale, factor, False, MAP, SIGN, NORMALIZE, SCALED, BENT)
        num, den = tl.sum(q1 * S1, 0), tl.sum(tl.sum(q1 * z1, 0), 0)
        if PAIR:
            num += tl.sum(q2 * S2, 0)
            den += tl.sum(tl.sum(q2 * z2, 0), 0)
        den = tl.where(tl.abs(den) < floor, floor, den)
        tl.store(out + (row * R + i) * E + column, num / den)


def take_step_fused(
    x: Tensor, v: Tensor, *, features: RandomFeatures, gate: Tensor | None, state: FeatureState
) -> Tensor:
    """Return the output (B, G, r, e) in float32, and update the state in place; see step.take_step."""
    B, G, many, d = x.shape
    e = v.shape[-1]
    map, (sign, factor, stretch, bend, floor) = kernel_map(features)
    a = torch.full((1, d), features.scale**0.5, device=x.device)
    a = a if features.sigma is None else a * features.sigma.float()
    W, out = features.W, x.new_empty(B, G, many - 1, e, dtype=torch.float32)
    M = d if map == "elu" else W.shape[-2]
    step[(B * G,)](
        x.contiguous(), v.contiguous(), x if gate is None else gate.contiguous(),
        W, a, state.S, state.z, state.log_scale, state.log_decay, out,
        G, *(x.stride(0) if x.shape[0] > 1 else 0 for x in (W, a)), factor, stretch, bend, floor,
        R=many - 1, MAP=map, SIGN=sign, NORMALIZE=features.normalize and not features.map.raw,
        SCALED=features.sigma is not None, GATED=gate is not None, BENT=bend != 0.0, D=d, E=e, M=M,
        num_warps=8 if M * max(d, e * (2 if map in PAIRS else 1)) > 64 * 64 else 4,
    )  # fmt: skip
    return out
