"""Attention by features: every form against the quadratic oracle, and the oracle against numbers made elsewhere.

B batch   H heads   G heads of keys   L length   d, e widths   F features
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import attend, masks
from regard.attention.linear import dispatch
from regard.attention.linear.dispatch import attend_features, query_state, sum_keys
from regard.attention.linear.feature_maps import MAPS
from regard.attention.linear.features import RandomFeatures

from ...repeats import some

RANDOM = tuple(name for name in MAPS if name != "elu")


def features_for(name: str, d: int = 8, F: int = 12, G: int = 1, **more: Any) -> RandomFeatures:
    return RandomFeatures(dim=d, features=None if name == "elu" else F, heads=G, map=name, **more)


def inputs(L: int, *, n: int | None = None, H: int = 4, G: int = 2, d: int = 8, e: int = 5, dtype=torch.float32):
    n = L if n is None else n
    return (
        torch.randn(2, H, L, d, dtype=dtype),
        torch.randn(2, G, n, d, dtype=dtype),
        torch.randn(2, G, n, e, dtype=dtype),
    )


# Made by loops over plain numbers, outside this project, from the formulas of the papers: d = 2, two rows of W, two
# queries, three keys; first every query sees every key, then causal (queries at places 2 and 3) with gates.
GOLDEN_W = [[0.5, -1.0], [1.5, 0.25]]
GOLDEN_Q = [[1.0, 0.5], [-0.5, 1.0]]
GOLDEN_K = [[0.25, 1.0], [1.0, -1.0], [2.0, 0.5]]
GOLDEN_V = [[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]]
GOLDEN_GATES = [0.5, 0.8, 0.25]
GOLDEN = {  # the first number of each value; the second is 1 minus it
    "trig": ([1.290541239435, 1.965406054970], [0.616948037299, 2.037342628196]),
    "plain": ([0.990263250748, -4.115402991926], [0.691698177166, 2.175126440667]),
    "positive": ([1.209461985560, 1.133260903031], [0.573269969672, 1.863749694734]),
    "hyperbolic": ([1.193382943804, 1.037342403061], [0.632708450691, 1.701128298802]),
    "optimal": ([1.517283593597, 1.382411580812], [0.492884302811, 1.930149394848]),
    "elu": ([1.202066297648, 1.249056779786], [0.707312751363, 1.839850490064]),
}


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("name", MAPS)
def test_golden_numbers(name: str, backend: Any) -> None:
    features = features_for(name, d=2, F=2 if name in ("positive", "optimal") else 4, normalize=False).double()
    if name != "elu":
        features.W.copy_(torch.tensor(GOLDEN_W))
    q, k, v, g = (torch.tensor(x, dtype=torch.float64) for x in (GOLDEN_Q, GOLDEN_K, GOLDEN_V, GOLDEN_GATES))
    whole, gated = (torch.tensor([[x, 1 - x] for x in column], dtype=torch.float64) for column in GOLDEN[name])
    assert torch.allclose(attend_features(q, k, v, features=features, backend=backend), whole, atol=1e-11, rtol=0)
    y = attend_features(q, k, v, features=features, backend=backend, causal=True, gate=g.logit())
    assert torch.allclose(y, gated, atol=1e-11, rtol=0)


@pytest.mark.parametrize(
    "options", some(["plain", "causal", "gate", "padding", "causal, padding, gate", "m < n", "m > n"], 3)
)
@pytest.mark.parametrize("name", MAPS)
def test_chunks_equal_the_oracle(name: str, options: str) -> None:
    """To 1e-5 in float32, for lengths that are a multiple of the chunk and others, and also in one chunk."""
    features = features_for(name, G=2, F=64, learned_scale=name != "elu")
    for L in (1, 16, 37):
        n = L + 5 if options == "m < n" else max(L - 5, 1) if options == "m > n" else L
        q, k, v = inputs(L, n=n)
        given: dict[str, Any] = {"causal": options != "plain" and options != "padding"}
        if "padding" in options:
            given["mask"] = masks.padding([n, max(n - 3, 1)])
        if "gate" in options or options.startswith("m"):
            given["gate"] = torch.randn(2, 2, n) + 2
        exact = (x.double() for x in (q, k, v))
        want = attend_features(*exact, features=features, backend="reference", **given).float()
        for chunk in (4, 16, 64):
            y = attend_features(q, k, v, features=features, chunk=chunk, **given)
            assert torch.allclose(y, want, atol=1e-5, rtol=1e-5)


def test_segments_equal_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a CPU does with long texts, here from 16 tokens on; grouped heads, padding, gates, and gradients."""
    monkeypatch.setattr(dispatch, "SEGMENT_TOKENS", 16)
    monkeypatch.setattr(dispatch, "MIN_SEGMENT_TOKENS", 16)
    features = features_for("positive", G=2)
    leaves = [x.requires_grad_() for x in (*inputs(50), torch.randn(2, 2, 50))]
    y, other = (
        attend_features(
            *leaves[:3], features=features, mask=masks.causal() & masks.padding([50, 30]), gate=leaves[3], chunk=8,
            backend=backend,
        )
        for backend in ("chunked", "reference")
    )  # fmt: skip
    assert torch.allclose(y, other, atol=1e-5, rtol=1e-5)
    for one, two in zip(*(torch.autograd.grad(x.square().sum(), leaves) for x in (y, other)), strict=True):
        assert torch.allclose(one, two, atol=1e-4, rtol=1e-4)


def test_chunks_equal_a_loop_over_tokens() -> None:
    """S_t = g_t S_{t-1} + (1 - g_t) phi(k_t) v_t^T, z_t likewise; Peng et al. 2021, eq. 7; written out here."""
    features = features_for("positive").double()
    q, k, v = (torch.randn(1, 1, 29, 8, dtype=torch.float64) for _ in range(3))
    gate = torch.randn(1, 1, 29, dtype=torch.float64)
    W, g = features.W[0], gate.sigmoid()[0, 0]

    def phi(x: Tensor) -> Tensor:
        x = x / x.norm()
        return torch.exp(W @ x - x @ x / 2) / math.sqrt(len(W))

    S, z, rows = torch.zeros(12, 8, dtype=torch.float64), torch.zeros(12, dtype=torch.float64), []
    for t in range(29):
        f = phi(k[0, 0, t])
        S, z = g[t] * S + (1 - g[t]) * torch.outer(f, v[0, 0, t]), g[t] * z + (1 - g[t]) * f
        rows.append(phi(q[0, 0, t]) @ S / (phi(q[0, 0, t]) @ z))
    y = attend_features(q, k, v, features=features, causal=True, gate=gate, chunk=8)
    assert torch.allclose(y[0, 0], torch.stack(rows), atol=1e-12)


@pytest.mark.parametrize("name", ["trig", "positive", "optimal", "hyperbolic"])
@pytest.mark.parametrize("causal", [False, True])
def test_many_features_are_exact_attention(name: str, causal: bool) -> None:
    """Without normalisation the limit is softmax attention of the queries and keys as they are."""
    q, k, v = (torch.randn(1, 2, 10, 4, dtype=torch.float64) * 0.7 for _ in range(3))
    features = features_for(name, d=4, F=20000, normalize=False)
    y, want = attend_features(q, k, v, features=features, causal=causal), attend(q, k, v, causal=causal)
    assert (y - want).abs().max() < 0.03
    normal = features_for(name, d=4, F=20000)
    unit = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    y, want = attend_features(q, k, v, features=normal, causal=causal), attend(*unit, v, causal=causal, scale=1.0)
    assert (y - want).abs().max() < 0.03


def test_the_lectures_formula_is_biased_by_the_lengths_of_keys() -> None:
    """F3: as printed it is softmax(x.y - |y|²/2); with the key's factor it is softmax(x.y)."""
    q, k, v = (torch.nn.functional.normalize(torch.randn(1, 1, 10, 4, dtype=torch.float64), dim=-1) for _ in range(3))
    k = k * torch.linspace(0.2, 2.2, 10, dtype=torch.float64)[:, None]
    given = {"d": 4, "F": 40000, "normalize": False, "draw": "independent"}
    plain = attend_features(q, k, v, features=features_for("plain", **given))
    right = attend_features(q, k, v, features=features_for("trig", **given))
    exact = attend(q, k, v)
    lowered = attend(q, k, v, bias=-(k.square().sum(-1) / 4).unsqueeze(-2))  # |y|² = |k|²/sqrt(4), half of it
    assert (plain - lowered).abs().max() < 0.01
    assert (right - exact).abs().max() < 0.01
    assert (plain - exact).abs().max() > 0.1


@pytest.mark.parametrize("name", MAPS)
def test_the_future_changes_nothing(name: str) -> None:
    """Bit for bit, also by a key and a value that are enormous, inside a chunk and across chunks."""
    features = features_for(name, normalize=None if name == "elu" else False, G=2)
    q, k, v = inputs(40)
    gate = torch.randn(2, 2, 40)
    before = attend_features(q, k, v, features=features, causal=True, gate=gate, chunk=16)
    for t in (1, 15, 16, 39):
        k2, v2, gate2 = k.clone(), v.clone(), gate.clone()
        k2[:, :, t] = 30.0
        v2[:, :, t] = 1e6
        gate2[:, :, t] = -20.0
        after = attend_features(q, k2, v2, features=features, causal=True, gate=gate2, chunk=16)
        assert torch.equal(before[:, :, :t], after[:, :, :t])
        assert not torch.equal(before[:, :, t:], after[:, :, t:])


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("causal", [False, True])
def test_padding_changes_nothing(name: str, causal: bool) -> None:
    """At the left, at the right and inside: the real tokens get what they get without it."""
    features = features_for(name, G=2)
    q, k, v = inputs(20)
    gate = torch.randn(2, 2, 20) if causal else None
    want = attend_features(q, k, v, features=features, causal=causal, gate=gate, chunk=8)
    for places in (range(6, 26), range(20), [*range(7), *range(12, 25)]):
        real = torch.tensor(list(places))
        keep = torch.zeros(2, 26, dtype=torch.bool)
        keep[:, real] = True
        wide = [torch.full((*x.shape[:2], 26, x.shape[3]), 9.0) for x in (q, k, v)]
        for x, y in zip(wide, (q, k, v), strict=True):
            x[:, :, real] = y
        gates = None if gate is None else torch.full((2, 2, 26), -9.0).index_copy(2, real, gate)
        found = attend_features(*wide, features=features, mask=masks.padding(keep), causal=causal, gate=gates, chunk=8)
        assert torch.allclose(found[:, :, real], want, atol=2e-5, rtol=1e-4)


def test_a_query_with_nothing_to_see_gets_zeros() -> None:
    features = features_for("trig", G=2)
    q, k, v = (x.requires_grad_() for x in inputs(6))
    mask = masks.padding(torch.tensor([[False] * 6, [False, False, True, True, True, True]]))
    for causal in (False, True):
        y = attend_features(q, k, v, features=features, mask=mask, causal=causal)
        assert not y[0].any() and (not causal or not y[1, :, :2].any()) and y[1, :, 2:].all()
        for gradient in torch.autograd.grad(y.square().sum(), (q, k, v)):
            assert not gradient[0].any() and gradient.isfinite().all()
    for backend in ("chunked", "reference"):
        for causal in (False, True):
            empty = attend_features(q, k[:, :, :0], v[:, :, :0], features=features, causal=causal, backend=backend)
            assert empty.shape == (2, 4, 6, 5) and not empty.any()


def test_cross_attention_is_summed_up_once() -> None:
    features = features_for("positive", G=2)
    q, k, v = inputs(7, n=11)
    mask = masks.padding([11, 4])
    want = attend_features(q, k, v, features=features, mask=mask)
    memory = sum_keys(k, v, features=features, mask=mask)
    assert torch.allclose(query_state(q, memory, features=features), want, atol=1e-6)
    for t in range(7):
        y = query_state(q[:, :, t : t + 1], memory, features=features)
        assert torch.allclose(y[:, :, 0], want[:, :, t], atol=1e-6)


def test_grouped_heads_are_repeated_heads() -> None:
    features = features_for("positive", G=2)
    q, k, v = inputs(9)
    repeated = features_for("positive", G=4)
    repeated.W.copy_(features.W.repeat_interleave(2, dim=0))
    y = attend_features(q, k, v, features=features, causal=True)
    k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
    assert torch.allclose(y, attend_features(q, k, v, features=repeated, causal=True), atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_ranks(causal: bool) -> None:
    features = features_for("positive")
    q, k, v = (torch.randn(2, 5, 8) for _ in range(3))
    gate = torch.randn(2, 5) if causal else None
    want = attend_features(
        *(x[:, None] for x in (q, k, v)), features=features, causal=causal, gate=None if gate is None else gate[:, None]
    )[:, 0]
    assert torch.equal(attend_features(q, k, v, features=features, causal=causal, gate=gate), want)
    one = attend_features(q[0], k[0], v[0], features=features, causal=causal, gate=None if gate is None else gate[0])
    assert torch.allclose(one, want[0], atol=1e-6)
    keep = torch.tensor([[True, True, False, True, True]] * 2)
    by_mask = attend_features(q, k, v, features=features, mask=masks.padding(keep))
    assert torch.equal(attend_features(q, k, v, features=features, mask=keep[:, None]), by_mask)


@pytest.mark.parametrize("name", some(MAPS, 2))
def test_gradients(name: str) -> None:
    """All of them in float64: queries, keys, values, gates, and the state that comes in and goes out."""
    features = features_for(name, d=3, F=4, G=1, learned_scale=name != "elu").double()
    q, k, v, gate, k0, v0 = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True)
        for shape in ((1, 2, 5, 3), (1, 1, 5, 3), (1, 1, 5, 2), (1, 1, 5), (1, 1, 2, 3), (1, 1, 2, 2))
    )
    scale = () if features.sigma is None else (features.sigma,)

    def run(q: Tensor, k: Tensor, v: Tensor, gate: Tensor, k0: Tensor, v0: Tensor, *scale: Tensor) -> Any:
        state = sum_keys(k0, v0, features=features)
        y, state = attend_features(
            q, k, v, features=features, causal=True, gate=gate, state=state, chunk=2, return_state=True
        )
        # Times its constant factor: S and z apart from it depend on which row's exponent happens to be the greatest.
        return y, state.S * state.log_scale.exp()[..., None, None], state.z * state.log_scale.exp()[..., None]

    # Number by number for one map; for the others along random directions, which is much faster.
    assert torch.autograd.gradcheck(run, (q, k, v, gate, k0, v0, *scale), fast_mode=name != "positive")
    keep = torch.tensor([[[[True, True, False, True, True]]]])
    assert torch.autograd.gradcheck(lambda q, k, v: attend_features(q, k, v, features=features, mask=keep), (q, k, v))


def test_gradients_equal_those_of_the_oracle_in_float32() -> None:
    features = features_for("positive", G=2)
    leaves = [x.requires_grad_() for x in (*inputs(50), torch.randn(2, 2, 50))]
    found, want = (
        torch.autograd.grad(
            attend_features(*leaves[:3], features=features, causal=True, gate=leaves[3], backend=backend)
            .square()
            .sum(),
            leaves,
        )
        for backend in ("chunked", "reference")
    )
    for one, other in zip(found, want, strict=True):
        assert torch.allclose(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    """Inputs and output are halves; features and sums are not, so only the rounding of the ends is left."""
    features = features_for("positive", G=2)
    q, k, v = (x.to(dtype) for x in inputs(100))
    y, state = attend_features(q, k, v, features=features, causal=True, return_state=True)
    want = attend_features(q.float(), k.float(), v.float(), features=features, causal=True)
    assert y.dtype == dtype and state.S.dtype == state.z.dtype == state.log_scale.dtype == torch.float32
    assert torch.equal(y, want.to(dtype))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(attend_features(q, k, v, features=features, causal=True), y)


@pytest.mark.parametrize("name", RANDOM)
def test_long_vectors_do_not_overflow(name: str) -> None:
    """Exponents of several thousands: what is estimated is noise, but it is finite, and so are the gradients."""
    features = features_for(name, G=2, normalize=False)
    q, k, v = ((x * 30).requires_grad_() for x in inputs(40))
    y = attend_features(q, k, v, features=features, causal=True, chunk=16)
    assert y.isfinite().all()
    assert attend_features(q, k, v, features=features, causal=True, backend="reference").isfinite().all()
    for gradient in torch.autograd.grad(y.sum(), (q, k, v)):
        assert gradient.isfinite().all()


def test_weights() -> None:
    features = features_for("positive", G=2)
    q, k, v = inputs(6)
    gate = torch.randn(2, 2, 6)
    y, weights = attend_features(q, k, v, features=features, causal=True, gate=gate, return_weights=True)
    assert weights.shape == (2, 4, 6, 6) and (weights >= 0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 6)) and torch.equal(weights, weights.tril())
    assert torch.allclose(weights @ v.repeat_interleave(2, 1), y, atol=1e-6)
    assert torch.allclose(y, attend_features(q, k, v, features=features, causal=True, gate=gate), atol=1e-5)
