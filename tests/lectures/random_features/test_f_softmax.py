"""F1: softmax attention as a kernel, the form that random features start from."""

from __future__ import annotations

import math

import torch

from regard import attend


def test_F1_softmax_attention_as_a_kernel() -> None:
    """h = D^-1 exp(Q K^T / sqrt(d_k)) V with D = diag(exp(Q K^T / sqrt(d_k)) 1)."""
    Q, K, V = torch.randn(4, 9).double(), torch.randn(6, 9).double(), torch.randn(6, 5).double()
    kernel = torch.tensor([[math.exp(float(q @ k) / 3) for k in K] for q in Q], dtype=torch.float64)
    D = torch.diag(kernel @ torch.ones(6, dtype=torch.float64))
    h = torch.linalg.inv(D) @ kernel @ V
    assert torch.allclose(attend(Q, K, V), h, atol=1e-12)
    assert torch.allclose(attend(Q, K, V, return_weights=True)[1], torch.linalg.inv(D) @ kernel, atol=1e-12)
