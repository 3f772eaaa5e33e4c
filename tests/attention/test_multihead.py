"""MultiHeadAttention against the formula of D11 written head by head, and its options one by one.

B batch   H heads   G key-value heads   m queries   n keys   D width   d_k, d_v head widths
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from regard import MixedAttention, MultiHeadAttention, RandomFeatureAttention, masks


def head_by_head(layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, may: Tensor) -> Tensor:
    """Concat(head_1 … head_H) W^O, with each head's own rows of the stacked matrices; `may` (m, n)."""
    sizes = layer.input.rows
    W_Q, W_K, W_V = layer.input.weight.split(sizes)
    b_Q, b_K, b_V = (torch.zeros(sum(sizes)) if layer.input.bias is None else layer.input.bias).split(sizes)
    heads = []
    for h in range(layer.heads):
        g = h * layer.kv_heads // layer.heads  # the key-value head that this one shares
        own, own_k, own_v = (slice(i * d, (i + 1) * d) for i, d in ((h, layer.d_k), (g, layer.d_k), (g, layer.d_v)))
        q, k, v = query @ W_Q[own].T + b_Q[own], key @ W_K[own_k].T + b_K[own_k], value @ W_V[own_v].T + b_V[own_v]
        scores = (q @ k.mT / math.sqrt(layer.d_k)).masked_fill(~may, -torch.inf)
        heads.append(torch.softmax(scores, -1) @ v)
    y = torch.cat(heads, -1)
    return y if layer.output is None else layer.output(y)


@settings(max_examples=30)
@given(
    heads=st.sampled_from([(1, 1), (2, 2), (4, 2), (4, 1), (6, 3)]),
    d_k=st.integers(1, 5),
    d_v=st.integers(1, 5),
    m=st.integers(1, 5),
    n=st.integers(1, 5),
    bias=st.booleans(),
    output=st.booleans(),
    causal=st.booleans(),
)
def test_the_formula(
    heads: tuple[int, int], d_k: int, d_v: int, m: int, n: int, bias: bool, output: bool, causal: bool
) -> None:
    n = max(m, n)  # every causal query then has a key
    H, G = heads
    layer = MultiHeadAttention(dim=7, heads=H, kv_heads=G, d_k=d_k, d_v=d_v, bias=bias, output=output)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    x, key, value = torch.randn(2, m, 7), torch.randn(2, n, 7), torch.randn(2, n, 7)
    may = torch.ones(m, n).bool().tril(n - m) if causal else torch.ones(m, n).bool()
    for other in ((key, value), (key,)):  # with a value of its own, and with the key as the value
        want = head_by_head(layer, x, key, other[-1], may)
        y = layer(x, *other, causal=causal)
        assert y.shape == (2, m, 7 if output else H * d_v)
        assert torch.allclose(y, want, atol=1e-4)
        with_weights, weights = layer(x, *other, causal=causal, return_weights=True)
        assert torch.allclose(with_weights, want, atol=1e-4)
        assert weights.shape == (2, H, m, n)
    square = may if m == n else (torch.ones(m, m).bool().tril() if causal else torch.ones(m, m).bool())
    assert torch.allclose(layer(x, causal=causal), head_by_head(layer, x, x, x, square), atol=1e-4)
    assert torch.allclose(layer(x, x, x, causal=causal), layer(x, causal=causal), atol=1e-5)


def test_sizes_by_default_are_those_of_the_paper() -> None:
    layer = MultiHeadAttention(dim=512, heads=8)
    assert (layer.d_k, layer.d_v, layer.kv_heads) == (64, 64, 8)
    assert sum(p.numel() for p in layer.parameters()) == 4 * (512 * 512 + 512)
    assert sum(p.numel() for p in MultiHeadAttention(dim=512, heads=8, bias=False).parameters()) == 4 * 512 * 512
    # Multi-query: one head of keys and values.
    one = MultiHeadAttention(dim=512, heads=8, kv_heads=1, bias=False)
    assert sum(p.numel() for p in one.parameters()) == 2 * 512 * 512 + 2 * 512 * 64


def test_each_matrix_starts_by_its_own_size() -> None:
    """Xavier's bound for W_Q, W_K and W_V each, not for the stacked matrix; biases start at zero."""
    layer = MultiHeadAttention(dim=64, heads=4, kv_heads=1)
    for part in (*layer.input.weight.split(layer.input.rows), layer.output.weight):
        bound = math.sqrt(6 / sum(part.shape))
        assert 0.95 * bound < part.abs().max() <= bound
    assert not layer.input.bias.any() and not layer.output.bias.any()


def test_keys_and_values_of_other_widths() -> None:
    layer = MultiHeadAttention(dim=8, heads=2, key_dim=5, value_dim=3)
    x, key, value = torch.randn(2, 4, 8), torch.randn(2, 6, 5), torch.randn(2, 6, 3)
    q, k, v = layer.input.query(x), layer.input.key(key), layer.input.value(value)
    heads = [torch.softmax(q[..., own] @ k[..., own].mT / 2, -1) @ v[..., own] for own in (slice(0, 4), slice(4, 8))]
    assert torch.allclose(layer(x, key, value), layer.output(torch.cat(heads, -1)), atol=1e-5)
    shared = MultiHeadAttention(dim=8, heads=2, key_dim=5)  # the encoder's width, for keys and values
    assert shared(x, key).shape == (2, 4, 8)


@pytest.mark.parametrize("kv_heads", [2, 1])
def test_grouped_heads_are_repeated_heads(kv_heads: int) -> None:
    """A layer with all heads whose key and value rows repeat the group's is the same map."""
    grouped = MultiHeadAttention(dim=12, heads=4, kv_heads=kv_heads)
    full = MultiHeadAttention(dim=12, heads=4)
    full.output.load_state_dict(grouped.output.state_dict())
    with torch.no_grad():
        q, *kv = grouped.input.weight.split(grouped.input.rows)
        repeated = [w.view(kv_heads, 3, 12).repeat_interleave(4 // kv_heads, 0).reshape(12, 12) for w in kv]
        full.input.weight.copy_(torch.cat([q, *repeated]))
    x = torch.randn(2, 5, 12)
    assert torch.allclose(grouped(x, causal=True), full(x, causal=True), atol=1e-6)


def test_qk_norm_makes_every_query_and_key_equally_long() -> None:
    """q / rms(q) * g per head (RMSNorm), keys likewise, before the score; learned gains."""
    layer = MultiHeadAttention(dim=8, heads=2, qk_norm=True)
    torch.nn.init.normal_(layer.q_norm.weight)
    torch.nn.init.normal_(layer.k_norm.weight)
    x = torch.randn(2, 5, 8) * 100

    def normed(x: Tensor, gain: Tensor) -> Tensor:
        return x / x.pow(2).mean(-1, keepdim=True).sqrt() * gain

    q, k, _ = layer.input(x, x, x)
    scores = normed(q, layer.q_norm.weight) @ normed(k, layer.k_norm.weight).mT / 2
    _, weights = layer(x, return_weights=True)
    assert torch.allclose(weights, torch.softmax(scores, -1), atol=1e-5)
    assert not hasattr(MultiHeadAttention(dim=8, heads=2).q_norm, "weight")


def test_dropout_only_in_training() -> None:
    layer = MultiHeadAttention(dim=8, heads=2, dropout=0.5)
    x = torch.randn(2, 30, 8)
    assert not torch.allclose(layer(x), layer(x))
    y, weights = layer(x, return_weights=True)
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    want, want_weights = layer(x, return_weights=True)
    assert torch.equal(weights, want_weights) and not torch.allclose(y, want)
    # Over many draws the mean is the output without dropout.
    layer.train()
    mean = torch.stack([layer(x) for _ in range(400)]).mean(0)
    assert (mean - want).abs().max() < 0.15


@pytest.mark.parametrize("form", ["projected", "slice"])
def test_permuted_tokens_give_permuted_outputs(form: str) -> None:
    layer = MultiHeadAttention(dim=8, heads=2, form=form)
    x, order = torch.randn(2, 6, 8), torch.randperm(6)
    assert torch.allclose(layer(x[:, order]), layer(x)[:, order], atol=1e-6)


@pytest.mark.parametrize("position", [None, "rotary", "relative", "t5", "alibi"])
@pytest.mark.parametrize("form", ["projected", "slice"])
def test_no_output_depends_on_a_later_input(form: str, position: str | None) -> None:
    layer = MultiHeadAttention(dim=16, heads=2, form=form, position=position)
    x = torch.randn(1, 5, 16, requires_grad=True)
    y = layer(x, causal=True)
    for i in range(5):
        (grad,) = torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)
        assert torch.equal(grad[0].abs().sum(-1) > 0, torch.arange(5) <= i)


@pytest.mark.parametrize("position", [None, "rotary", "relative", "t5", "alibi"])
def test_a_padded_batch_is_its_sentences_one_by_one(position: str | None) -> None:
    layer = MultiHeadAttention(dim=16, heads=2, position=position)
    x, lengths = torch.randn(3, 6, 16), [6, 2, 4]
    y = layer(x, mask=masks.padding(lengths))
    for b, length in enumerate(lengths):
        assert torch.allclose(y[b, :length], layer(x[b : b + 1, :length])[0], atol=1e-5)


def test_bias_of_the_caller_adds_to_that_of_the_position() -> None:
    layer = MultiHeadAttention(dim=8, heads=2, position="alibi")
    x, bias = torch.randn(2, 5, 8), torch.randn(2, 2, 5, 5)
    _, without = layer(x, return_weights=True)
    _, weights = layer(x, bias=bias, return_weights=True)
    assert torch.allclose(weights, torch.softmax(without.log() + bias, -1), atol=1e-5)


@pytest.mark.parametrize("backend", ["reference", "sdpa", "flash", "math"])
def test_backend_is_passed_on(backend: str) -> None:
    layer, same = (MultiHeadAttention(dim=8, heads=2, backend=name) for name in (backend, "auto"))
    same.load_state_dict(layer.state_dict())
    x = torch.randn(2, 5, 8)
    assert torch.allclose(layer(x, causal=True), same(x, causal=True), atol=1e-6)
    assert layer(x, return_weights=True)[1].shape == (2, 2, 5, 5)
    with pytest.raises(ValueError, match="'flex' needs a CUDA tensor"):
        MultiHeadAttention(dim=8, heads=2, backend="flex")(x)


def test_a_sentence_without_keys_gives_the_bias_of_the_output() -> None:
    layer = MultiHeadAttention(dim=8, heads=2)
    torch.nn.init.normal_(layer.output.bias)
    x = torch.randn(2, 5, 8, requires_grad=True)
    y = layer(x, mask=masks.padding([0, 5]))
    assert torch.equal(y[0], layer.output.bias.expand(5, 8))
    y.sum().backward()
    assert not x.grad[0].any() and x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())
    assert layer(torch.randn(0, 5, 8)).shape == (0, 5, 8)
    assert layer(torch.randn(2, 0, 8)).shape == (2, 0, 8)


@pytest.mark.parametrize(
    "layer",
    [
        MultiHeadAttention(dim=8, heads=2),
        RandomFeatureAttention(dim=8, heads=2, features=4),
        MixedAttention(
            exact=MultiHeadAttention(dim=8, heads=1, d_k=4, d_v=4, output=False),
            random=RandomFeatureAttention(dim=8, heads=1, d_k=4, d_v=4, features=4, output=False),
            exact_heads=(0,),
        ),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_remember_is_a_deprecated_name_of_project_source(layer: nn.Module) -> None:
    x, source = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    with pytest.warns(DeprecationWarning, match="project_source"):
        projected = layer.remember(source)
    assert torch.equal(layer(x, cache=projected), layer(x, cache=layer.project_source(source)))
