"""The arithmetic of the tabs Lab, Positions and Random features, computed by the library in float64.

The page computes the same in TypeScript; the tests compare the two. Matrices come as lists of rows.

    m queries   n keys   d width   M rows of W
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from regard.attention.dispatch import attend
from regard.attention.scores import AdditiveScore, BilinearScore, DotScore
from regard.look.inside import random_features as look
from regard.positions.sinusoids import distance_variance, sinusoidal

Rows = list[list[float]]


def attention_stages(
    *,
    q: Rows,
    k: Rows,
    v: Rows,
    score: str = "scaled",
    w: Rows | None = None,
    wq: Rows | None = None,
    wk: Rows | None = None,
    scale: float | None = None,
    mask: str | list[list[bool]] | None = None,
    temperature: float = 1.0,
) -> dict[str, list[float | None]]:
    """Attention step by step: raw scores, scaled, masked, weights, output."""
    queries, keys, values = map(matrix, (q, k, v))
    raw = raw_scores(score, queries, keys, w, wq, wk)  # (m, n)
    default = 1 / math.sqrt(keys.shape[1]) if score == "scaled" else 1.0
    scaled = raw * (default if scale is None else scale)
    m, n = raw.shape
    allowed = torch.ones(m, n).tril(n - m).bool() if mask == "causal" else None if mask is None else torch.tensor(mask)
    compared = (scaled / temperature)[None, None]  # (B, H, m, n): any function of queries and keys can be a score
    out, weights = attend(queries, keys, values, mask=allowed, score=lambda *_: compared, return_weights=True)
    masked = numbers(scaled)
    if allowed is not None:
        masked = [x if may else None for x, may in zip(masked, allowed.flatten().tolist(), strict=True)]
    stages = {"raw": numbers(raw), "scaled": numbers(scaled), "weights": numbers(weights), "out": numbers(out)}
    return {**stages, "masked": masked}


@torch.no_grad()
def raw_scores(name: str, q: Tensor, k: Tensor, w: Rows | None, wq: Rows | None, wk: Rows | None) -> Tensor:
    """q k, q W k or w tanh(W_q q + W_k k), before any scale; (m, n)."""
    if name == "general":
        general = BilinearScore(query_dim=q.shape[1], key_dim=k.shape[1]).double()
        general.weight.copy_(matrix(w))
        return general(q, k)
    if name == "additive":
        row = matrix(w)
        additive = AdditiveScore(query_dim=q.shape[1], key_dim=k.shape[1], hidden=row.shape[1]).double()
        additive.weight.copy_(row[0])
        additive.query.weight.copy_(matrix(wq))
        additive.key.weight.copy_(matrix(wk))
        return additive(q, k)
    return DotScore()(q, k)


def position_tables(
    *, length: int, dim: int, kind: str = "sinusoidal", layout: Any = "interleaved", base: float = 10000.0
) -> dict[str, list[float | None]]:
    """A table of positions, the inner products of its rows, and which dimensions tell distances apart."""
    table = sinusoidal(length, dim, base=base, layout=layout, dtype=torch.float64)
    if kind == "rotary":  # turns the pair (1, 0) to (cos, sin): the sinusoidal table with its pairs swapped
        pairs = table.unflatten(-1, (-1, 2) if layout == "interleaved" else (2, -1))
        table = pairs.flip(-1 if layout == "interleaved" else -2).flatten(-2)
    products = table @ table.T
    tables = {"table": table, "products": products, "curve": products[0]}
    return {name: numbers(x) for name, x in {**tables, "variance": distance_variance(dim, base=base)}.items()}


def feature_weights(
    *, q: Rows, k: Rows, w: Rows | None = None, map: Any = "trig", normalize: bool = False, scale: float | None = None
) -> tuple[list[float | None], list[float | None], float]:
    """The exact weights, those by random features with the given rows W, and the relative error."""
    queries, keys = matrix(q), matrix(k)
    rows = None if w is None else matrix(w)  # (M, d)
    M = 1 if rows is None else len(rows)
    F = M if map in ("positive", "optimal") else 2 * M
    head = look.HeadVectors(queries, keys, (), (), queries.shape[1] ** -0.5 if scale is None else scale, False)
    made = look.make_features(head, map, features=F, normalize=normalize, W=rows)
    # elu takes vectors as they are, so it is compared with the attention of those.
    exact = look.exact_weights(head, normalize=normalize and map != "elu")
    weights = look.estimated_weights(head, made)
    return numbers(exact), numbers(weights), look.relative_error(weights, exact)


def matrix(rows: Rows | None) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def numbers(x: Tensor) -> list[float | None]:
    return x.flatten().tolist()
