"""D. Attention, D1 to D13: each line of the lectures as an assertion.

B batch   H heads   m queries   n keys   d_k, d_v head widths
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from regard import (
    AdditiveScore,
    BilinearScore,
    ConcatScore,
    ContentAttention,
    DotScore,
    KeyValueAttention,
    MultiHeadAttention,
    attend,
    masks,
)

INF = math.inf
# The worked example of D6.
V = torch.tensor([[2.0, 3, 1], [2, -1, 0], [0, 5, 1]])
K = torch.tensor([[2.0, 1, -1], [0, 3, -1], [1, 1, 3]])
Q = torch.tensor([[2.0, -1, 0], [-2, 1, 4]])


def softmax(scores: list[float]) -> list[float]:
    """By its definition; -inf becomes 0."""
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def close(got: Tensor, want: object, atol: float = 1e-6) -> bool:
    return torch.allclose(got, torch.as_tensor(want, dtype=got.dtype), atol=atol)


def test_D1_general_form() -> None:
    """n vectors to m, Y = A V, row j of A the softmax over k of s_jk; a_jk is how much v_k matters for y_j."""
    q, k, v = torch.randn(2, 4), torch.randn(5, 4), torch.randn(5, 3)
    y, A = attend(q, k, v, score="dot", return_weights=True)
    assert A.shape == (2, 5) and y.shape == (2, 3)
    for j in range(2):
        scores = [float(q[j] @ k[i]) for i in range(5)]
        assert close(A[j], softmax(scores))
    assert (A > 0).all() and close(A.sum(1), torch.ones(2))
    assert close(y, A @ v)
    (jacobian,) = torch.autograd.functional.jacobian(lambda v: attend(q, k, v, score="dot"), (v,))  # (m, d, n, d)
    for j in range(2):
        for i in range(5):
            assert close(jacobian[j, :, i], A[j, i] * torch.eye(3))


def test_D2_content_attention() -> None:
    """s_jk depends on v_k and a parameter theta_j; m is fixed by the parameters."""
    layer = ContentAttention(outputs=2, dim=3, score="dot")
    assert isinstance(layer.theta, nn.Parameter) and layer.theta.shape == (2, 3)
    y, A = layer(V[None], return_weights=True)
    for j in range(2):
        assert close(A[0, j], softmax((V @ layer.theta[j]).tolist()))
    assert close(y[0], A[0] @ V)
    assert [layer(torch.randn(1, n, 3)).shape[1] for n in (1, 4, 9)] == [2, 2, 2]


def test_D3_context_attention() -> None:
    """s_jk depends on v_k, a context c_j that is data, and shared parameters; also with c_j from v_j itself."""
    score = AdditiveScore(query_dim=3, key_dim=3, hidden=4)
    layer = KeyValueAttention(score=score)
    context = torch.randn(1, 2, 3)
    _, A = layer(context, V[None], return_weights=True)
    for j in range(2):
        hidden = [torch.tanh(score.query.weight @ context[0, j] + score.key.weight @ v) for v in V]
        assert close(A[0, j], softmax((torch.stack(hidden) @ score.weight).tolist()))
    _, other = layer(torch.randn(1, 2, 3), V[None], return_weights=True)
    assert not torch.allclose(A, other)  # other data, other weights
    assert layer(torch.randn(1, 7, 3), V[None]).shape == (1, 7, 3)  # as many as there are contexts
    W = torch.randn(3, 3)
    y, A = layer(V[None] @ W, V[None], return_weights=True)  # context-based self-attention: c_j = W v_j
    assert A.shape == (1, 3, 3) and close(y, A @ V)


def test_D4_key_value_attention() -> None:
    """A differentiable database: scores from keys, answers from values; widths of k and v may differ."""
    titles, videos = torch.eye(4), torch.randn(4, 6)
    found = attend(60 * titles[2:3], titles, videos, score="dot")
    assert close(found, videos[2:3], atol=1e-5)  # the text of title 2 finds video 2
    search = torch.randn(1, 4, requires_grad=True)
    attend(search, titles, videos).sum().backward()
    assert search.grad.abs().sum() > 0  # differentiable
    layer = KeyValueAttention(score=DotScore())
    y, A = layer(Q[None], K[None], torch.randn(1, 3, 5), return_weights=True)
    assert y.shape == (1, 2, 5)
    for j in range(2):
        assert close(A[0, j], softmax([float(Q[j] @ k) for k in K]))


def test_D5_scores() -> None:
    """w . tanh(W_q q + W_k k), q W k, q . k, q . k / sqrt(d), w . tanh(W [q; k]): each pair by its formula."""
    q, k = torch.randn(2, 3), torch.randn(4, 3)
    additive = AdditiveScore(query_dim=3, key_dim=3, hidden=5)
    bilinear = BilinearScore(query_dim=3, key_dim=3)
    concat = ConcatScore(query_dim=3, key_dim=3, hidden=5)
    formulas = {
        additive: lambda a, b: additive.weight @ torch.tanh(additive.query.weight @ a + additive.key.weight @ b),
        bilinear: lambda a, b: a @ bilinear.weight @ b,
        concat: lambda a, b: concat.weight @ torch.tanh(concat.stacked.weight @ torch.cat([a, b])),
        DotScore(): lambda a, b: sum(a[i] * b[i] for i in range(3)),
        DotScore(scale=1 / math.sqrt(3)): lambda a, b: sum(a[i] * b[i] for i in range(3)) / math.sqrt(3),
    }
    for score, formula in formulas.items():
        want = torch.stack([torch.stack([formula(a, b) for b in k]) for a in q])
        assert close(score(q, k), want)
        assert close(attend(q, k, k, score=score, return_weights=True)[1], torch.softmax(want, -1))
    for name, scale in (("dot", 1.0), ("scaled", 1 / math.sqrt(3))):
        _, A = attend(q, k, k, score=name, return_weights=True)
        assert close(A, torch.softmax(q @ k.T * scale, -1))


def test_D6_worked_example() -> None:
    """Q K^T, A and A V as printed; it is the unscaled dot product, and the scaled one gives other numbers."""
    assert (Q @ K.T).tolist() == [[3, -3, 1], [-7, -1, 11]]
    y, A = attend(Q, K, V, score="dot", return_weights=True)
    printed = torch.tensor([[0.879, 0.002, 0.119], [0, 0, 1]])
    assert torch.equal((A * 1000).round() / 1000, printed)
    assert close(printed @ V, [[1.762, 3.23, 0.998], [0, 5, 1]], atol=5e-7)  # AV as printed, from the rounded A
    assert close(y[0], [1.7621, 3.2292, 0.9978], atol=5e-5)  # exactly
    assert close(y[1], [0, 5, 1], atol=5e-5)
    scaled, _ = attend(Q, K, V, return_weights=True)
    assert (scaled[0] - torch.tensor([1.762, 3.23, 0.998])).abs().max() > 0.1


def test_D7_self_attention_without_weights() -> None:
    """e_ij = x_i . x_j, softmax over j, weighted sum of the x_j."""
    x = torch.randn(4, 3)
    y = attend(x, x, x, score="dot")
    for i in range(4):
        alpha = softmax([float(x[i] @ x[j]) for j in range(4)])
        assert close(y[i], sum(alpha[j] * x[j] for j in range(4)))


def test_D8_self_attention_with_three_matrices() -> None:
    """Q = X W_Q, K = X W_K, V = X W_V, tokens as rows or as columns: one map."""
    layer = MultiHeadAttention(dim=6, heads=1, bias=False, output=False)
    X = torch.randn(4, 6)
    W_Q, W_K, W_V = (W.T for W in layer.input.weight.chunk(3))
    rows = attend(X @ W_Q, X @ W_K, X @ W_V)
    assert close(layer(X[None])[0], rows)
    columns = X.T  # (p, n): q_i = W_Q^T x_i, and the output is V A^T
    q, k, v = W_Q.T @ columns, W_K.T @ columns, W_V.T @ columns
    assert close(v @ torch.softmax(k.T @ q / math.sqrt(6), dim=0), rows.T)
    one = [
        sum(a * (X[j] @ W_V) for j, a in enumerate(softmax([float(x @ W_Q @ (X[j] @ W_K) / 6**0.5) for j in range(4)])))
        for x in X
    ]
    assert close(torch.stack(one), rows)


def test_D9_scaled_dot_product() -> None:
    """softmax(Q K^T / sqrt(d_k)) V; the scale keeps the scores' spread and the softmax's gradient alive."""
    q, k, v = torch.randn(3, 16), torch.randn(5, 16), torch.randn(5, 7)
    assert close(attend(q, k, v), torch.softmax(q @ k.T / 4, -1) @ v, atol=1e-5)
    layer = MultiHeadAttention(dim=32, heads=2, d_k=9)  # d_k is the width of a key of that head, not of the model
    x = torch.randn(1, 4, 32)
    q, k, _ = layer.input(x, x, x)
    _, A = layer(x, return_weights=True)
    assert q.shape == (1, 2, 4, 9)
    assert close(A[0, 1], torch.softmax(q[0, 1] @ k[0, 1].T / 3, -1))

    spread, slope = {}, {}
    for d_k in (4, 1024):
        q, k = torch.randn(2, 400, d_k).unbind()
        for score, scale in (("dot", 1.0), ("scaled", d_k**-0.5)):
            spread[score, d_k] = float((q @ k.T * scale).std())
            _, A = attend(q[:, None], k.expand(400, 400, d_k)[:, :8], k[:8].expand(400, 8, d_k), score=score,
                          return_weights=True)  # fmt: skip
            slope[score, d_k] = float((A * (1 - A)).mean())  # d a_j / d s_j
    assert abs(spread["dot", 1024] / math.sqrt(1024) - 1) < 0.1  # grows with sqrt(d_k)
    assert abs(spread["scaled", 4] - 1) < 0.1 and abs(spread["scaled", 1024] - 1) < 0.1  # stays
    assert slope["dot", 1024] < slope["scaled", 1024] / 5  # vanishes without the scale
    assert 0.8 < slope["scaled", 1024] / slope["scaled", 4] < 1.25


def test_D10_masking_printed_softmaxes() -> None:
    """Forbidden pairs get -inf before the softmax: (1/2, 1/2, 0) and (1/3, 1/3, 1/3, 0)."""
    for scores, want in (([2.0, 2, 5], [1 / 2, 1 / 2, 0]), ([1.0, 1, 1, 9], [1 / 3, 1 / 3, 1 / 3, 0])):
        n = len(scores)
        may = torch.tensor([True] * (n - 1) + [False])
        q, k = torch.ones(1, 1), torch.tensor(scores)[:, None]
        assert close(attend(q, k, k, score="dot", mask=may, return_weights=True)[1], [want])
        blocked = torch.zeros(n).masked_fill(~may, -INF)
        assert close(attend(q, k, k, score="dot", bias=blocked, return_weights=True)[1], [want])
        assert close(torch.tensor(softmax([*scores[:-1], -INF])), want)


def test_D10_causal_inequality() -> None:
    """Query j sees keys k <= j: the matrix, the weights and the gradients say so."""
    x = torch.randn(4, 3, requires_grad=True)
    y, A = attend(x, x, x, causal=True, return_weights=True)
    for j in range(4):
        for k in range(4):
            assert bool(A[j, k] > 0) == (k <= j) == bool(masks.causal().matrix(4, 4)[j, k])
        (grad,) = torch.autograd.grad(y[j].sum(), x, retain_graph=True)
        assert not grad[j + 1 :].any() and grad[j].any()


def test_D10_mask_before_or_after_the_scale() -> None:
    """The lectures add the mask before the scale: the same for 0 / -inf, not for finite biases, added after it."""
    q, k, v = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 4)

    def before(mask: Tensor) -> Tensor:
        return torch.softmax((q @ k.T + mask) / 2, -1) @ v

    def after(mask: Tensor) -> Tensor:
        return torch.softmax(q @ k.T / 2 + mask, -1) @ v

    forbid = torch.zeros(3, 5)
    forbid[0, 1] = forbid[2, 3] = -INF
    assert close(attend(q, k, v, bias=forbid), before(forbid)) and close(before(forbid), after(forbid))
    assert close(attend(q, k, v, mask=forbid == 0), before(forbid))
    finite = torch.randn(3, 5)
    assert close(attend(q, k, v, bias=finite), after(finite))
    assert not torch.allclose(before(finite), after(finite), atol=1e-2)


def test_D10_a_fully_masked_row_gives_zeros() -> None:
    q, k, v = (torch.randn(3, 4, requires_grad=True) for _ in range(3))
    may = torch.tensor([[True, True, False], [False, False, False], [True, False, True]])
    for backend in ("reference", "sdpa", "auto"):
        y = attend(q, k, v, mask=may, backend=backend)
        assert not y[1].any() and y[0].any() and y[2].any()
        grads = torch.autograd.grad(y.sum(), (q, k, v))
        assert not grads[0][1].any() and all(grad.isfinite().all() for grad in grads)


def test_D11_multi_head() -> None:
    """Concat(head_1 … head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), one stacked matrix."""
    layer = MultiHeadAttention(dim=6, heads=3, d_k=4, d_v=5, bias=False)  # d_k, d_v free
    X = torch.randn(7, 6)
    W_Q, W_K, W_V = layer.input.weight.split([12, 12, 15])
    heads = [
        attend(X @ W_Q[4 * i :][:4].T, X @ W_K[4 * i :][:4].T, X @ W_V[5 * i :][:5].T, backend="reference")
        for i in range(3)
    ]
    W_O = layer.output.weight.T  # (h d_v, d)
    assert close(layer(X[None])[0], torch.cat(heads, -1) @ W_O, atol=1e-5)
    original = MultiHeadAttention(dim=512, heads=8)
    assert (original.d_k, original.d_v) == (64, 64)
    assert (MultiHeadAttention(dim=12, heads=3).d_k, MultiHeadAttention(dim=12, heads=3).d_v) == (4, 4)


def test_D11_cost_is_that_of_one_full_width_head() -> None:
    def cost(**options: int) -> int:
        layer, x = MultiHeadAttention(dim=512, backend="math", **options), torch.randn(1, 64, 512)
        with FlopCounterMode(display=False) as counter:
            layer(x)
        return counter.get_total_flops()

    one = cost(heads=1)
    assert one == 2 * (4 * 64 * 512 * 512 + 2 * 64 * 64 * 512)  # four projections, Q K^T and A V
    assert abs(cost(heads=8) / one - 1) < 0.01
    assert cost(heads=8, d_k=512, d_v=512) > 7 * one  # eight full-width heads are another matter


def test_D11_without_the_output_matrix() -> None:
    """As in L4: the heads are only concatenated."""
    layer, bare = MultiHeadAttention(dim=6, heads=3), MultiHeadAttention(dim=6, heads=3, output=False)
    bare.input.load_state_dict(layer.input.state_dict())
    x = torch.randn(1, 4, 6)
    assert bare.output is None and close(layer(x), layer.output(bare(x)))
    _, A = bare(x, return_weights=True)
    v = bare.input(x, x, x)[2]
    assert close(bare(x)[0, :, 2:4], A[0, 1] @ v[0, 1])


def test_D11_heads_see_different_similarities() -> None:
    """Each head looks at its own subspace: one finds the token that is alike in a, the other the one alike in b."""
    layer = MultiHeadAttention(dim=4, heads=2, bias=False, output=False)
    with torch.no_grad():  # head 0 compares features 0 and 1, head 1 features 2 and 3
        layer.input.weight.copy_(torch.cat([20 * torch.eye(4), torch.eye(4), torch.eye(4)]))
    a, b = torch.eye(2)
    tokens = torch.stack([torch.cat([a, a]), torch.cat([a, b]), torch.cat([b, a])])[None]
    _, A = layer(tokens, return_weights=True)
    assert A[0, 0, 0, 1] > 0.49 > 0.01 > A[0, 0, 0, 2]
    assert A[0, 1, 0, 2] > 0.49 > 0.01 > A[0, 1, 0, 1]


def test_D12_slice_form_is_block_diagonal_projection() -> None:
    """Head h projects only its own slice of width p/H, scaled by its d_k: D11 with block-diagonal matrices."""
    p, H, d_k, d_v = 12, 3, 5, 2
    sliced = MultiHeadAttention(dim=p, heads=H, d_k=d_k, d_v=d_v, form="slice")
    for parameter in sliced.parameters():
        nn.init.normal_(parameter)
    full = MultiHeadAttention(dim=p, heads=H, d_k=d_k, d_v=d_v)
    blocks = [torch.block_diag(*getattr(sliced.input, f"{name}_weight").mT) for name in "qkv"]
    biases = [getattr(sliced.input, f"{name}_bias") for name in "qkv"]
    with torch.no_grad():
        full.input.weight.copy_(torch.cat(blocks))
        full.input.bias.copy_(torch.cat(biases))
    full.output.load_state_dict(sliced.output.state_dict())
    x, source = torch.randn(2, 5, p), torch.randn(2, 7, p)
    for arguments in ((x,), (x, source), (x, source, torch.randn(2, 7, p))):
        (y, A), (want, want_A) = (layer(*arguments, return_weights=True) for layer in (sliced, full))
        assert close(y, want, atol=1e-4) and close(A, want_A, atol=1e-5)
    h, own = 1, slice(4, 8)  # by hand: the second head of the first sentence
    q = x[0, :, own] @ sliced.input.q_weight[h] + sliced.input.q_bias[5:10]
    k = x[0, :, own] @ sliced.input.k_weight[h] + sliced.input.k_bias[5:10]
    _, A = sliced(x, return_weights=True)
    assert close(A[0, h], torch.softmax(q @ k.T / math.sqrt(d_k), -1), atol=1e-5)
    (grad,) = torch.autograd.functional.jacobian(lambda x: sliced.input(x, x, x)[0][0, 0], (x,))
    assert not grad[..., 4:].any()  # head 0 knows nothing of the other slices


def test_D13_cross_attention() -> None:
    """Queries from the decoder, keys and values from the encoder; A is m x n."""
    layer = MultiHeadAttention(dim=8, heads=2, bias=False)
    decoder, encoder = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    y, A = layer(decoder, encoder, return_weights=True)
    assert A.shape == (1, 2, 3, 5) and y.shape == (1, 3, 8)
    W_Q, W_K, W_V = layer.input.weight.chunk(3)
    q, k, v = decoder[0] @ W_Q.T, encoder[0] @ W_K.T, encoder[0] @ W_V.T
    heads = [attend(q[:, own], k[:, own], v[:, own]) for own in (slice(0, 4), slice(4, 8))]
    assert close(y[0], layer.output(torch.cat(heads, -1)))
