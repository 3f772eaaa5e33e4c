"""The arithmetic of Lab, Positions and Random features once more, by the library in float64, to hold the page against.

D5, D6, D9, D10, B2 to B4, F1 to F3. The page computes these itself.

    m queries   n keys   d width   M rows of W
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from regard.errors import DataError
from regard.serving.explorer_api import to_bytes
from regard.serving.request_bodies import Body, FeaturesBody, LabBody, Matrix, PositionsBody

if TYPE_CHECKING:
    from torch import Tensor

MOST_CELLS = 250_000  # of a matrix


def lab_routes() -> APIRouter:
    """The three routes; they need no model."""
    routes = APIRouter(prefix="/api")

    async def answered(work: Callable[[], dict[str, Any]], body: Body) -> Response:
        content = await run_in_threadpool(lambda: to_bytes(work()))
        return Response(content, headers=body.headers(), media_type="application/json")

    @routes.post("/lab")
    async def lab(body: LabBody) -> Response:
        return await answered(lambda: attention(body), body)

    @routes.post("/positions")
    async def positions(body: PositionsBody) -> Response:
        return await answered(lambda: position_tables(body), body)

    @routes.post("/features")
    async def features(body: FeaturesBody) -> Response:
        return await answered(lambda: feature_maps(body), body)

    return routes


def attention(body: LabBody) -> dict[str, Any]:
    """Attention step by step: raw scores, scaled, masked, weights, output."""
    from regard.attention.dispatch import attend

    q, k, v = (as_matrix(name, getattr(body, name)) for name in ("q", "k", "v"))
    if len(k) != len(v):
        raise DataError(f"k has {len(k)} rows and v {len(v)}: each key has one value")
    if (cells := len(q) * len(k) * len(body.wq or [0])) > MOST_CELLS:
        raise DataError(f"{len(q)} queries and {len(k)} keys make {cells:,} numbers, and {MOST_CELLS:,} are the limit")
    raw = raw_scores(body, q, k)  # (m, n)
    scaled = raw * (score_scale(body.score, k) if body.scale is None else body.scale)
    mask = allowed(body, len(q), len(k))
    # A score may be any function of queries and keys, so what was computed above can be given as one.
    compared = (scaled / body.temperature)[None, None]  # (B, H, m, n)
    out, weights = attend(q, k, v, mask=mask, score=lambda queries, keys: compared, return_weights=True)
    return {
        "raw": as_array(raw),
        "scaled": as_array(scaled),
        "masked": as_array(scaled, mask),
        "weights": as_array(weights),
        "out": as_array(out),
    }


def raw_scores(body: LabBody, q: Tensor, k: Tensor) -> Tensor:
    """q k, q W k or w tanh(W_q q + W_k k), before any scale; (m, n)."""
    import torch

    from regard.attention.scores import AdditiveScore, BilinearScore, DotScore

    def weight(name: str, rows: int | None, columns: int | None) -> Tensor:
        given = getattr(body, name)
        if given is None:
            raise DataError(f"the score {body.score!r} has the matrix {name!r}, which is missing")
        found = as_matrix(name, given)
        if found.shape[0] != (rows or found.shape[0]) or found.shape[1] != (columns or found.shape[1]):
            raise DataError(f"{name} has the shape {list(found.shape)}, and [{rows or 'any'}, {columns or 'any'}] fits")
        return found

    score: DotScore | BilinearScore | AdditiveScore
    with torch.no_grad():
        if body.score == "general":
            score = BilinearScore(query_dim=q.shape[1], key_dim=k.shape[1]).double()
            score.weight.copy_(weight("w", q.shape[1], k.shape[1]))
        elif body.score == "additive":
            w = weight("w", 1, None)
            score = AdditiveScore(query_dim=q.shape[1], key_dim=k.shape[1], hidden=w.shape[1]).double()
            score.weight.copy_(w[0])
            score.query.weight.copy_(weight("wq", w.shape[1], q.shape[1]))
            score.key.weight.copy_(weight("wk", w.shape[1], k.shape[1]))
        else:
            if q.shape[1] != k.shape[1]:
                raise DataError(f"q has width {q.shape[1]} and k {k.shape[1]}: a dot product wants them equal")
            score = DotScore()
        return score(q, k)


def score_scale(score: str, k: Tensor) -> float:
    return 1 / math.sqrt(k.shape[1]) if score == "scaled" else 1.0


def allowed(body: LabBody, m: int, n: int) -> Tensor | None:
    """Where a query may look, (m, n)."""
    import torch

    if body.mask is None:
        return None
    if body.mask == "causal":
        return torch.ones(m, n).tril(n - m).bool()  # the last query sees every key
    if len(body.mask) != m or any(len(row) != n for row in body.mask):
        raise DataError(f"the mask must have a row of {n} for each of the {m} queries")
    return torch.tensor(body.mask)


def position_tables(body: PositionsBody) -> dict[str, Any]:
    """A table of positions, the inner products of its rows, and which dimensions tell distances apart."""
    import torch

    from regard.positions.absolute import distance_variance, sinusoidal

    if body.length * max(body.length, body.dim) > MOST_CELLS:
        raise DataError(f"length x length and length x dim go up to {MOST_CELLS:,} numbers")
    table = sinusoidal(body.length, body.dim, base=body.base, layout=body.layout, dtype=torch.float64)
    if body.kind == "rotary":
        table = turned(table, body.layout)
    products = table @ table.T
    return {
        "table": as_array(table),
        "products": as_array(products),
        "curve": as_array(products[0]),
        "variance": as_array(distance_variance(body.dim, base=body.base)),
    }


def turned(table: Tensor, layout: str) -> Tensor:
    """Where rotary positions turn the pair (1, 0): to (cos, sin), so the sinusoidal table with its pairs swapped."""
    pairs = table.unflatten(-1, (-1, 2) if layout == "interleaved" else (2, -1))
    return pairs.flip(-1 if layout == "interleaved" else -2).flatten(-2)


def feature_maps(body: FeaturesBody) -> dict[str, Any]:
    """Weights by random features with the given rows W, exact ones, and the limit of the lecture's formula."""
    from regard.look.inside import random_features as look

    q, k = as_matrix("q", body.q), as_matrix("k", body.k)
    if q.shape[1] != k.shape[1]:
        raise DataError(f"q has width {q.shape[1]} and k {k.shape[1]}: a dot product wants them equal")
    if (body.w is None) != (body.map == "elu"):
        raise DataError("elu has no random rows w, and every other map has some")
    rows = None if body.w is None else as_matrix("w", body.w)  # (M, d)
    if rows is not None and rows.shape[1] != q.shape[1]:
        raise DataError(f"w has width {rows.shape[1]} and q {q.shape[1]}: each row is multiplied with each query")
    M = 1 if rows is None else len(rows)
    F = M if body.map in ("positive", "optimal") else 2 * M
    if (cells := max(len(q) * len(k), (len(q) + len(k)) * F)) > MOST_CELLS:
        raise DataError(f"these matrices make {cells:,} numbers, and {MOST_CELLS:,} are the limit")
    scale = q.shape[1] ** -0.5 if body.scale is None else body.scale
    head = look.HeadVectors(q, k, (), (), scale, body.causal)
    made = look.make_features(head, body.map, features=F, normalize=body.normalize, W=rows)
    # elu takes vectors as they are, so it is held against the attention of those.
    normalize = body.normalize and body.map != "elu"
    exact, weights = look.exact_weights(head, normalize=normalize), look.estimated_weights(head, made)
    return {
        "exact": as_array(exact),
        "limit": as_array(look.limit_weights(head, normalize=normalize)),
        "weights": as_array(weights),
        "error": look.relative_error(weights, exact),
    }


def as_matrix(name: str, rows: Matrix) -> Tensor:
    import torch

    if len({len(row) for row in rows}) > 1:
        raise DataError(f"the rows of {name} are not equally long")
    return torch.tensor(rows, dtype=torch.float64)


def as_array(numbers: Tensor, mask: Tensor | None = None) -> dict[str, Any]:
    """Shape and numbers; those that a mask bars are null."""
    values: list[float | None] = list(numbers.flatten().tolist())
    if mask is not None:
        values = [value if may else None for value, may in zip(values, mask.flatten().tolist(), strict=True)]
    return {"shape": list(numbers.shape), "values": values}
