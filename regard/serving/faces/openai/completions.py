"""`POST /v1/completions`: continue prompts, or score them (`echo` with `max_tokens` 0)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.serving.explorer_api import as_json
from regard.serving.faces.events import event_stream
from regard.serving.faces.openai.bodies import CompletionBody, read_body
from regard.serving.faces.openai.writing import check_rows, envelope, find_model, room_for, usage, write_all
from regard.serving.service.errors import RequestError
from regard.serving.service.service import Service
from regard.serving.service.translating import check_request
from regard.serving.waiting import await_work

if TYPE_CHECKING:
    from regard.api.writer import Writer
    from regard.serving.service.writing import WritingRequest, WrittenToken


def completion_routes(service: Service) -> list[Route]:
    """Return the route of completions."""

    async def complete(request: Request) -> Response:
        from regard.serving.service.writing import WritingRequest, score_prompt

        body = await read_body(request, CompletionBody)
        model, writer = await find_model(service, body.model, "writer", "write text")
        n = body.n or 1
        each = max(n, body.best_of or n)
        check_body(body, n)
        texts = [prompt for prompt in body.prompts if isinstance(prompt, str)]
        key = request.scope["regard.key"]
        check_request(service.limits, key, texts or [""] * len(body.prompts), field="prompt", long_texts=True)
        prompts = [prompt_tokens(writer, prompt) for prompt in body.prompts]
        check_rows(service, prompts, each)
        count = sum(map(len, prompts))
        first = envelope(request, "text_completion", "cmpl", model)
        wanted = 16 if body.max_tokens is None else body.max_tokens
        echoes = [Echo([], "") for _ in prompts]
        if body.echo:
            for i, prompt in enumerate(prompts):
                check_context(writer, prompt)
                scoring = partial(score_prompt, prompt=prompt, top=body.logprobs or 0)
                echoes[i] = Echo(
                    await await_work(request, model.writing.call(scoring)),
                    writer.tokenizer.decode(without_start(writer, prompt)),
                )
            if not wanted:
                request.scope["regard.record"].texts = len(prompts)
                choices = [choice(i, writer, body, echo, [], "length") for i, echo in enumerate(echoes)]
                return as_json({**first, "choices": choices, "usage": usage(count, 0)}, body.headers())
        jobs = [
            WritingRequest(
                key.name,
                prompt,
                search,
                room_for(writer, prompt, wanted, service, "prompt"),
                body.stops,
                top=body.logprobs or 0,
            )
            for prompt in prompts
            for search in body.searches(each)
        ]
        if body.stream:
            return await stream(request, service, body, jobs, (model, writer), first, count)
        counts = await write_all(request, service, model, jobs, count)
        groups = [jobs[start : start + each] for start in range(0, len(jobs), each)]
        best = [job for group in groups for job in (group if each == n else sorted(group, key=mean_logp)[-n:][::-1])]
        choices = [choice(i, writer, body, echoes[i // n], job.tokens, job.finish) for i, job in enumerate(best)]
        return as_json({**first, "choices": choices, "usage": counts}, body.headers())

    return [Route("/v1/completions", complete, methods=["POST"])]


async def stream(
    request: Request,
    service: Service,
    body: CompletionBody,
    jobs: Sequence[WritingRequest],
    loaded: tuple[Any, Writer],
    first: dict[str, Any],
    count: int,
) -> Response:
    """Send each token of each text when it is written."""
    model, writer = loaded
    began = time.monotonic()

    def sender(i: int, job: WritingRequest, send: Callable[[Any], object]) -> Callable[[WrittenToken], None]:
        def send_token(token: WrittenToken) -> None:
            if len(job.tokens) == 1:
                service.metrics.first_token_seconds.observe(time.monotonic() - began)
            if token.text or body.logprobs is not None:
                logprobs = None if body.logprobs is None else token_logprobs(writer, [token], 0, body.logprobs)
                chunk = {"index": i, "text": token.text, "logprobs": logprobs, "finish_reason": None}
                send({**first, "choices": [chunk]})

        return send_token

    async def write(send: Callable[[Any], object]) -> dict[str, Any]:
        for i, job in enumerate(jobs):
            job.on_token = sender(i, job, send)
            job.done.add_done_callback(partial(send_last, i, send))
        return await write_all(request, service, model, jobs, count)

    def send_last(i: int, send: Callable[[Any], object], done: Future[WritingRequest]) -> None:
        if not failed(done):
            send(
                {
                    **first,
                    "choices": [{"index": i, "text": "", "logprobs": None, "finish_reason": done.result().finish}],
                }
            )

    def last(counts: dict[str, Any]) -> dict[str, Any] | None:
        wanted = body.stream_options is not None and body.stream_options.include_usage
        return {**first, "choices": [], "usage": counts} if wanted else None

    return await event_stream(write, last, request, body.headers(), end="[DONE]")


def failed(done: Any) -> bool:
    """Whether a text was cancelled or could not be written."""
    return done.cancelled() or done.exception() is not None


class Echo:
    """The prompt as the response repeats it: its tokens with their log-probabilities, and its text."""

    def __init__(self, tokens: Sequence[WrittenToken], text: str) -> None:
        self.tokens, self.text = tokens, text


def check_body(body: CompletionBody, n: int) -> None:
    """Raise a RequestError for options that contradict each other."""
    best_of = body.best_of or n
    if best_of < n:
        raise RequestError(400, f"best_of is {best_of}, less than n = {n}", field="best_of")
    if body.stream and (best_of > n or body.echo):
        raise RequestError(400, "best_of and echo cannot be streamed", field="stream")
    if not body.echo and body.max_tokens == 0:
        raise RequestError(400, "max_tokens is 0, which needs echo", field="max_tokens")
    if not body.prompts:
        raise RequestError(400, "prompt is empty", field="prompt")


def check_context(writer: Writer, prompt: Sequence[int]) -> None:
    if writer.context is not None and len(prompt) > writer.context:
        raise RequestError(
            400, f"the prompt has {len(prompt)} tokens, but the model sees {writer.context}", field="prompt"
        )


def prompt_tokens(writer: Writer, prompt: str | Sequence[int]) -> list[int]:
    """Return the tokens that the model reads for a prompt."""
    if isinstance(prompt, str):
        return writer.begin(prompt)
    if not prompt or min(prompt) < 0 or max(prompt) >= writer.tokenizer.size:
        raise RequestError(400, f"prompt must contain tokens from 0 to {writer.tokenizer.size - 1}", field="prompt")
    return list(prompt)


def without_start(writer: Writer, prompt: Sequence[int]) -> list[int]:
    """Return a prompt without what precedes a document."""
    before = writer.before
    return list(prompt[len(before) :] if list(prompt[: len(before)]) == before else prompt)


def mean_logp(job: WritingRequest) -> float:
    return sum(token.logp for token in job.tokens) / len(job.tokens)


def choice(
    i: int, writer: Writer, body: CompletionBody, echo: Echo, tokens: Sequence[WrittenToken], finish: str
) -> dict[str, Any]:
    """Return a choice of the response: the text, with the prompt if it is echoed."""
    text = echo.text + "".join(token.text for token in tokens)
    logprobs = None
    if body.logprobs is not None:
        logprobs = token_logprobs(writer, [*echo.tokens, *tokens], len(echo.tokens), body.logprobs)
    return {"index": i, "text": text, "logprobs": logprobs, "finish_reason": finish}


def token_logprobs(writer: Writer, tokens: Sequence[WrittenToken], echoed: int, top: int) -> dict[str, Any]:
    """Return the log-probabilities of tokens; the first `echoed` ones are of the prompt, the very first has none."""
    ends = writer.special.ends
    shown = [token for i, token in enumerate(tokens) if i < echoed or token.token not in ends]
    offsets, length = [], 0
    for token in shown:
        offsets.append(length)
        length += len(token.text)
    unknown = {0} if echoed else set()
    pieces = writer.tokenizer.pieces
    return {
        "tokens": pieces([token.token for token in shown]),
        "token_logprobs": [None if i in unknown else token.logp for i, token in enumerate(shown)],
        "top_logprobs": [
            None if i in unknown or not top else {pieces([best])[0]: logp for best, logp in token.top}
            for i, token in enumerate(shown)
        ],
        "text_offset": offsets,
    }
