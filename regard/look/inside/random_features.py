"""Random features beside what they estimate: exact softmax, the lecture's formula and the corrected one, on one head.

F1, F2, F3. feature_plots.py draws them, and the page's tab Random features shows the same numbers.

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
from regard.look.trace.trace import Map, Trace

COUNTS = (16, 32, 64, 128, 256, 512, 1024)  # features of a curve
SEEDS = 5
NO_PRODUCT = (
    "the weights of this head are no softmax of q.k: its score is another, or adds something for the distance, "
    "and features stand for products of q and k alone"
)
OFF = 0.02  # more than rounding between q.k's softmax and the weights that a trace holds


@dataclass(frozen=True)
class HeadVectors:
    """Queries q (m, d) and keys k (n, d) of one head, whose score is `scale` q.k, and the words that they belong to."""

    q: Tensor
    k: Tensor
    rows: Sequence[str]
    columns: Sequence[str]
    scale: float
    causal: bool = False
    name: str = ""


class Estimates(NamedTuple):
    """Weights (m, n) of the same queries and keys, made in four ways."""

    exact: Tensor  # softmax attention
    limit: Tensor  # what the lecture's formula tends to with ever more features: softmax(x.y - |y|²/2)
    plain: Tensor  # the lecture's formula
    corrected: Tensor  # the chosen map


def jane_head() -> HeadVectors:
    """The sentence of E9 with matrices small enough for the blackboard; its keys are from 1 to 2.1 long."""
    flow = jane_flow()
    name = "Jane visite l'Afrique en septembre, by hand"
    return HeadVectors(flow.q.double(), flow.k.double(), flow.words, flow.words, flow.k.shape[1] ** -0.5, name=name)


def read_head(
    trace: Trace, which: str | None = None, *, layer: int | None = None, head: int | None = None
) -> HeadVectors:
    """One head of a trace that was made with vectors=True; without `which` of its map to the source, if there is one.

    Without layer and head it is the one that aligns best where one does, else the first. UsageError where its weights
    are no softmax of q.k: additive scores, and those that add something for the distance, are not made of features.
    """
    if not trace.maps:
        raise UsageError("the model has no attention, so there is no head to show")
    which = which or next(name for name in ("cross", "rnn", *trace.maps) if name in trace.maps)
    if which not in trace.maps:
        raise UsageError(unknown_name("map", which, tuple(trace.maps)))
    one = trace.maps[which]
    best = trace.best_head if which in ("cross", "rnn") and layer is None and head is None else None
    layer, head = (best.layer, best.head or 0) if best else (layer or 0, head or 0)
    for what, number, size in (("layer", layer, one.weights.shape[0]), ("head", head, one.weights.shape[1])):
        if not 0 <= number < size:
            raise UsageError(f"{what} must be from 0 to {size - 1}, got {number}")
    if one.q is None or one.k is None:
        raise UsageError("the trace holds no queries and keys: make it with trace_text(…, vectors=True)")
    heads, groups = one.q.shape[1], one.k.shape[1]
    q = torch.from_numpy(one.q[layer, head].astype(np.float64))
    k = torch.from_numpy(one.k[layer, head * groups // heads].astype(np.float64))
    rows, columns = ([token.text for token in trace.axes[axis].tokens] for axis in (one.query, one.key))
    name = f"{trace.model.name}, {which}, layer {layer}, head {head}"
    if trace.model.scale is None:
        raise UsageError(NO_PRODUCT)
    found = HeadVectors(q, k, rows, columns, trace.model.scale, which == "dec_self", name)
    _check_scores(found, one, layer, head)
    return found


def _check_scores(found: HeadVectors, one: Map, layer: int, head: int) -> None:
    """Raise UsageError where the recorded weights are not softmax(scale q.k)."""
    if one.random_features:
        return
    recorded = torch.from_numpy(one.weights[layer, head].astype(np.float64))
    if (exact_weights(found, normalize=False) - recorded).abs().max() > OFF:
        raise UsageError(NO_PRODUCT)


def exact_weights(head: HeadVectors, *, normalize: bool) -> Tensor:
    """Softmax attention (m, n), F1; normalised it is that of vectors of length 1, softmax(cos(q, k))."""
    q, k = head.q, head.k
    if normalize:
        q, k = (functional.normalize(x, dim=-1, eps=1e-6) for x in (q, k))
    scale = 1.0 if normalize else head.scale
    return attend(q, k, k, scale=scale, causal=head.causal, return_weights=True, backend="reference")[1]


def limit_weights(head: HeadVectors, *, normalize: bool) -> Tensor:
    """What the lecture's formula tends to: softmax(x.y - |y|²/2) = softmax(-|x-y|²/2); F3."""
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
    """The features of a map by name for this head, in float64; `optimal` is the best one for its queries and keys.

    With W (M, d) those rows are taken, and no others are drawn. elu takes neither a number nor a switch: it has as
    many features as a vector has numbers, and takes vectors as they are.
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
    made = RandomFeatures(
        dim=d, features=features, map=chosen, draw=draw, normalize=normalize, scale=scale, seed=seed
    ).double()
    if W is not None:
        made.W.copy_(W)
    return made


def estimated_weights(head: HeadVectors, features: RandomFeatures) -> Tensor:
    """Weights (m, n) by features, D^-1 phi(Q) phi(K)^T; those of sines and cosines may be negative."""
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
    """Exact softmax, the lecture's formula in the limit and with that many features, and a corrected map; F3.

    map        "trig" has the factor that the lecture's formula lacks; "positive", "hyperbolic", "optimal" and "elu"
    normalize  compare vectors of length 1: another attention, of which all four are then estimates
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


def relative_error(found: Tensor, exact: Tensor) -> float:
    """|found - exact| / |exact|, of the whole matrix."""
    return float((found - exact).norm() / exact.norm())


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
    """Relative errors (seeds, counts) against exact attention; the seeds are seed, seed + 1, …"""
    exact = exact_weights(head, normalize=normalize)

    def error(F: int, number: int) -> float:
        made = make_features(head, map, features=F, normalize=normalize, draw=draw, seed=number)
        return relative_error(estimated_weights(head, made), exact)

    return torch.tensor([[error(F, number) for F in counts] for number in range(seed, seed + seeds)])


def exact_operations(L: int, d: int, e: int) -> int:
    """Multiplications of a head's exact attention among L tokens: every query with every key, every weight with v."""
    return L * L * (d + e)


def feature_operations(L: int, d: int, e: int, *, rows: int, features: int) -> int:
    """Those by features: W x of queries and keys, S and z summed up, S and z asked. Linear in L; F3."""
    return 2 * L * rows * d + 2 * L * features * (e + 1)
