"""The API of the explorer page: the list of models, traces, the numbers inside a block, parameters."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from regard.errors import DataError, unknown_name
from regard.serving.limits import Limits
from regard.serving.model_threads import Face, ModelShelf, UnknownError
from regard.serving.request_bodies import InsideBody, TraceBody
from regard.serving.waiting import CLIENT_CLOSED, DisconnectedError, await_work


def explorer_routes(
    shelf: ModelShelf, traces: Mapping[str, bytes], limits: Limits, *, votes: bool = False
) -> APIRouter:
    """Return the routes under /api; `traces` is the JSON of opened traces, `votes` whether a class can vote."""
    routes = APIRouter(prefix="/api")

    @routes.get("/models")
    async def models() -> Response:
        entries = [
            {
                "name": model.name,
                "kind": model.face,
                "architecture": model.kind,
                "reads": model.reads,
                "state": model.state,
                "error": model.error,
                "default": model.name == shelf.default,
                "about": model.about,
            }
            for model in shelf
        ]
        bounds = {"characters": limits.characters, "tokens": limits.tokens, "file_bytes": limits.file_bytes}
        opened = [{"name": name} for name in traces]
        return as_json({"models": entries, "traces": opened, "limits": bounds, "votes": votes})

    @routes.get("/traces/{name}")
    async def opened(name: str) -> Response:
        if name not in traces:
            raise UnknownError(unknown_name("trace", name, tuple(traces)))
        return Response(traces[name], media_type="application/json")

    @routes.post("/trace")
    async def run_trace(body: TraceBody, request: Request) -> Response:
        check_texts(limits, body.text, body.target)
        if len(body.prefix) > limits.tokens or (body.max_tokens or 0) > limits.tokens:
            raise DataError(f"prefix and max_tokens may have at most {limits.tokens} tokens")
        work = shelf[body.model].submit(lambda face: compute_trace(face, body, limits))
        return await await_result(request, work, body.headers())

    @routes.post("/inside")
    async def inside(body: InsideBody, request: Request) -> Response:
        check_texts(limits, body.text, body.target)
        work = shelf[body.model].submit(lambda face: compute_block(face, body, limits))
        return await await_result(request, work, body.headers())

    @routes.get("/parameters")
    async def parameters(model: str, name: str, request: Request) -> Response:
        return await await_result(request, shelf[model].submit(lambda face: parameter(face, name)), {})

    return routes


def as_json(content: Any, headers: Mapping[str, str] | None = None, status: int = 200) -> Response:
    return Response(to_bytes(content), status, dict(headers or {}), media_type="application/json")


def to_bytes(content: Any) -> bytes:
    """Encode as strict JSON (without NaN) in ASCII, which can also represent unpaired surrogates from clients.

    The encoding is incremental because `json.dumps` of a large trace would block all other threads.
    """
    return "".join(json.JSONEncoder(allow_nan=False, separators=(",", ":")).iterencode(content)).encode()


async def await_result(request: Request, done: Future[bytes], headers: Mapping[str, str]) -> Response:
    """Wait for the result of a model; if the client disconnects, cancel its place in the queue."""
    try:
        content = await await_work(request, done)
    except DisconnectedError:
        return Response(status_code=CLIENT_CLOSED)
    return Response(content, headers=dict(headers), media_type="application/json")


def check_texts(limits: Limits, *texts: str | None) -> None:
    for text in texts:
        if text is not None and len(text) > limits.characters:
            raise DataError(f"the text has {len(text):,} characters; the limit is {limits.characters:,}: shorten it")


def check_tokens(face: Face, limits: Limits, text: str, target: str | None) -> None:
    target_tokenizer = getattr(face, "target_tokenizer", face.tokenizer)
    for tokenizer, content in ((face.tokenizer, text), (target_tokenizer, target or "")):
        if (length := len(tokenizer.encode(content))) > limits.tokens:
            raise DataError(f"the text has {length:,} tokens; the limit is {limits.tokens:,}: shorten it")


def compute_trace(face: Face, body: TraceBody, limits: Limits) -> bytes:
    """Run the model on the text and return its trace."""
    from regard.look.trace.tracing import trace_text

    check_tokens(face, limits, body.text, body.target)
    trace = trace_text(
        face,
        body.text,
        search=None if body.search is None else body.search.make(),
        target=body.target,
        prefix=body.prefix,
        max_tokens=max_output_tokens(face, body, limits),
        top=body.top,
        name=body.model,
        off=[(head.map, head.layer, head.head) for head in body.off],
        vectors=body.vectors,
    )
    return to_bytes(trace.to_dict())


def max_output_tokens(face: Face, body: TraceBody, limits: Limits) -> int | None:
    """Return `max_tokens` of the request, or the default of `trace_text`, capped in case the model never stops."""
    from regard.look.trace.model_run import EXTRA_TOKENS, SOURCE_FACTOR

    if body.max_tokens is not None or body.target is not None or not hasattr(face, "translate"):
        return body.max_tokens
    return min(limits.tokens, SOURCE_FACTOR * (len(face.tokenizer.encode(body.text)) + 1) + EXTRA_TOKENS)


def compute_block(face: Face, body: InsideBody, limits: Limits) -> bytes:
    """Return every number of a block for one token."""
    from regard.look.inside.inside import inside_block

    check_tokens(face, limits, body.text, body.target)
    sheet = inside_block(
        face,
        body.text,
        stack=body.stack,
        layer=body.layer,
        token=body.token,
        head=body.head,
        target=body.target,
        search=None if body.search is None else body.search.make(),
    )
    return to_bytes(sheet)


def parameter(face: Face, name: str) -> bytes:
    """Return a parameter of the model."""
    from regard.look.inside.inside import read_parameter

    return to_bytes({"name": name, **packed(read_parameter(face, name))})


def packed(numbers: Any) -> dict[str, Any]:
    """Return an array as JSON: its shape, and its numbers as float32 in base64."""
    content = base64.b64encode(numbers.astype("<f4").tobytes()).decode()
    return {"shape": list(numbers.shape), "float32": content}


def packed_bytes(numbers: Any) -> dict[str, Any]:
    """Return an array of bytes as JSON, in base64."""
    return {"shape": list(numbers.shape), "uint8": base64.b64encode(numbers.tobytes()).decode()}
