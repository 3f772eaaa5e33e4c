"""Random features beside exact attention: every number by another way, what the errors do, and the picture of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

import regard
from regard.attention.linear.dispatch import attend_features
from regard.attention.linear.features import RandomFeatures
from regard.errors import UsageError
from regard.look.inside.random_features import (
    COUNTS,
    HeadVectors,
    compare_features,
    estimated_weights,
    exact_operations,
    exact_weights,
    feature_errors,
    feature_operations,
    jane_head,
    limit_weights,
    make_features,
    read_head,
    relative_error,
)
from regard.look.pictures.random_features import LENGTHS, random_features_plot
from regard.look.trace.tracing import trace_text

MAPS = ("trig", "plain", "positive", "hyperbolic", "optimal", "elu")


def some_head(seed: int = 0, *, causal: bool = False, long: float = 1.0) -> HeadVectors:
    draw = torch.Generator().manual_seed(seed)
    q, k = (long * torch.randn(5, 4, generator=draw, dtype=torch.float64) for _ in range(2))
    return HeadVectors(q, k, list("abcde"), list("vwxyz"), 0.5, causal)


def softmax(scores: np.ndarray, causal: bool) -> np.ndarray:
    powers = np.exp(scores) * (np.tri(*scores.shape) if causal else 1)
    return powers / powers.sum(-1, keepdims=True)


def scaled(head: HeadVectors, normalize: bool) -> tuple[np.ndarray, np.ndarray]:
    """x and y with x.y the score."""
    x, y = head.q.numpy(), head.k.numpy()
    if normalize:
        return tuple(one / np.linalg.norm(one, axis=-1, keepdims=True) for one in (x, y))  # type: ignore[return-value]
    return x * head.scale**0.5, y * head.scale**0.5


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_exact_and_limit_are_numpys(normalize: bool, causal: bool) -> None:
    """F1, and F3: the lecture's formula tends to softmax(x.y - |y|²/2)."""
    head = some_head(causal=causal)
    x, y = scaled(head, normalize)
    assert np.allclose(exact_weights(head, normalize=normalize), softmax(x @ y.T, causal), atol=1e-12)
    wanted = softmax(x @ y.T - (y**2).sum(-1) / 2, causal)
    assert np.allclose(limit_weights(head, normalize=normalize), wanted, atol=1e-12)
    assert normalize == bool(np.allclose(wanted, softmax(x @ y.T, causal), atol=1e-9))


def phi(x: np.ndarray, W: np.ndarray, name: str, s: float) -> np.ndarray:
    """The maps as random-features.md of the documentation writes them."""
    M, d = W.shape
    u, half = x @ W.T, (x**2).sum(-1, keepdims=True) / 2
    if name in ("trig", "plain"):
        return np.concatenate([np.sin(u), np.cos(u)], -1) / M**0.5 * (np.exp(half) if name == "trig" else 1)
    if name == "positive":
        return np.exp(u - half) / M**0.5
    if name == "hyperbolic":
        return np.concatenate([np.exp(u), np.exp(-u)], -1) * np.exp(-half) / (2 * M) ** 0.5
    r = (math.sqrt((2 * s + d) ** 2 + 8 * d * s) - 2 * s - d) / (4 * s)
    A = (1 - 1 / r) / 8
    return (1 - 4 * A) ** (d / 4) * np.exp(A * (W**2).sum(-1) + (1 - 4 * A) ** 0.5 * u - half) / M**0.5


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("name", MAPS[:-1])
def test_estimates_are_numpys(name: str, normalize: bool) -> None:
    """With rows W that are given; the optimal map takes the mean of |x+y|² of this very head."""
    head, W = some_head(causal=True), np.random.default_rng(1).normal(size=(6, 4))
    features = 6 if name in ("positive", "optimal") else 12
    made = make_features(head, name, features=features, normalize=normalize, W=torch.from_numpy(W))
    x, y = scaled(head, normalize)
    s = np.mean([np.sum((a + b) ** 2) for a in x for b in y])
    products = phi(x, W, name, s) @ phi(y, W, name, s).T * np.tri(5)
    assert np.allclose(estimated_weights(head, made), products / products.sum(-1, keepdims=True), atol=1e-10)


def test_elu_takes_vectors_as_they_are() -> None:
    head = some_head()
    q, k = (np.where(x > 0, x + 1, np.exp(x)) for x in (head.q.numpy(), head.k.numpy()))
    wanted = q @ k.T / (q @ k.T).sum(-1, keepdims=True)
    for features in (16, 512):
        assert np.allclose(compare_features(head, map="elu", features=features).corrected, wanted, atol=1e-12)


def test_an_error_without_bias_falls_as_one_over_the_root_and_a_bias_stays() -> None:
    """Medians over 64 draws; the log of the error against the log of the features has slope -1/2."""
    head = some_head(long=0.7)
    counts = (64, 256, 1024, 4096)
    found = {
        name: feature_errors(head, name, counts=counts, seeds=64, draw="independent").median(0).values
        for name in ("trig", "plain")
    }
    slope = np.polyfit(np.log(counts), np.log(found["trig"].numpy()), 1)[0]
    assert -0.6 < slope < -0.4
    bias = relative_error(limit_weights(head, normalize=False), exact_weights(head, normalize=False))
    assert found["plain"][-1] == pytest.approx(bias, rel=0.1) and bias > 5 * found["trig"][-1]


def test_seeds_of_a_curve_are_those_that_one_can_look_at() -> None:
    head = jane_head()
    errors = feature_errors(head, "positive", counts=(16, 64), seeds=2, seed=5, normalize=True)
    assert errors.shape == (2, 2)
    found = compare_features(head, map="positive", features=64, seed=6, normalize=True)
    assert relative_error(found.corrected, found.exact) == pytest.approx(float(errors[1, 1]))


class Multiplications(TorchFunctionMode):
    """Counts those of the matrix products inside the block."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func.__name__ in ("matmul", "__matmul__"):
            self.count += found.numel() * args[0].shape[-1]
        return found


@pytest.mark.parametrize(("L", "d", "e", "features"), [(50, 8, 8, 32), (130, 16, 4, 64)])
def test_operations_are_those_that_pytorch_does(L: int, d: int, e: int, features: int) -> None:
    """The cost of the curves, against the products that the chunked backend makes."""
    q, k, v = torch.randn(1, 1, L, d), torch.randn(1, 1, L, d), torch.randn(1, 1, L, e)
    made = RandomFeatures(dim=d, features=features, map="trig")
    with Multiplications() as counted:
        attend_features(q, k, v, features=made)
    assert counted.count == feature_operations(L, d, e, rows=features // 2, features=features)
    with Multiplications() as counted:
        (q @ k.mT).softmax(-1) @ v
    assert counted.count == exact_operations(L, d, e)


# Heads of models.


@pytest.mark.parametrize("which", ["enc_self", "dec_self", "cross"])
def test_a_head_of_a_model_is_what_the_model_did(which: str, small: Any) -> None:
    trace = trace_text(small.small_face("transformer", heads=4, kv_heads=2), small.TEXT, vectors=True)
    head = read_head(trace, which, layer=1, head=2)  # the second group of keys
    assert np.allclose(exact_weights(head, normalize=False), trace.maps[which].weights[1, 2], atol=1e-5)
    assert head.rows == [token.text for token in trace.axes[trace.maps[which].query].tokens]
    assert head.causal == (which == "dec_self")
    found = compare_features(head, features=4096, normalize=True)
    assert relative_error(found.corrected, found.exact) < 0.1


def test_without_a_place_it_is_the_head_that_aligns(small: Any) -> None:
    trace = trace_text(small.small_face("transformer"), small.TEXT, vectors=True)
    assert trace.best_head is not None
    named = read_head(trace, "cross", layer=trace.best_head.layer, head=trace.best_head.head or 0)
    assert torch.equal(read_head(trace).q, named.q) and read_head(trace).name == named.name


def test_a_sharp_head_is_too_much_for_features() -> None:
    """The head, the numbers and the map of docs/learn/pictures.md and of the scene F3."""
    head = read_head(trace_text(regard.load("fr-en"), "Marie a acheté une voiture rouge", vectors=True), "cross")
    exact, _, plain, corrected = compare_features(head, map="optimal", features=128, normalize=False)
    assert relative_error(plain, exact) > 2
    assert f"{relative_error(corrected, exact):.0%}" == "62%"
    assert feature_errors(head, "trig", normalize=False)[:, -1].median() > 1  # 1,024 features
    assert feature_errors(head, "trig", normalize=True)[:, -1].median() < 0.1


def test_heads_that_cannot_be_shown(small: Any) -> None:
    plain = trace_text(small.small_face("transformer"), small.TEXT)
    with pytest.raises(UsageError, match="vectors=True"):
        read_head(plain)
    trace = trace_text(small.small_face("transformer"), small.TEXT, vectors=True)
    with pytest.raises(UsageError, match="unknown map 'crosses'"):
        read_head(trace, "crosses")
    with pytest.raises(UsageError, match="head must be from 0 to"):
        read_head(trace, "cross", layer=0, head=99)
    longer = replace(trace.maps["enc_self"], q=2 * trace.maps["enc_self"].q)  # as if the scores had something added
    with pytest.raises(UsageError, match=r"not softmax\(scale q\.k\)"):
        read_head(replace(trace, maps={"enc_self": longer}, best_head=None))
    additive = trace_text(small.small_face("rnn"), small.TEXT, vectors=True)
    with pytest.raises(UsageError, match=r"not softmax\(scale q\.k\)"):
        read_head(additive)


# The picture.


def test_the_picture_shows_the_numbers(clipped: Any) -> None:
    figure = random_features_plot(map="positive", features=64, seed=2, seeds=3)
    found = compare_features(jane_head(), map="positive", features=64, seed=2)
    exact, limit, plain, corrected, _, errors, costs = figure.axes
    for axes, weights in zip((exact, limit, plain, corrected), found, strict=True):
        assert np.array_equal(axes.images[0].get_array(), weights)
        assert axes.images[0].get_clim() == (-float(found.exact.max()), float(found.exact.max()))
    assert f"error {relative_error(found.plain, found.exact):.3f}" in plain.get_title()
    assert [label.get_text() for label in exact.get_yticklabels()] == list(jane_head().rows)
    for line, name in zip(errors.lines, ("plain", "positive"), strict=False):
        wanted = feature_errors(jane_head(), name, seeds=3, seed=2).median(0).values
        assert list(line.get_xdata()) == list(COUNTS) and np.allclose(line.get_ydata(), wanted)
    assert list(costs.lines[1].get_ydata()) == [feature_operations(L, 3, 3, rows=64, features=64) for L in LENGTHS]
    meeting = costs.lines[2].get_xdata()[0]
    assert feature_operations(1000, 3, 3, rows=64, features=64) / exact_operations(1000, 3, 3) == meeting / 1000
    assert clipped(figure) == []
    assert "median of 3 draws" in " ".join(figure.get_supxlabel().split())


def test_normalised_there_is_no_limit_to_draw() -> None:
    plain, normal = (random_features_plot(normalize=on, seeds=1).axes[5] for on in (False, True))
    assert (len(plain.lines), len(normal.lines)) == (4, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"map": "plain"}, "always drawn"), ({"seeds": 0}, "seeds must be at least 1"), ({"features": 7}, "must be even")],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        random_features_plot(**options)
