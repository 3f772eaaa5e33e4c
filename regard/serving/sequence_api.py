"""The API of the tabs Recurrent and Embeddings: gates and states along a text, vectors of words and sentences."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from regard.errors import DataError
from regard.serving.explorer_api import as_json, await_result, check_texts, check_tokens, packed, to_bytes
from regard.serving.limits import Limits
from regard.serving.model_threads import Face, ModelShelf
from regard.serving.request_bodies import EmbeddingsBody, RecurrentBody, SimilarityBody

GRADIENT_STEPS, GRADIENT_WIDTH, GRADIENT_SEEDS = 80, 32, 8


def sequence_routes(shelf: ModelShelf, limits: Limits) -> APIRouter:
    """Return the routes under /api for recurrent nets and embeddings."""
    routes = APIRouter(prefix="/api")

    @routes.post("/recurrent")
    async def recurrent(body: RecurrentBody, request: Request) -> Response:
        check_texts(limits, body.text)
        work = shelf[body.model].submit(lambda face: compute_states(face, body, limits))
        return await await_result(request, work, body.headers())

    @routes.get("/gradients")
    async def gradients() -> Response:
        return as_json(await run_in_threadpool(untrained_gradients))

    @routes.post("/embeddings")
    async def embeddings(body: EmbeddingsBody, request: Request) -> Response:
        check_texts(limits, body.word)
        work = shelf[body.model].submit(lambda face: compute_embeddings(face, body))
        return await await_result(request, work, body.headers())

    @routes.post("/similarity")
    async def similarity(body: SimilarityBody, request: Request) -> Response:
        check_texts(limits, *body.texts)
        work = shelf[body.model].submit(lambda face: compute_similarity(face, body, limits))
        return await await_result(request, work, body.headers())

    return routes


def compute_states(face: Face, body: RecurrentBody, limits: Limits) -> bytes:
    """Return what a recurrent model computes along the text."""
    from regard.look.recurrent import recurrent_states

    check_tokens(face, limits, body.text, None)
    states = recurrent_states(face, body.text)
    return to_bytes(
        {
            "cell": states.cell,
            "tokens": states.tokens,
            "layers": [
                {
                    "layer": layer.layer,
                    "backwards": layer.backwards,
                    "values": {name: packed(numbers.cpu().numpy()) for name, numbers in layer.values.items()},
                }
                for layer in states.layers
            ],
            "predictions": states.predictions,
            "gradients": states.gradients,
            "vector": None if states.vector is None else packed(states.vector.cpu().numpy()),
            "output": states.output,
        }
    )


@cache
def untrained_gradients() -> dict[str, Any]:
    """Return the gradient norms of untrained networks by distance: the median over seeds, and the range."""
    from regard.look.pictures.gradients import untrained_norms

    networks = untrained_norms(GRADIENT_STEPS, GRADIENT_WIDTH, GRADIENT_SEEDS)
    curves = [
        {
            "name": name,
            "median": norms.median(0).values.tolist(),
            "low": norms.amin(0).tolist(),
            "high": norms.amax(0).tolist(),
        }
        for name, norms in networks.items()
    ]
    return {"width": GRADIENT_WIDTH, "seeds": GRADIENT_SEEDS, "curves": curves}


def compute_embeddings(face: Face, body: EmbeddingsBody) -> bytes:
    """Return the first words of a model in the plane, with one word and its nearest words."""
    from regard.look.embeddings import principal_plane, word_table

    table = word_table(face)
    count = min(body.count, len(table.words))
    nearest = None if body.word is None else table.nearest(body.word)
    chosen = [] if nearest is None else [body.word, *(word for word, _ in nearest)]
    rows = dict.fromkeys([*range(count), *(table.index(str(word)) for word in chosen)])
    plane = principal_plane(table.vectors[list(rows)], fitted=count)
    return to_bytes(
        {
            "words": [table.words[row] for row in rows],
            "fitted": count,
            "all": len(table.words),
            "width": table.vectors.shape[1],
            "points": plane.points.tolist(),
            "explained": plane.explained,
            "nearest": nearest,
        }
    )


def compute_similarity(face: Face, body: SimilarityBody, limits: Limits) -> bytes:
    """Return the cosine similarity of each pair of texts."""
    if not hasattr(face, "similarity"):
        raise DataError(f"{body.model} is not a sentence encoder, so it has no sentence vectors: choose one that is")
    for text in body.texts:
        check_tokens(face, limits, text, None)
    return to_bytes({"cosines": packed(face.similarity(body.texts, body.texts).numpy())})
