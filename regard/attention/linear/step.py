"""One token more: the state moves on by a few operations, in the memory that it has.

F3: S_t = g_t S_{t-1} + w_t phi(k_t) v_t^T, z_t likewise, o_t = phi(q_t) S_t / phi(q_t).z_t; Peng et al. 2021, eq. 7.
A decoder takes this step for each token and layer, and on a CPU, or for few rows, each operation costs more to ask for
than to do. So this is the chunked form for a text of one token, in as few of them as there can be; on NVIDIA GPUs it is
one kernel (step_triton.py). The state's memory stays where it is, so a CUDA graph can record it.

    B batch   G heads of keys   r queries' heads to each   d, e widths of keys and values   F features
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.reference import guarded
from regard.attention.linear.state import FeatureState


def take_step(
    x: Tensor,  # (B, G, r + 1, d): the queries of each group, and its key behind them
    v: Tensor,  # (B, G, 1, e)
    *,
    features: RandomFeatures,
    gate: Tensor | None,  # (B, G, 1), before the sigmoid
    state: FeatureState,
) -> Tensor:
    """Output (B, G, r, e); the state is that after this token from then on, in the same memory."""
    B, G, _, d = x.shape
    r = x.shape[2] - 1
    side_by_side = x.to(state.S.dtype).transpose(0, 1).reshape(1, G, 1, B * (r + 1), d)  # rows have W in common
    phi, level = features(side_by_side)  # of queries and key at once
    phi = phi.view(G, B, r + 1, -1).transpose(0, 1)
    new, old = level.view(G, B, r + 1)[..., r].T, state.level  # (B, G); a query's level cancels
    if gate is not None:
        gate = gate[..., 0].to(new.dtype)
        log_g = functional.logsigmoid(gate)
        new, old = new + functional.logsigmoid(-gate), old + log_g
        state.forgotten.add_(log_g)
    top = torch.maximum(old, new)
    a, b = (old - top).exp_()[..., None], (new - top).exp_()[..., None]  # (B, G, 1)
    weighed = phi[:, :, r] * b  # (B, G, F)
    S = state.S.mul_(a[..., None]).addcmul_(weighed[..., None], v.to(state.S.dtype))
    z = state.z.mul_(a).add_(weighed)
    state.level.copy_(top)
    phi = phi[:, :, :r]
    return (phi @ S) / guarded(phi @ z[..., None], features.map.floor)
