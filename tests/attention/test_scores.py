"""Scores: each formula of D5 one pair at a time, the split into keys and compare, gradients, names.

… batch and heads   m queries   n keys
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from regard import AdditiveScore, BilinearScore, ConcatScore, DotScore, attend
from regard.attention.scores import SCORES, make_score


def pairwise(q: Tensor, k: Tensor, score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    return torch.stack([torch.stack([score(query, key) for key in k]) for query in q])


FORMULAS: dict[str, Callable[[nn.Module, Tensor, Tensor], Tensor]] = {
    "dot": lambda s, q, k: q @ k,
    "scaled": lambda s, q, k: q @ k / math.sqrt(len(k)),
    "bilinear": lambda s, q, k: q @ s.weight @ k,
    "additive": lambda s, q, k: s.weight @ torch.tanh(s.query.weight @ q + s.key.weight @ k),
    "concat": lambda s, q, k: s.weight @ torch.tanh(s.stacked.weight @ torch.cat([q, k])),
    "fourier": lambda s, q, k: (torch.sin(s.radius * (q - k)) / (s.radius * (q - k))).pow(s.power).prod().log(),
}


@pytest.mark.parametrize("name", SCORES)
@given(m=st.integers(1, 4), n=st.integers(1, 4), query_dim=st.integers(1, 5), key_dim=st.integers(1, 5))
def test_formula(name: str, m: int, n: int, query_dim: int, key_dim: int) -> None:
    if name in ("dot", "scaled", "fourier"):
        key_dim = query_dim
    score = make_score(name, query_dim=query_dim, key_dim=key_dim, hidden=3).double()
    q, k = torch.randn(m, query_dim).double(), torch.randn(n, key_dim).double()
    want = pairwise(q, k, lambda query, key: FORMULAS[name](score, query, key))
    assert torch.allclose(score(q, k), want, atol=1e-12)
    batch_q, batch_k = q.expand(2, 3, -1, -1), k.expand(2, 3, -1, -1)
    assert torch.allclose(score(batch_q, batch_k), want.expand(2, 3, -1, -1), atol=1e-12)


@pytest.mark.parametrize("name", SCORES)
def test_keys_once_and_compare_each_step(name: str) -> None:
    """What a recurrent decoder does: project the source once, then ask for one query at a time."""
    score = make_score(name, query_dim=4, key_dim=4, hidden=3)
    q, k = torch.randn(2, 5, 4), torch.randn(2, 6, 4)
    keys = score.keys(k)
    steps = [score.compare(q[:, i : i + 1], keys) for i in range(5)]
    assert torch.allclose(torch.cat(steps, 1), score(q, k), atol=1e-6)


@pytest.mark.parametrize("name", ["bilinear", "additive", "concat"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_attend_with_a_score_that_has_parameters(name: str, dtype: torch.dtype) -> None:
    """Two widths, any dtype; gradients reach every parameter; the weights are the softmax of the scores."""
    score = make_score(name, query_dim=4, key_dim=6, hidden=3).to(dtype)
    q, k, v = torch.randn(2, 3, 4).to(dtype), torch.randn(2, 5, 6).to(dtype), torch.randn(2, 5, 7).to(dtype)
    y, weights = attend(q, k, v, score=score, causal=True, return_weights=True)
    assert y.shape == (2, 3, 7) and y.dtype == weights.dtype == dtype
    hidden = ~torch.ones(3, 5, dtype=torch.bool).tril(2)
    want = torch.softmax(score(q, k).float().masked_fill(hidden, -torch.inf), -1)
    assert torch.allclose(weights.float(), want, atol=1e-2)
    assert torch.equal(y, attend(q, k, v, score=score, causal=True))
    y.float().pow(2).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in score.parameters())


def test_any_callable_is_a_score() -> None:
    """Here the negative squared distance, with a scale and with grouped heads."""
    q, k, v = torch.randn(2, 4, 3, 5), torch.randn(2, 2, 6, 5), torch.randn(2, 2, 6, 5)

    def distance(q: Tensor, k: Tensor) -> Tensor:
        return -torch.cdist(q, k).pow(2)

    y = attend(q, k, v, score=distance, scale=0.5)
    for h in range(4):
        apart = (q[:, h, :, None] - k[:, h // 2, None]).pow(2).sum(-1)
        assert torch.allclose(y[:, h], torch.softmax(-apart / 2, -1) @ v[:, h // 2], atol=1e-5)


def test_modules_equal_names() -> None:
    q, k, v = torch.randn(3, 2, 1, 4, 9).unbind()
    assert torch.allclose(attend(q, k, v, score=DotScore()), attend(q, k, v, score="dot"), atol=1e-6)
    assert torch.allclose(attend(q, k, v, score=DotScore(scale=1 / 3)), attend(q, k, v), atol=1e-6)


def test_concat_is_additive_with_its_matrices_side_by_side() -> None:
    additive = AdditiveScore(query_dim=4, key_dim=6, hidden=3)
    concat = ConcatScore(query_dim=4, key_dim=6, hidden=3)
    with torch.no_grad():
        concat.stacked.weight.copy_(torch.cat([additive.query.weight, additive.key.weight], 1))
        concat.weight.copy_(additive.weight)
    q, k = torch.randn(2, 4), torch.randn(5, 6)
    assert torch.allclose(concat(q, k), additive(q, k), atol=1e-6)


def test_bilinear_with_the_unit_matrix_is_the_dot() -> None:
    score = BilinearScore(query_dim=4, key_dim=4)
    with torch.no_grad():
        score.weight.copy_(torch.eye(4))
    q, k = torch.randn(2, 4), torch.randn(5, 4)
    assert torch.allclose(score(q, k), q @ k.T, atol=1e-6)


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"unknown score 'aditive'; did you mean 'additive'\?"):
        make_score("aditive", query_dim=2, key_dim=2, hidden=2)
    with pytest.raises(ValueError, match=r"score 'dot'.*one width, got query_dim=2 and\s+key_dim=3; bilinear"):
        make_score("dot", query_dim=2, key_dim=3, hidden=2)
