"""F2, F3, F4: random features as the lecture prints them, what the printed formula lacks, and Fourier integrals."""

from __future__ import annotations

import math

import pytest
import torch

from regard import FourierScore, attend
from regard.attention.linear.dispatch import attend_features, sum_keys
from regard.attention.linear.feature_maps import Plain
from regard.attention.linear.features import RandomFeatures


def printed_phi(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """sqrt(1/D) [sin(w_1 x) … sin(w_D x), cos(w_1 x) … cos(w_D x)], one vector after the other."""
    D = len(w)
    rows = [[math.sin(float(one @ v)) for one in w] + [math.cos(float(one @ v)) for one in w] for v in x]
    return math.sqrt(1 / D) * torch.tensor(rows, dtype=torch.float64)


def given_features(d: int, W: torch.Tensor, name: str) -> RandomFeatures:
    features = RandomFeatures(dim=d, features=2 * len(W), map=name, normalize=False).double()
    features.W.copy_(W)
    return features


def test_F2_random_fourier_features() -> None:
    """|phi(x)| = 1, and phi(x).phi(y) estimates exp(-sigma² |x-y|² / 2) for w from N(0, sigma² I)."""
    draw = torch.Generator().manual_seed(2)
    sigma, D = 0.7, 20_000
    x, y = torch.randn(2, 3, 5, dtype=torch.float64, generator=draw)
    w = sigma * torch.randn(D, 5, dtype=torch.float64, generator=draw)
    phi_x, log_scale = Plain()(x, w)
    assert torch.allclose(phi_x, printed_phi(x, w), atol=1e-12) and not log_scale.any()
    assert torch.allclose(phi_x.norm(dim=-1), torch.ones(3, dtype=torch.float64), atol=1e-12)
    gaussian = torch.exp(-(sigma**2) * (x - y).square().sum(-1) / 2)
    found = (phi_x * Plain()(y, w)[0]).sum(-1)
    # The variance of the mean of D cosines: (1 - e^{-z²})² / 2D with z = sigma |x-y|.
    error = (1 - gaussian**2) / math.sqrt(2 * D)
    assert ((found - gaussian).abs() < 4 * error).all() and (error < 0.005).all()


def test_F3_attention_by_features_in_linear_order() -> None:
    """h = D^-1 phi(Q) (phi(K)^T V) with D from the same features: keys and values are summed up before any query."""
    d, W = 4, torch.randn(9, 4, dtype=torch.float64)
    Q, K, V = (torch.randn(n, d, dtype=torch.float64) for n in (3, 8, 8))
    phi_q, phi_k = (printed_phi(x / d**0.25, W) for x in (Q, K))
    D = phi_q @ phi_k.sum(0)
    h = (phi_q @ (phi_k.T @ V)) / D[:, None]
    features = given_features(d, W, "plain")
    assert torch.allclose(attend_features(Q, K, V, features=features), h, atol=1e-9)
    sizes = {n: sum_keys(torch.randn(n, d), torch.randn(n, d), features=features).S.shape for n in (8, 800)}
    assert sizes[8] == sizes[800]


def test_F3_the_factor_that_the_printed_formula_lacks() -> None:
    """exp(q.k/sqrt d) = e^{|q|²/2 sqrt d} e^{|k|²/2 sqrt d} E[phi.phi]: q's factor cancels in D, k's must be there."""
    d, draw = 4, torch.Generator().manual_seed(3)
    Q, K, V = torch.randn(3, 6, d, dtype=torch.float64, generator=draw)
    K = K * torch.linspace(0.3, 1.3, 6)[:, None]
    x, y = Q / d**0.25, K / d**0.25
    gaussian = torch.exp(-(x[:, None] - y).square().sum(-1) / 2)
    of_q, of_k = (torch.exp(v.square().sum(-1) / (2 * math.sqrt(d))) for v in (Q, K))
    kernel = torch.exp(Q @ K.T / math.sqrt(d))
    assert torch.allclose(kernel, of_q[:, None] * of_k * gaussian, rtol=1e-12)

    exact, limit = ((one / one.sum(-1, keepdim=True)) @ V for one in (kernel, gaussian))
    assert torch.allclose(attend(Q, K, V), exact, atol=1e-12)
    W = torch.randn(100_000, d, dtype=torch.float64, generator=draw)
    plain, right = (attend_features(Q, K, V, features=given_features(d, W, name)) for name in ("plain", "trig"))
    assert (plain - limit).abs().max() < 0.03 < 0.1 < (limit - exact).abs().max()
    assert (right - exact).abs().max() < 0.03


def test_F3_normalising_instead_is_another_attention() -> None:
    """With all keys of one length the printed formula is right, for the attention of those keys."""
    d, draw = 4, torch.Generator().manual_seed(4)
    Q, K, V = torch.randn(3, 6, d, dtype=torch.float64, generator=draw)
    features = RandomFeatures(dim=d, features=200_000, map="plain", draw="independent").double()
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (Q, K))
    found = attend_features(Q, K, V, features=features)
    assert (found - attend(q, k, V, scale=1.0)).abs().max() < 0.02
    assert (found - attend(Q, K, V)).abs().max() > 0.1


def test_F3_a_denominator_of_zero_is_guarded() -> None:
    """phi(q).phi(k) = cos(w(q-k)) for one row w: keys at 0 and pi make D = 1 - 1 = 0, and those beyond make it < 0."""
    features = given_features(1, torch.ones(1, 1, dtype=torch.float64), "plain")
    Q, V = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    for keys in ([0.0, math.pi], [0.2, math.pi]):
        out = attend_features(Q, torch.tensor(keys, dtype=torch.float64)[:, None], V, features=features)
        assert torch.isfinite(out).all()


def test_F4_fourier_integral_attention() -> None:
    """sum_j v_j prod_c phi(sin(R (q_c - k_jc)) / (R (q_c - k_jc))) / sum_j prod_c …, with phi(z) = z^4."""
    R, Q, K, V = 1.3, torch.randn(3, 4).double(), torch.randn(5, 4).double(), torch.randn(5, 2).double()

    def kernel(q: torch.Tensor, k: torch.Tensor) -> float:
        return math.prod((math.sin(R * u) / (R * u)) ** 4 for u in (q - k).tolist())

    products = torch.tensor([[kernel(q, k) for k in K] for q in Q], dtype=torch.float64)
    wanted = products / products.sum(-1, keepdim=True)
    score = FourierScore(radius=R).double()
    y, weights = attend(Q, K, V, score=score, return_weights=True)
    assert torch.allclose(weights, wanted, atol=1e-12) and torch.allclose(y, wanted @ V, atol=1e-12)
    # A key that is the query has the kernel 1; with a large R no other key counts.
    at_a_key = attend(K[2:3], K, V, score=FourierScore(radius=40.0).double())
    assert torch.allclose(at_a_key, V[2:3], atol=1e-3)
    y.sum().backward()
    assert score.radius.grad is not None and torch.isfinite(score.radius.grad)
    with pytest.raises(ValueError, match="power must be even"):
        FourierScore(power=3)
