"""Solution of causal-linear."""

import torch
from torch import Tensor


def causal_linear(phi_Q: Tensor, phi_K: Tensor, V: Tensor) -> Tensor:
    """φ(Q) and φ(K) (n, M), all positive, V (n, d_v); return the output (n, d_v)."""
    S = torch.zeros(phi_K.shape[1], V.shape[1])
    z = torch.zeros(phi_K.shape[1])
    rows = []
    for q, k, v in zip(phi_Q, phi_K, V, strict=True):
        S = S + torch.outer(k, v)
        z = z + k
        rows.append(q @ S / (q @ z))
    return torch.stack(rows)
