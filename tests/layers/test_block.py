"""The Transformer block: its two orders against the equations, its residuals, its errors.

B batch   m tokens   n source tokens   p model width
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from regard import Block, FeedForward, LayerNorm, MultiHeadAttention, RMSNorm

p = 8


def make(order: str = "post", *, cross: bool = False, dropout: float = 0.0, norm: Any = LayerNorm) -> Block:
    return Block(
        self_attention=MultiHeadAttention(dim=p, heads=2),
        cross_attention=MultiHeadAttention(dim=p, heads=2) if cross else None,
        feed_forward=FeedForward(dim=p, hidden=12),
        norm=lambda: norm(p),
        order=order,  # type: ignore[arg-type]
        dropout=dropout,
    )


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
@given(batch=st.integers(0, 3), m=st.integers(1, 5), n=st.integers(1, 5))
def test_the_equations(norm: Any, batch: int, m: int, n: int) -> None:
    """Post: Norm(x + Sublayer(x)); pre: x + Sublayer(Norm(x)); three sublayers in a row."""
    x, memory = torch.randn(batch, m, p), torch.randn(batch, n, p)
    for order in ("post", "pre"):
        block = make(order, cross=True, norm=norm)
        assert block.cross_attention is not None and block.cross_norm is not None
        sublayers = [
            (lambda x: block.self_attention(x, causal=True), block.self_norm),  # noqa: B023  # used in this turn only
            (lambda x: block.cross_attention(x, memory), block.cross_norm),  # noqa: B023
            (block.feed_forward, block.feed_norm),
        ]
        want = x
        for sublayer, normed in sublayers:
            want = normed(want + sublayer(want)) if order == "post" else want + sublayer(normed(want))
        torch.testing.assert_close(block(x, causal=True, memory=memory), want)


@pytest.mark.parametrize("order", ["post", "pre"])
def test_each_sublayer_has_a_norm_of_its_own(order: str) -> None:
    block = make(order, cross=True)
    assert len({id(norm) for norm in (block.self_norm, block.cross_norm, block.feed_norm)}) == 3


def silenced(block: Block) -> Block:
    """The block with sublayers that give zero."""
    for module in (block.self_attention.output, block.feed_forward.down):
        nn.init.zeros_(module.weight)
        nn.init.zeros_(module.bias)
    return block


def test_residuals_carry_the_input_upward() -> None:
    x = torch.randn(2, 3, p)
    assert torch.equal(silenced(make("pre"))(x), x)
    norm = LayerNorm(p)
    torch.testing.assert_close(silenced(make("post"))(x), norm(norm(x)))


def test_dropout_is_on_what_is_added_and_in_training_only() -> None:
    x = torch.randn(2, 3, p)
    block = make("pre", dropout=0.5)
    added = block.train()(x) - x
    assert not torch.equal(block(x) - x, added)
    assert torch.equal(block.eval()(x), block(x))
    # With everything that is added dropped, only the residual is left.
    assert torch.equal(make("pre", dropout=1.0).train()(x), x)


def test_memory_and_cross_attention_belong_together() -> None:
    x = torch.randn(2, 3, p)
    with pytest.raises(ValueError, match="has cross-attention and needs memory="):
        make(cross=True)(x)
    with pytest.raises(ValueError, match="no cross-attention, so memory= would be ignored"):
        make()(x, memory=x)


def test_unknown_order() -> None:
    with pytest.raises(ValueError, match="unknown order 'pro'; did you mean 'pre'"):
        make("pro")


@pytest.mark.parametrize("order", ["post", "pre"])
def test_a_forbidden_source_gives_no_nan(order: str) -> None:
    """A sentence of padding alone: attention gives zeros, and so finite gradients."""
    block = make(order, cross=True)
    x: Tensor = torch.randn(2, 3, p, requires_grad=True)
    keep = torch.tensor([[True, True], [False, False]])[:, None, None]
    y = block(x, memory=torch.randn(2, 2, p), memory_mask=keep)
    y.pow(2).sum().backward()
    assert y.isfinite().all() and x.grad is not None and x.grad.isfinite().all()
