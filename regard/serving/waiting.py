"""Wait for the work of another thread, as long as the client waits."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TypeVar

from fastapi import Request

CLIENT_CLOSED = 499  # the status in logs and metrics; the client does not see it

Result = TypeVar("Result")


class DisconnectedError(Exception):
    """The client has disconnected."""


async def await_work(request: Request, work: Future[Result]) -> Result:
    """Return the result of the work. If the client disconnects or its time is over, cancel the work."""
    done = asyncio.wrap_future(work)
    disconnected = asyncio.ensure_future(until_disconnected(request))
    try:
        await asyncio.wait((done, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            raise DisconnectedError
        return done.result()
    finally:
        work.cancel()  # nothing, if it is done
        disconnected.cancel()


async def until_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass  # the rest of the request body
