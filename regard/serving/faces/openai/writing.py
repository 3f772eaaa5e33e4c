"""What completions and chat completions share: find the model, write the texts of a request, count the tokens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from regard.serving.service.errors import RequestError
from regard.serving.service.hosted_models import HostedModel
from regard.serving.service.request_log import RequestRecord
from regard.serving.service.service import Service
from regard.serving.waiting import await_work

if TYPE_CHECKING:
    from regard.api.writer import Writer
    from regard.serving.service.writing import WritingRequest


async def find_model(service: Service, name: str, face: str, does: str) -> tuple[HostedModel, Any]:
    """Return a hosted model and what it loaded; RequestError if there is no such model, or it does something else."""
    model = service.models.get(name)
    if model is None:
        known = ", ".join(service.models.named("writer", "embedder")) or "none"
        raise RequestError(404, f"the model {name[:100]!r} does not exist (known: {known})", field="model")
    if model.task_face != face:
        raise RequestError(400, f"{name} does not {does}, because it is a {model.task_face}", field="model")
    return model, model.face or await run_in_threadpool(model.load)


def room_for(writer: Writer, prompt: Sequence[int], wanted: int | None, service: Service, field: str) -> int:
    """Return how many tokens may be written after a prompt; RequestError if the prompt leaves no room for them."""
    most = service.limits.new_tokens
    room = most if writer.context is None else writer.context - len(prompt)
    if not prompt or room < max(1, wanted or 1):
        message = f"the model sees {writer.context} tokens: {len(prompt)} of the prompt leave room for {max(room, 0)}"
        raise RequestError(400, f"{message}, not for {wanted or 1}", field=field)
    if wanted is not None and wanted > most:
        raise RequestError(400, f"max_tokens is {wanted:,}; the limit is {most:,}", field="max_tokens")
    return min(room, most) if wanted is None else wanted


def check_rows(service: Service, prompts: Sequence[Sequence[int]], each: int) -> None:
    """Raise a RequestError if a request has too many texts or tokens."""
    limits = service.limits
    most = min(limits.rows, limits.queue)
    if each > limits.alternatives or len(prompts) * each > most:
        message = f"{len(prompts)} prompts with {each} texts each: at most {limits.alternatives} each, {most} in all"
        raise RequestError(400, message, field="n")
    if (tokens := sum(map(len, prompts))) > limits.tokens:
        raise RequestError(400, f"the prompts have {tokens:,} tokens; the limit is {limits.tokens:,}", field="prompt")


async def write_all(
    request: Request, service: Service, model: HostedModel, jobs: Sequence[WritingRequest], prompt_tokens: int
) -> dict[str, Any]:
    """Write all texts of a request, and return its token counts as `usage`."""
    record: RequestRecord = request.scope["regard.record"]
    record.texts, record.prompt_tokens = len(jobs), prompt_tokens
    pending = []
    try:
        for job in jobs:
            pending.append(model.writing.submit(job))
        for done in pending:
            await await_work(request, done)
    finally:
        for done in pending:
            done.cancel()  # nothing, if it is done
        record.written_tokens = sum(len(job.tokens) for job in jobs)
    record.queued = max(job.started - job.submitted for job in jobs)
    record.worked = max(job.ended for job in jobs) - min(job.started for job in jobs)
    return usage(prompt_tokens, record.written_tokens)


def usage(prompt_tokens: int, written_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": written_tokens,
        "total_tokens": prompt_tokens + written_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def envelope(request: Request, kind: str, prefix: str, model: HostedModel) -> dict[str, Any]:
    """Return the fields with which a response and each of its chunks begin."""
    return {
        "id": f"{prefix}-{request.scope['regard.id']}",
        "object": kind,
        "created": int(time.time()),
        "model": model.name,
    }
