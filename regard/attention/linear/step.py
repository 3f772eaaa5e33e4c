"""The step of a decoder: add one token to the state, in place.

F3: S_t = g_t S_{t-1} + w_t phi(k_t) v_t^T, z_t likewise, o_t = phi(q_t) S_t / phi(q_t).z_t; Peng et al. 2021, eq. 7.
A decoder takes this step for each token and layer, and for few rows each operation costs more to launch than to
compute. So this is the chunked form for a text of one token, in as few operations as possible. The state stays in its
memory, so a CUDA graph can capture the step.

    B batch   G key-value heads   r query heads per key-value head   d, e widths of keys and values   F features
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.reference import guarded
from regard.attention.linear.state import FeatureState


def take_step(
    x: Tensor,  # (B, G, r + 1, d): the queries of each group, then its key
    v: Tensor,  # (B, G, 1, e)
    *,
    features: RandomFeatures,
    gate: Tensor | None,  # (B, G, 1), before the sigmoid
    state: FeatureState,
) -> Tensor:
    """Return the output (B, G, r, e), and update the state in place."""
    B, G, _, d = x.shape
    r = x.shape[2] - 1
    flat = x.to(state.S.dtype).transpose(0, 1).reshape(1, G, 1, B * (r + 1), d)  # all rows share W
    phi, log_scale = features(flat)  # of queries and key at once
    phi = phi.view(G, B, r + 1, -1).transpose(0, 1)
    new, old = log_scale.view(G, B, r + 1)[..., r].T, state.log_scale  # (B, G); that of a query cancels
    if gate is not None:
        gate = gate[..., 0].to(new.dtype)
        log_g = functional.logsigmoid(gate)
        new, old = new + functional.logsigmoid(-gate), old + log_g
        state.log_decay.add_(log_g)
    top = torch.maximum(old, new)
    a, b = (old - top).exp_()[..., None], (new - top).exp_()[..., None]  # (B, G, 1)
    weighted_key = phi[:, :, r] * b  # (B, G, F)
    S = state.S.mul_(a[..., None]).addcmul_(weighted_key[..., None], v.to(state.S.dtype))
    z = state.z.mul_(a).add_(weighted_key)
    state.log_scale.copy_(top)
    phi = phi[:, :, :r]
    return (phi @ S) / guarded(phi @ z[..., None], features.map.floor)
