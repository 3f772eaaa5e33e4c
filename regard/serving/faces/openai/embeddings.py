"""`POST /v1/embeddings`: sentence vectors, batched over all clients."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.serving.explorer_api import as_json
from regard.serving.faces.openai.bodies import EmbeddingBody, read_body
from regard.serving.faces.openai.writing import find_model
from regard.serving.service.batcher import BatchedRequest
from regard.serving.service.errors import RequestError
from regard.serving.service.request_log import RequestRecord
from regard.serving.service.service import Service
from regard.serving.service.translating import check_request
from regard.serving.waiting import await_work


def embedding_routes(service: Service) -> list[Route]:
    """Return the route of embeddings."""

    async def embed(request: Request) -> Response:
        body = await read_body(request, EmbeddingBody)
        model, face = await find_model(service, body.model, "embedder", "embed sentences")
        texts = input_texts(body, face)
        key = request.scope["regard.key"]
        check_request(service.limits, key, texts, field="input")
        tokens = sum(map(len, await run_in_threadpool(lambda: [face.token_ids(text) for text in texts])))
        if tokens > service.limits.tokens:
            raise RequestError(
                400, f"the texts have {tokens:,} tokens; the limit is {service.limits.tokens:,}", field="input"
            )
        work = BatchedRequest(key.name, texts)
        vectors: list[Any] = await await_work(request, model.batches.submit(work))
        if body.dimensions not in (None, len(vectors[0])):
            message = (
                f"the vectors of {body.model} have {len(vectors[0])} numbers, and cannot be cut to {body.dimensions}"
            )
            raise RequestError(400, message, field="dimensions")
        record: RequestRecord = request.scope["regard.record"]
        record.texts, record.prompt_tokens = len(texts), tokens
        record.queued, record.worked = work.started - work.submitted, work.ended - work.started
        data = [
            {"object": "embedding", "index": i, "embedding": encoded(vector, body.encoding_format or "float")}
            for i, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return as_json({"object": "list", "data": data, "model": body.model, "usage": usage}, body.headers())

    return [Route("/v1/embeddings", embed, methods=["POST"])]


def input_texts(body: EmbeddingBody, face: Any) -> list[str]:
    """Return the texts of a request; lists of tokens are decoded."""
    content: Any = body.input
    if isinstance(content, str) or (content and isinstance(content[0], int)):
        content = [content]
    if not content or not all(content):
        raise RequestError(400, "input is empty", field="input")
    try:
        return [text if isinstance(text, str) else face.tokenizer.decode(text) for text in content]
    except (IndexError, ValueError, OverflowError):
        raise RequestError(
            400, f"input must contain tokens from 0 to {face.tokenizer.size - 1}", field="input"
        ) from None


def encoded(vector: Any, form: str) -> str | list[float]:
    """Return a vector as numbers, or as the base64 of its little-endian 32-bit floats."""
    numbers = np.asarray(vector, dtype="<f4")
    return numbers.tolist() if form == "float" else base64.b64encode(numbers.tobytes()).decode()
