"""Server-sent events: a response that grows while it is computed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from regard.errors import RegardError
from regard.serving.service.errors import error_content

KEEP_ALIVE_SECONDS = 15.0  # between two events, while a request waits
END = object()

Result = TypeVar("Result")
Send = Callable[[Any], object]  # may be called in any thread


async def event_stream(
    work: Callable[[Send], Awaitable[Result]],
    last: Callable[[Result], Any],
    request: Request,
    headers: Mapping[str, str] | None = None,
    *,
    end: str = "",
) -> Response:
    """Return a response whose events are what `work` sends, then `last` of its result, then the text `end`.

    An error before the first event is raised, so that the response has its status; a later one is an event.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.ensure_future(work(lambda content: loop.call_soon_threadsafe(queue.put_nowait, content)))
    task.add_done_callback(lambda _: queue.put_nowait(END))

    async def next_content() -> Any:
        try:
            return await asyncio.wait_for(queue.get(), KEEP_ALIVE_SECONDS)
        except TimeoutError:
            return None

    async def events(content: Any) -> AsyncIterator[bytes]:
        try:
            while content is not END:
                yield b": keep-alive\n\n" if content is None else event(content)
                content = await next_content()
            if (final := last(await task)) is not None:
                yield event(final)
            if end:
                yield f"data: {end}\n\n".encode()
        except RegardError as error:
            yield event(error_content("/v1/" if end else "", 500, str(error)))
        finally:
            task.cancel()

    try:
        first = await next_content()
        if first is END and task.exception() is not None:
            task.result()
    except BaseException:
        task.cancel()
        raise
    return StreamingResponse(events(first), headers=dict(headers or {}), media_type="text/event-stream")


def event(content: Any) -> bytes:
    return f"data: {json.dumps(content)}\n\n".encode()
