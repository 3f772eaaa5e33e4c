"""What the explorer's page asks for: which models there are, traces, the numbers inside a block."""

from __future__ import annotations

import asyncio
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

GONE = 499  # nobody will read it


def explorer_routes(shelf: ModelShelf, traces: Mapping[str, bytes], limits: Limits) -> APIRouter:
    """The routes under /api; `traces` are those that were opened as files, in JSON."""
    routes = APIRouter(prefix="/api")

    @routes.get("/models")
    async def models() -> Response:
        told = [
            {
                "name": model.name,
                "kind": model.kind,
                "state": model.state,
                "error": model.error,
                "default": model.name == shelf.default,
                "about": model.about,
            }
            for model in shelf
        ]
        bounds = {"characters": limits.characters, "tokens": limits.tokens}
        return as_json({"models": told, "traces": [{"name": name} for name in traces], "limits": bounds})

    @routes.get("/traces/{name}")
    async def opened(name: str) -> Response:
        if name not in traces:
            raise UnknownError(unknown_name("trace", name, tuple(traces)))
        return Response(traces[name], media_type="application/json")

    @routes.post("/trace")
    async def trace(body: TraceBody, request: Request) -> Response:
        check_texts(limits, body.text, body.target)
        if len(body.prefix) > limits.tokens or (body.max_tokens or 0) > limits.tokens:
            raise DataError(f"prefix and max_tokens go up to {limits.tokens} tokens")
        work = shelf[body.model].submit(lambda face: traced(face, body, limits))
        return await answered(request, work, body.headers())

    @routes.post("/inside")
    async def inside(body: InsideBody, request: Request) -> Response:
        check_texts(limits, body.text, body.target)
        work = shelf[body.model].submit(lambda face: looked_inside(face, body, limits))
        return await answered(request, work, body.headers())

    @routes.get("/parameters")
    async def parameters(model: str, name: str, request: Request) -> Response:
        return await answered(request, shelf[model].submit(lambda face: parameter(face, name)), {})

    return routes


def as_json(content: Any, headers: Mapping[str, str] | None = None) -> Response:
    return Response(to_bytes(content), headers=dict(headers or {}), media_type="application/json")


def to_bytes(content: Any) -> bytes:
    """JSON as browsers read it, where NaN is none, and in ASCII, which has room for half a character of a stranger.

    Piece by piece: `json.dumps` would let no other thread run, and a large trace takes it a while.
    """
    return "".join(json.JSONEncoder(allow_nan=False, separators=(",", ":")).iterencode(content)).encode()


async def answered(request: Request, done: Future[bytes], headers: Mapping[str, str]) -> Response:
    """The answer of a model. A client that goes away meanwhile leaves the queue."""
    work = asyncio.wrap_future(done)
    gone = asyncio.ensure_future(until_gone(request))
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            return Response(status_code=GONE)
        return Response(work.result(), headers=dict(headers), media_type="application/json")
    finally:
        gone.cancel()


async def until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass  # what is left of the request


def check_texts(limits: Limits, *texts: str | None) -> None:
    for text in texts:
        if text is not None and len(text) > limits.characters:
            raise DataError(f"a text of {len(text):,} characters, and {limits.characters:,} are the limit: shorten it")


def check_tokens(face: Face, limits: Limits, text: str, target: str | None) -> None:
    for tokenizer, one in ((face.tokenizer, text), (getattr(face, "target_tokenizer", face.tokenizer), target or "")):
        if (length := len(tokenizer.encode(one))) > limits.tokens:
            raise DataError(f"a text of {length:,} tokens, and {limits.tokens:,} are the limit: shorten it")


def traced(face: Face, body: TraceBody, limits: Limits) -> bytes:
    """What the model does with the text."""
    from regard.look.trace.tracing import trace_text

    check_tokens(face, limits, body.text, body.target)
    found = trace_text(
        face,
        body.text,
        search=None if body.search is None else body.search.make(),
        target=body.target,
        prefix=body.prefix,
        max_tokens=longest_output(face, body, limits),
        top=body.top,
        name=body.model,
        off=[(head.map, head.layer, head.head) for head in body.off],
        vectors=body.vectors,
    )
    return to_bytes(found.to_dict())


def longest_output(face: Face, body: TraceBody, limits: Limits) -> int | None:
    """As asked; else what `trace_text` allows a translation, within the limit: some texts make a model say no end."""
    from regard.look.trace.model_run import MORE, TIMES

    if body.max_tokens is not None or body.target is not None or not hasattr(face, "translate"):
        return body.max_tokens
    return min(limits.tokens, TIMES * (len(face.tokenizer.encode(body.text)) + 1) + MORE)


def looked_inside(face: Face, body: InsideBody, limits: Limits) -> bytes:
    """Every number of one block."""
    from regard.look.inside.inside import inside_block

    check_tokens(face, limits, body.text, body.target)
    found = inside_block(
        face,
        body.text,
        stack=body.stack,
        layer=body.layer,
        token=body.token,
        head=body.head,
        target=body.target,
        search=None if body.search is None else body.search.make(),
    )
    return to_bytes(found)


def parameter(face: Face, name: str) -> bytes:
    """A weight of the model, whole."""
    from regard.look.inside.inside import read_parameter

    numbers = read_parameter(face, name)
    packed = base64.b64encode(numbers.astype("<f4").tobytes()).decode()
    return to_bytes({"name": name, "shape": list(numbers.shape), "float32": packed})
