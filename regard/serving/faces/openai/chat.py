"""`POST /v1/chat/completions`: answer the messages of a conversation, with a model that was trained to chat."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.serving.explorer_api import as_json
from regard.serving.faces.events import event_stream
from regard.serving.faces.openai.bodies import ChatBody, read_body
from regard.serving.faces.openai.completions import failed
from regard.serving.faces.openai.writing import check_rows, envelope, find_model, room_for, write_all
from regard.serving.service.errors import RequestError
from regard.serving.service.service import Service
from regard.serving.service.translating import check_request

if TYPE_CHECKING:
    from regard.api.writer import Writer
    from regard.serving.service.writing import WritingRequest, WrittenToken


def chat_routes(service: Service) -> list[Route]:
    """Return the route of chat completions."""

    async def chat(request: Request) -> Response:
        from regard.serving.service.writing import WritingRequest

        body = await read_body(request, ChatBody)
        model, writer = await find_model(service, body.model, "writer", "write text")
        if writer.chat_format is None:
            message = f"{body.model} has no chat format: it continues texts; use /v1/completions"
            raise RequestError(400, message, field="model")
        messages = [message.plain() for message in body.messages]
        key, n = request.scope["regard.key"], body.n or 1
        check_request(
            service.limits, key, ["\n".join(each["content"] for each in messages)], field="messages", long_texts=True
        )
        wanted = body.max_completion_tokens or body.max_tokens
        most = min(wanted or service.limits.new_tokens, service.limits.new_tokens)
        prompt = await run_in_threadpool(writer.chat_tokens, messages, room=most)
        check_rows(service, [prompt], n)
        room = room_for(writer, prompt, None, service, "messages")
        if wanted is not None and wanted > service.limits.new_tokens:
            room_for(writer, prompt, wanted, service, "messages")  # raises the error
        top = body.top_logprobs or 0 if body.logprobs else 0
        jobs = [
            WritingRequest(key.name, prompt, search, min(room, wanted or room), body.stops, writer.chat_ends, top)
            for search in body.searches(n)
        ]
        if body.stream:
            return await stream(request, service, body, jobs, (model, writer), len(prompt))
        counts = await write_all(request, service, model, jobs, len(prompt))
        choices = [
            {
                "index": i,
                "message": {"role": "assistant", "content": job.text, "refusal": None},
                "logprobs": {"content": token_logprobs(writer, job.tokens, job.ends)} if body.logprobs else None,
                "finish_reason": job.finish,
            }
            for i, job in enumerate(jobs)
        ]
        first = envelope(request, "chat.completion", "chatcmpl", model)
        return as_json({**first, "choices": choices, "usage": counts}, body.headers())

    return [Route("/v1/chat/completions", chat, methods=["POST"])]


async def stream(
    request: Request,
    service: Service,
    body: ChatBody,
    jobs: Sequence[WritingRequest],
    loaded: tuple[Any, Writer],
    prompt_tokens: int,
) -> Response:
    """Send first the role, then the text of each token, then the reason why the answer ended."""
    model, writer = loaded
    first = envelope(request, "chat.completion.chunk", "chatcmpl", model)
    began = time.monotonic()

    def chunk(i: int, delta: dict[str, str], finish: str | None = None, logprobs: Any = None) -> dict[str, Any]:
        return {**first, "choices": [{"index": i, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]}

    def sender(i: int, job: WritingRequest, send: Callable[[Any], object]) -> Callable[[WrittenToken], None]:
        def send_token(token: WrittenToken) -> None:
            if len(job.tokens) == 1:
                service.metrics.first_token_seconds.observe(time.monotonic() - began)
            if token.text:
                scored = {"content": token_logprobs(writer, [token], job.ends)} if body.logprobs else None
                send(chunk(i, {"content": token.text}, logprobs=scored))

        return send_token

    def send_last(i: int, send: Callable[[Any], object], done: Future[WritingRequest]) -> None:
        if not failed(done):
            send(chunk(i, {}, done.result().finish))

    async def write(send: Callable[[Any], object]) -> dict[str, Any]:
        for i, job in enumerate(jobs):
            send(chunk(i, {"role": "assistant", "content": ""}))
            job.on_token = sender(i, job, send)
            job.done.add_done_callback(partial(send_last, i, send))
        return await write_all(request, service, model, jobs, prompt_tokens)

    def last(counts: dict[str, Any]) -> dict[str, Any] | None:
        wanted = body.stream_options is not None and body.stream_options.include_usage
        return {**first, "choices": [], "usage": counts} if wanted else None

    return await event_stream(write, last, request, body.headers(), end="[DONE]")


def token_logprobs(writer: Writer, tokens: Sequence[WrittenToken], ends: frozenset[int]) -> list[dict[str, Any]]:
    """Return the log-probabilities of tokens, without those that end the answer."""

    def described(token: int, logp: float) -> dict[str, Any]:
        (piece,) = writer.tokenizer.pieces([token])
        return {"token": piece, "logprob": logp, "bytes": list(piece.encode("utf-8", "replace"))}

    return [
        {**described(token.token, token.logp), "top_logprobs": [described(*best) for best in token.top]}
        for token in tokens
        if token.token not in ends
    ]
