"""The API of the attribution panel: what each input token contributed to the output, beside the attention weights."""

from __future__ import annotations

from math import isnan

from fastapi import APIRouter, Request
from starlette.responses import Response

from regard.errors import DataError
from regard.serving.explorer_api import await_result, check_texts, check_tokens, to_bytes
from regard.serving.limits import Limits
from regard.serving.model_threads import Face, ModelShelf
from regard.serving.request_bodies import AttributionBody

MAX_TOKENS = 48  # of the input and of the output: the work grows with their product


def attribution_routes(shelf: ModelShelf, limits: Limits) -> APIRouter:
    """Return the route of attributions under /api."""
    routes = APIRouter(prefix="/api")

    @routes.post("/attribution")
    async def attribution(body: AttributionBody, request: Request) -> Response:
        check_texts(limits, body.text, body.target)
        work = shelf[body.model].submit(lambda face: compute_attribution(face, body, limits))
        return await await_result(request, work, body.headers())

    return routes


def compute_attribution(face: Face, body: AttributionBody, limits: Limits) -> bytes:
    """Return the attribution of a text, and the attention weights of the same inputs and outputs."""
    from regard.look.attribution.attribution import attribute, rank_agreement
    from regard.look.attribution.beside_attention import attention_beside

    check_tokens(face, limits, body.text, body.target)
    if (count := len(face.tokenizer.encode(body.text))) > MAX_TOKENS:
        raise DataError(f"the text has {count} tokens; attributions are computed for at most {MAX_TOKENS}: shorten it")
    found = attribute(
        face,
        body.text,
        method=body.method,
        baseline=body.baseline,
        target=body.target,
        max_tokens=None if body.target is not None or hasattr(face, "classify") else MAX_TOKENS,
    )
    weights = attention_beside(face, body.text, found)
    if weights is None:
        return to_bytes(found.to_dict())
    agreement = rank_agreement(weights, found.values)
    beside = {"attention": weights.tolist(), "agreement": None if isnan(agreement) else agreement}
    return to_bytes(found.to_dict() | beside)
