"""Random-feature attention as the formula is written: every pair of query and key, in float64. Slow; the oracle.

F3: h = D^-1 phi(Q) phi(K)^T V with D = diag(phi(Q) phi(K)^T 1). Peng et al. 2021, eq. 5, and eq. 7 for the gate.

    B batch   G key-value heads   r query heads per key-value head   m queries   n keys   F features   e width of values
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from regard.attention.linear.features import RandomFeatures
from regard.attention.masks.rules import causal_matrix


def attend_pairs(
    q: Tensor,  # (B, G, r, m, d)
    k: Tensor,  # (B, G, n, d)
    v: Tensor,  # (B, G, n, e)
    *,
    features: RandomFeatures,
    keep: Tensor | None,  # (B, G, n), broadcastable: which keys exist
    causal: bool,
    gate: Tensor | None,  # (B, G, n), before the sigmoid
) -> tuple[Tensor, Tensor]:
    """Return (output (B, G, r, m, e), weights (B, G, r, m, n)); the map Rows is neither causal nor gated."""
    m, n = q.shape[-2], k.shape[-2]
    exact = torch.float32 if q.device.type == "mps" else torch.float64  # Apple's GPUs have no float64
    tiny = 1e-300 if exact == torch.float64 else 1e-30
    phi_q, _ = features(q.to(exact))  # a query's scale cancels when its weights are divided by their sum
    phi_k, log_scale = features(k.unsqueeze(2).to(exact))
    # The softmax divides the keys' scales by their sum, which cancels likewise; e^1000 would overflow.
    phi_k = phi_k * log_scale.softmax(-1).unsqueeze(-1)  # (B, G, 1, n, F)
    if features.per_feature:  # first every column sums to 1, then every row
        phi_k = phi_k if keep is None else phi_k * keep[:, :, None, :, None]
        phi_k = phi_k / guarded(phi_k.sum(-2, keepdim=True), tiny)
        weights = phi_q / guarded(phi_q.sum(-1, keepdim=True), tiny) @ phi_k.mT
        return weights @ v.to(exact).unsqueeze(2), weights
    weights = phi_q @ phi_k.mT  # (B, G, r, m, n)
    if gate is not None and n:
        # S_t = g_t S_{t-1} + (1 - g_t) phi(k_t) v_t^T, so the weight of key j for query i is (1 - g_j) g_{j+1} … g_i.
        log_g = functional.logsigmoid(gate.to(exact))
        if keep is not None:
            log_g = log_g.masked_fill(~keep, 0.0)
        b = log_g.cumsum(-1)  # (B, G, n)
        i = torch.arange(n - m, n, device=q.device).clamp(min=0)
        decay = (b[..., i, None] - b[..., None, :]).clamp(max=0.0)  # above the diagonal it would grow
        weights = weights * (decay.exp() * torch.sigmoid(-gate.to(exact))[..., None, :]).unsqueeze(2)
    if causal:
        weights = weights * causal_matrix(m, n, device=q.device)
    if keep is not None:
        weights = weights * keep[..., None, None, :]
    weights = weights / guarded(weights.sum(-1, keepdim=True), tiny)
    return weights @ v.to(exact).unsqueeze(2), weights


def guarded(denominator: Tensor, floor: float) -> Tensor:
    """Keep a denominator away from 0: a query with nothing to attend to gets 0 / floor = 0."""
    return denominator.masked_fill(denominator.abs() < floor, floor)
