"""attend: what holds for it whatever the backend.

B batch   H heads   G key-value heads   m queries   n keys   d_k key width   d_v value width
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from regard import attend, masks

by_backend = pytest.mark.parametrize("backend", ["auto", "reference", "sdpa", "flash", "math"])


def inputs(B: int = 2, G: int = 2, group: int = 1, m: int = 3, n: int = 3, d: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (torch.randn(B, heads, length, d).double() for heads, length in ((G * group, m), (G, n), (G, n)))
    return q, k, v


@by_backend
def test_a_bias_of_a_finer_dtype_is_rounded(backend: str) -> None:
    q, k, v = (x.float() for x in inputs())
    bias = torch.randn(3, 3, dtype=torch.float64)
    with_float = attend(q, k, v, bias=bias.float(), backend="reference")
    assert torch.allclose(attend(q, k, v, bias=bias, backend=backend), with_float, atol=1e-6)


@by_backend
@pytest.mark.parametrize(
    "shape", [(), (1,), (7,), (5, 1), (1, 7), (5, 7), (4, 5, 7), (4, 1, 1), (1, 1, 1, 7), (2, 1, 5, 1)]
)
def test_masks_and_biases_broadcast(backend: str, shape: tuple[int, ...]) -> None:
    q, k, v = inputs(group=2, m=5, n=7)
    mask, bias = torch.rand(shape) < 0.6, torch.randn(shape, dtype=torch.float64)
    whole = {"mask": mask.expand(2, 4, 5, 7), "bias": bias.expand(2, 4, 5, 7)}
    for options in ({"mask": mask}, {"bias": bias}, {"mask": mask, "bias": bias}):
        want = attend(q, k, v, **{name: whole[name] for name in options}, backend="reference")
        assert torch.allclose(attend(q, k, v, **options, backend=backend), want, atol=1e-12)


@by_backend
def test_ranks_agree(backend: str) -> None:
    """(B, H, T, D), (B, T, D) and (T, D) are the same computation; masks and weights go along."""
    q, k, v = inputs(G=1, m=5, n=7)
    mask, bias = torch.rand(2, 1, 5, 7) < 0.7, torch.randn(2, 1, 5, 7, dtype=torch.float64)
    whole = attend(q, k, v, mask=mask, bias=bias, causal=True, backend=backend)
    without_heads = attend(q[:, 0], k[:, 0], v[:, 0], mask=mask[:, 0], bias=bias[:, 0], causal=True, backend=backend)
    one = attend(q[1, 0], k[1, 0], v[1, 0], mask=mask[1, 0], bias=bias[1, 0], causal=True, backend=backend)
    assert without_heads.shape == (2, 5, 4) and one.shape == (5, 4)
    assert torch.allclose(without_heads, whole[:, 0], atol=1e-12)
    assert torch.allclose(one, whole[1, 0], atol=1e-12)
    if backend in ("auto", "reference"):
        _, weights = attend(q[:, 0], k[:, 0], v[:, 0], mask=mask[:, 0], return_weights=True)
        assert weights.shape == (2, 5, 7)
        assert attend(q[1, 0], k[1, 0], v[1, 0], return_weights=True)[1].shape == (5, 7)


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4), m=st.integers(1, 7))
def test_rows_of_weights_sum_to_one(lengths: list[int], m: int) -> None:
    """A row is a distribution over the keys that it may see; without any it is zero."""
    q, k, v = inputs(B=len(lengths), m=m, n=5)
    _, weights = attend(q, k, v, mask=masks.padding(lengths), causal=True, return_weights=True)
    for b, length in enumerate(lengths):
        for i in range(m):
            row, seen = weights[b, :, i], max(0, min(length, i + 5 - m + 1))
            assert (row[:, :seen] > 0).all() and not row[:, seen:].any()
            assert torch.allclose(row.sum(-1), torch.tensor(float(seen > 0)).double())


@by_backend
def test_scores_and_scales(backend: str) -> None:
    q, k, v = inputs(d=9)

    def by_scale(scale: float) -> Tensor:
        return torch.softmax(q @ k.mT * scale, -1) @ v

    for options, scale in [({}, 1 / 3), ({"score": "scaled"}, 1 / 3), ({"score": "dot"}, 1.0), ({"scale": 0.7}, 0.7)]:
        assert torch.allclose(attend(q, k, v, **options, backend=backend), by_scale(scale), atol=1e-12)
    assert torch.allclose(attend(q, k, v, score="dot", scale=0.2, backend=backend), by_scale(0.2), atol=1e-12)
    # A bias is added after the scale.
    want = torch.softmax(q @ k.mT * 0.7 + 1.0 * torch.eye(3).double(), -1) @ v
    assert torch.allclose(attend(q, k, v, scale=0.7, bias=torch.eye(3).double(), backend=backend), want, atol=1e-12)


@pytest.mark.parametrize("backend", ["reference", "sdpa", "math"])
def test_dropout_keeps_the_mean(backend: str) -> None:
    """A share p of the weights is zero and the others grow by 1 / (1 - p), so outputs keep their mean."""
    n, p = 16, 0.25
    q = k = torch.zeros(64, 8, 32, n)
    v = torch.eye(n).expand(64, 8, n, n)  # the output is the weights themselves: 1/n before dropout
    y = attend(q, k[:, :, :n], v, dropout=p, backend=backend) * n
    kept = y > 0
    count = y.numel()
    assert torch.allclose(y[kept], torch.tensor(1 / (1 - p)))
    assert abs(kept.float().mean() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / count)
    assert abs(y.mean() - 1) < 5 * math.sqrt(p / (1 - p) / count)


def test_weights_are_those_before_dropout() -> None:
    q, k, v = inputs(m=9, n=9)
    y, weights = attend(q, k, v, dropout=0.5, return_weights=True)
    assert torch.equal(weights, attend(q, k, v, return_weights=True)[1])
    assert not torch.allclose(y, weights @ v)


@by_backend
def test_no_output_depends_on_a_later_key(backend: str) -> None:
    """Causality by gradient: d y_i / d (k_j, v_j) is zero for j behind i + n - m, and for those only."""
    for m, n in ((5, 5), (2, 5), (5, 3)):
        q, k, v = inputs(B=1, G=1, m=m, n=n)
        k.requires_grad_(), v.requires_grad_()
        y = attend(q, k, v, causal=True, backend=backend)
        for i in range(m):
            grads = torch.autograd.grad(y[0, 0, i].sum(), (k, v), retain_graph=True)
            reached = torch.stack([grad[0, 0].abs().sum(-1) > 0 for grad in grads])
            seen = torch.arange(n) <= i + n - m
            assert torch.equal(reached[1], seen)
            assert not (reached[0] & ~seen).any()
            if seen.sum() > 1:  # a key alone has weight 1 whatever it is
                assert torch.equal(reached[0], seen)


@by_backend
def test_keys_have_no_order(backend: str) -> None:
    """Permuted keys and values change nothing; permuted queries permute the output: B1's reason."""
    q, k, v = inputs(m=6, n=7)
    y = attend(q, k, v, backend=backend)
    keys, queries = torch.randperm(7), torch.randperm(6)
    assert torch.allclose(attend(q, k[:, :, keys], v[:, :, keys], backend=backend), y, atol=1e-12)
    assert torch.allclose(attend(q[:, :, queries], k, v, backend=backend), y[:, :, queries], atol=1e-12)


@by_backend
def test_grouped_heads_are_repeated_heads(backend: str) -> None:
    q, k, v = inputs(G=2, group=3)
    repeat = [0, 0, 0, 1, 1, 1]
    want = attend(q, k[:, repeat], v[:, repeat], backend=backend)
    assert torch.allclose(attend(q, k, v, backend=backend), want, atol=1e-12)


@by_backend
def test_a_padded_batch_is_its_sentences_one_by_one(backend: str) -> None:
    q, k, v = inputs(B=3, m=6, n=6)
    lengths = [6, 2, 4]
    y = attend(q, k, v, mask=masks.padding(lengths), causal=True, backend=backend)
    for b, length in enumerate(lengths):
        alone = attend(*(x[b : b + 1, :, :length] for x in (q, k, v)), causal=True, backend=backend)
        assert torch.allclose(y[b, :, :length], alone[0], atol=1e-12)
