"""Random features compared with exact softmax attention on one head: the lecture's formula and a corrected one.

F1, F2, F3. `pictures/random_features.py` draws them, and the tab "Random features" of the page shows the same numbers.

    m queries   n keys   d width of queries and keys   e width of values   M rows of W   F features   L length
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from regard.attention.dispatch import attend
from regard.attention.linear.dispatch import attend_features
from regard.attention.linear.feature_maps import FeatureMap, OptimalPositive, make_map
from regard.attention.linear.features import RandomFeatures
from regard.errors import UsageError, unknown_name
from regard.look.lecture_examples import jane_flow
from regard.look.trace.attention_map import Map
from regard.look.trace.trace import Trace

COUNTS = (16, 32, 64, 128, 256, 512, 1024)  # numbers of features of an error curve
SEEDS = 5
NO_PRODUCT = (
    "the weights of this head are not softmax(scale q.k): it has another score or a position bias, and random features "
    "approximate only products of q and k"
)
WEIGHT_TOLERANCE = 0.02  # between softmax(scale q.k) and the weights of a trace, above rounding


@dataclass(frozen=True)
class HeadVectors:
    """Queries q (m, d) and keys k (n, d) of one head with the score `scale` q.k, and their tokens."""

    q: Tensor
    k: Tensor
    rows: Sequence[str]
    columns: Sequence[str]
    scale: float
    causal: bool = False
    name: str = ""


class Estimates(NamedTuple):
    """Weights (m, n) of the same queries and keys, computed in four ways."""

    exact: Tensor  # softmax attention
    limit: Tensor  # the limit of the lecture's formula for infinitely many features: softmax(x.y - |y|²/2)
    plain: Tensor  # the lecture's formula
    corrected: Tensor  # the chosen feature map


def jane_head() -> HeadVectors:
    """Return the sentence of E9 with matrices small enough for the blackboard; its keys have norms from 1 to 2.1."""
    flow = jane_flow()
    name = "Jane visite l'Afrique en septembre, by hand"
    return HeadVectors(flow.q.double(), flow.k.double(), flow.words, flow.words, flow.k.shape[1] ** -0.5, name=name)


def read_head(
    trace: Trace, which: str | None = None, *, layer: int | None = None, head: int | None = None
) -> HeadVectors:
    """Return one head of a trace with vectors (vectors=True); `which` defaults to the map to the source, if any.

    Layer and head default to the head that aligns best, if the trace names one, else to the first. UsageError if the
    weights are not softmax(scale q.k), as with additive scores and position biases.
    """
    if not trace.maps:
        raise UsageError("the model has no attention and therefore no heads")
    which = which or next(name for name in ("cross", "rnn", *trace.maps) if name in trace.maps)
    if which not in trace.maps:
        raise UsageError(unknown_name("map", which, tuple(trace.maps)))
    attention = trace.maps[which]
    best = trace.best_head if which in ("cross", "rnn") and layer is None and head is None else None
    layer, head = (best.layer, best.head or 0) if best else (layer or 0, head or 0)
    for what, number, size in (
        ("layer", layer, attention.weights.shape[0]),
        ("head", head, attention.weights.shape[1]),
    ):
        if not 0 <= number < size:
            raise UsageError(f"{what} must be from 0 to {size - 1}, got {number}")
    if attention.q is None or attention.k is None:
        raise UsageError("the trace has no queries and keys: make it with trace_text(…, vectors=True)")
    heads, groups = attention.q.shape[1], attention.k.shape[1]
    q = torch.from_numpy(attention.q[layer, head].astype(np.float64))
    k = torch.from_numpy(attention.k[layer, head * groups // heads].astype(np.float64))
    rows, columns = ([token.text for token in trace.axes[axis].tokens] for axis in (attention.query, attention.key))
    name = f"{trace.model.name}, {which}, layer {layer}, head {head}"
    if trace.model.scale is None:
        raise UsageError(NO_PRODUCT)
    vectors = HeadVectors(q, k, rows, columns, trace.model.scale, which == "dec_self", name)
    _check_scores(vectors, attention, layer, head)
    return vectors


def _check_scores(vectors: HeadVectors, attention: Map, layer: int, head: int) -> None:
    """Raise UsageError if the recorded weights are not softmax(scale q.k)."""
    if attention.random_features:
        return
    recorded = torch.from_numpy(attention.weights[layer, head].astype(np.float64))
    if (exact_weights(vectors, normalize=False) - recorded).abs().max() > WEIGHT_TOLERANCE:
        raise UsageError(NO_PRODUCT)


def exact_weights(head: HeadVectors, *, normalize: bool) -> Tensor:
    """Return exact attention weights (m, n), F1; with `normalize` those of unit vectors, softmax(cos(q, k))."""
    q, k = head.q, head.k
    if normalize:
        q, k = (functional.normalize(x, dim=-1, eps=1e-6) for x in (q, k))
    scale = 1.0 if normalize else head.scale
    return attend(q, k, k, scale=scale, causal=head.causal, return_weights=True, backend="reference")[1]


def limit_weights(head: HeadVectors, *, normalize: bool) -> Tensor:
    """Return the limit of the lecture's formula, softmax(x.y - |y|²/2) = softmax(-|x-y|²/2); F3."""
    features = make_features(head, "plain", features=2, normalize=normalize)
    x, y = features.prepare(head.q), features.prepare(head.k)

    def gaussian(q: Tensor, k: Tensor) -> Tensor:
        return -(q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1) / 2

    return attend(x, y, y, score=gaussian, causal=head.causal, return_weights=True)[1]


def make_features(
    head: HeadVectors,
    map: str,
    *,
    features: int,
    normalize: bool,
    draw: str = "orthogonal",
    seed: int = 0,
    W: Tensor | None = None,
) -> RandomFeatures:
    """Return the random features of a named map for this head, in float64; `optimal` is fitted to queries and keys.

    W (M, d) replaces the random projection. elu ignores `features` and `normalize`: it has d features and uses the
    vectors unchanged.
    """
    chosen: FeatureMap = make_map(map)
    d = head.q.shape[1]
    if chosen.raw:
        return RandomFeatures(dim=d, map=chosen).double()
    scale = None if normalize else head.scale
    if isinstance(chosen, OptimalPositive):
        plain = RandomFeatures(dim=d, features=1, map="positive", normalize=normalize, scale=scale)
        x, y = plain.prepare(head.q), plain.prepare(head.k)
        chosen = OptimalPositive(spread=float((x[:, None] + y).square().sum(-1).mean()))
    result = RandomFeatures(
        dim=d, features=features, map=chosen, draw=draw, normalize=normalize, scale=scale, seed=seed
    ).double()
    if W is not None:
        result.W.copy_(W)
    return result


def estimated_weights(head: HeadVectors, features: RandomFeatures) -> Tensor:
    """Return the estimated weights (m, n), D^-1 phi(Q) phi(K)^T; those of trigonometric features may be negative."""
    return attend_features(
        head.q, head.k, head.k, features=features, causal=head.causal, backend="reference", return_weights=True
    )[1]


def compare_features(
    head: HeadVectors,
    *,
    map: str = "trig",
    features: int = 128,
    normalize: bool = False,
    draw: str = "orthogonal",
    seed: int = 0,
) -> Estimates:
    """Compute exact weights, the limit of the lecture's formula, its estimate, and that of a corrected map; F3.

    map        "trig" has the factor that the lecture's formula lacks; "positive", "hyperbolic", "optimal" and "elu"
    normalize  use unit vectors; all four then refer to the attention of unit vectors
    """
    plain, corrected = (
        make_features(head, name, features=features, normalize=normalize, draw=draw, seed=seed)
        for name in ("plain", map)
    )
    return Estimates(
        exact_weights(head, normalize=normalize),
        limit_weights(head, normalize=normalize),
        estimated_weights(head, plain),
        estimated_weights(head, corrected),
    )


def relative_error(estimate: Tensor, exact: Tensor) -> float:
    """Return |estimate - exact| / |exact| of the whole matrix."""
    return float((estimate - exact).norm() / exact.norm())


def feature_errors(
    head: HeadVectors,
    map: str,
    *,
    counts: Sequence[int] = COUNTS,
    seeds: int = SEEDS,
    normalize: bool = False,
    draw: str = "orthogonal",
    seed: int = 0,
) -> Tensor:
    """Return the relative errors (seeds, counts) against exact attention, for the seeds seed, seed + 1, …"""
    exact = exact_weights(head, normalize=normalize)

    def error(F: int, number: int) -> float:
        drawn = make_features(head, map, features=F, normalize=normalize, draw=draw, seed=number)
        return relative_error(estimated_weights(head, drawn), exact)

    return torch.tensor([[error(F, number) for F in counts] for number in range(seed, seed + seeds)])


def exact_operations(L: int, d: int, e: int) -> int:
    """Return the multiplications of exact attention of one head over L tokens: q.k and weight times v for all pairs."""
    return L * L * (d + e)


def feature_operations(L: int, d: int, e: int, *, rows: int, features: int) -> int:
    """Return the multiplications with random features: W x, the sums S and z, and their use. Linear in L; F3."""
    return 2 * L * rows * d + 2 * L * features * (e + 1)
