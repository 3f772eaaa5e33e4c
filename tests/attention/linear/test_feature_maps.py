"""Feature maps: what they estimate, with which variance, against closed forms of the papers.

N repeats   M rows   d width   F features
"""

from __future__ import annotations

import math
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from regard.attention.linear.feature_maps import MAPS, FeatureMap, OptimalPositive, make_map
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.random_rows import draw_rows

SOFTMAX = ("trig", "positive", "hyperbolic", "optimal")  # E[phi(x).phi(y)] = exp(x.y)
RANDOM = (*SOFTMAX, "plain")
X = torch.tensor([0.3, -0.4, 0.1, 0.2], dtype=torch.float64)
Y = torch.tensor([0.1, 0.3, -0.5, 0.4], dtype=torch.float64)


def estimates(name: str, x: Tensor, y: Tensor, W: Tensor) -> Tensor:
    """phi(x).phi(y) for each W of (N, M, d): (N,)."""
    phi = make_map(name)
    (a, b), (c, d) = phi(x[None], W), phi(y[None], W)
    return (a * c).sum((-1, -2)) * (b + d).exp().squeeze(-1)


def kernel(name: str, x: Tensor, y: Tensor) -> float:
    return math.exp(-(x - y).square().sum() / 2) if name == "plain" else math.exp(x @ y)


def variance(name: str, x: Tensor, y: Tensor, M: int) -> float:
    """Of one estimate by M independent rows; Choromanski et al. 2021, lemma 2; Likhosherstov et al. 2022, theorem 3."""
    near, far = float((x - y).square().sum()), float((x + y).square().sum())
    softmax = math.exp(x @ y)
    if name in ("plain", "trig"):
        gaussian = (1 - math.exp(-near)) ** 2 / (2 * M)
        return gaussian if name == "plain" else gaussian * math.exp(x @ x + y @ y)
    if name == "hyperbolic":
        return softmax**2 * (1 - math.exp(-far)) * (math.exp(far) - 1) / (2 * M)
    if name == "positive":
        return softmax**2 * (math.exp(far) - 1) / M
    d, a = len(x), OptimalPositive().best_a(len(x))
    moment = ((1 - 4 * a) ** d / (1 - 8 * a) ** (d / 2)) * math.exp(
        2 * (1 - 4 * a) / (1 - 8 * a) * far - float(x @ x + y @ y)
    )
    return (moment - softmax**2) / M


@pytest.mark.parametrize("kind", ["independent", "orthogonal"])
@pytest.mark.parametrize("name", RANDOM)
def test_expectation(name: str, kind: str) -> None:
    """Within 4 standard errors; |x+y|² <= 1. Several directions, for a lean of W would show in one of them."""
    N = 20000
    W = draw_rows(4, 4, heads=N, kind=kind, seed=5)
    for x, y in ((X, Y), (Y, X), (X, X / 2), (torch.eye(4).double()[0] / 2, torch.eye(4).double()[0] / 2)):
        assert (x + y).square().sum() <= 1
        found = estimates(name, x, y, W)
        assert abs(found.mean() - kernel(name, x, y)) < 4 * found.std() / N**0.5


@pytest.mark.parametrize("M", [1, 5])
@pytest.mark.parametrize("name", RANDOM)
def test_variance(name: str, M: int) -> None:
    """The closed form, within 4 standard errors of a sample's variance."""
    found = estimates(name, X, Y, draw_rows(M, 4, heads=60000, kind="independent", seed=2))
    off = (found - kernel(name, X, Y)).square()
    assert abs(off.mean() - variance(name, X, Y, M)) < 4 * off.std() / len(off) ** 0.5


@pytest.mark.parametrize("name", RANDOM)
def test_error_falls_with_the_number_of_rows(name: str) -> None:
    """log MSE against log M has slope -1."""
    points = []
    for M in (4, 16, 64):
        found = estimates(name, X, Y, draw_rows(M, 4, heads=4000, kind="independent", seed=M))
        points.append((math.log(M), math.log((found - kernel(name, X, Y)).square().mean())))
    (a, c), (_, _), (b, d) = points
    assert abs((d - c) / (b - a) + 1) < 0.1


def hypergeometric(a: float, b: float, x: float) -> float:
    """1F1(a; b; x) = sum_k (a)_k / (b)_k x^k / k!."""
    term = total = 1.0
    for k in range(60):
        term *= (a + k) / (b + k) * x / (k + 1)
        total += term
    return total


@pytest.mark.parametrize(("name", "d", "length", "repeats"), [("trig", 64, 1.0, 800), ("positive", 8, 0.5, 40000)])
def test_orthogonal_rows_lower_the_variance(name: str, d: int, length: float, repeats: int) -> None:
    """By as much as theory says, for M = d and orthogonal x, y: at d = 64 and unit length, to 0.276 of it.

    Two orthogonal rows with lengths of chi_d have E[exp((w_1 + w_2).z)] = 1F1(d; d/2; |z|²/2) where independent rows
    have e^{|z|²}; for cosines the same with -|z|²/2. (Yu et al. 2016 give the first term in 1/d, which makes 0.287.)
    """
    x, y = length * torch.eye(d, dtype=torch.float64)[:2]
    square, sign = 2 * length**2, -1 if name == "trig" else 1  # |x-y|² = |x+y|² = |z|²
    alone = (1 - math.exp(-square)) ** 2 / 2 if name == "trig" else math.exp(2 * square) - math.exp(square)
    pair = hypergeometric(d, d / 2, sign * square / 2) - math.exp(sign * square)
    theory = 1 + (d - 1) * pair / alone
    independent, orthogonal = (
        (estimates(name, x, y, draw_rows(d, d, heads=repeats, kind=kind)) - 1).square().mean()
        for kind in ("independent", "orthogonal")
    )
    assert abs(theory - {"trig": 0.2764, "positive": 0.8760}[name]) < 0.0001
    assert abs(orthogonal / independent - theory) < 0.04


def test_optimal_has_less_variance_than_positive_has() -> None:
    """By the closed forms, which the test above compares with samples: for one row, d = 8 and unit x, y."""
    x, y = torch.eye(8, dtype=torch.float64)[:2]
    assert abs(variance("positive", x, y, 1) - 6.38905609893065) < 1e-12  # e² - 1
    assert abs(variance("optimal", x, y, 1) - 3.2698203064111713) < 1e-12  # computed apart


def test_best_a() -> None:
    """A = (1 - 1/r)/8 by hand: s = 2, d = 2 gives r = (sqrt(68) - 6)/8, A = -0.3201941; none is better."""
    assert abs(OptimalPositive(2.0).best_a(2) - -0.3201941016011038) < 1e-15
    d, s, best = 64, 2.0, OptimalPositive(2.0).best_a(64)

    def second_moment(a: float) -> float:  # E[(phi(x).phi(y))²] up to e^{-|x|²-|y|²}, for |x+y|² = s
        return d * math.log(1 - 4 * a) - d / 2 * math.log(1 - 8 * a) + 2 * (1 - 4 * a) / (1 - 8 * a) * s

    assert second_moment(best) < min(second_moment(best - 1e-3), second_moment(best + 1e-3), second_moment(0.0))


@pytest.mark.parametrize("name", ["trig", "plain"])
def test_length_of_trig_features(name: str) -> None:
    """F2: |phi(x)| = 1, so each point is like itself exactly; with the factor it is e^{|x|²}."""
    want = 1.0 if name == "plain" else math.exp(X @ X)
    assert torch.allclose(estimates(name, X, X, draw_rows(3, 4, heads=5)), torch.tensor(want, dtype=X.dtype))


@pytest.mark.parametrize("name", MAPS)
def test_sizes(name: str) -> None:
    features = RandomFeatures(dim=6, map=name)
    assert features.features == (6 if name == "elu" else 128)
    phi, log_scale = features(torch.randn(2, 1, 3, 5, 6))
    assert phi.shape == (2, 1, 3, 5, features.features) and log_scale.shape == (2, 1, 3, 5)
    assert phi.abs().max() <= (30 if name == "elu" else 1)


@pytest.mark.parametrize("name", ["trig", "plain", "hyperbolic"])
@pytest.mark.parametrize("count", [7, 1, 0, -2])
def test_odd_feature_count(name: str, count: int) -> None:
    with pytest.raises(ValueError, match=f"features must be even.*got {count}"):
        RandomFeatures(dim=4, features=count, map=name)


def test_other_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="unknown feature map 'postive'; did you mean 'positive'"):
        RandomFeatures(dim=4, map="postive")
    with pytest.raises(TypeError, match="has no raw, floor, sizes"):
        RandomFeatures(dim=4, map=lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is a class: pass an instance"):
        RandomFeatures(dim=4, map=OptimalPositive)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="features must be at least 1, got 0"):
        RandomFeatures(dim=4, features=0, map="positive")
    with pytest.raises(ValueError, match="one feature for each of the 4 dimensions: features=4, got 8"):
        RandomFeatures(dim=4, features=8, map="elu")
    with pytest.raises(ValueError, match="takes queries and keys as they are"):
        RandomFeatures(dim=4, map="elu", normalize=True)
    with pytest.raises(ValueError, match="spread is the mean"):
        OptimalPositive(spread=0.0)
    with pytest.raises(ValueError, match="unknown draw 'haar'"):
        RandomFeatures(dim=4, draw="haar")
    with pytest.raises(ValueError, match="scale must be greater than 0"):
        RandomFeatures(dim=4, scale=-1.0)
    with pytest.raises(ValueError, match="heads must be at least 1, got 0"):
        RandomFeatures(dim=4, heads=0)


class Squares:
    """A map of one's own: phi(x) = (w.x)², a kernel of degree 2."""

    raw: ClassVar[bool] = True
    floor: ClassVar[float] = 1e-20

    def sizes(self, features: int | None, dim: int) -> tuple[int, int]:
        return features or 8, features or 8

    def __call__(self, x: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        return (x @ W.mT).square(), torch.zeros_like(x[..., 0])


def test_a_map_of_ones_own() -> None:
    mine: FeatureMap = Squares()
    features = RandomFeatures(dim=4, features=5, map=mine)
    x = torch.randn(1, 1, 1, 3, 4)
    assert torch.allclose(features(x)[0][0, 0, 0], (x[0, 0, 0] @ features.W[0].T).square())
