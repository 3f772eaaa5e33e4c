"""The server: the page, what it asks for, and the rules for all of it. More routes join here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from regard.errors import ModelError, RegardError
from regard.serving.explorer_api import as_json, explorer_routes
from regard.serving.limits import LIMITS, Limits
from regard.serving.model_threads import BusyError, ModelShelf, UnknownError
from regard.serving.request_bodies import explain
from regard.serving.request_guard import LOOPBACK, Guard, refusal
from regard.version import __version__

PAGE = Path(__file__).parents[1] / "look" / "page" / "static"
RETRY = "2"  # seconds, said to whom the queue had no place for


def create_app(
    shelf: ModelShelf,
    *,
    traces: Mapping[str, bytes] | None = None,
    limits: Limits = LIMITS,
    hosts: Collection[str] = LOOPBACK,
    key: str | None = None,
    page: Path = PAGE,
) -> FastAPI:
    """The whole server. `hosts` are its names, `traces` those opened as files, in JSON.

    With a `key` all but the page and /health is for those who bring it.
    """
    app = FastAPI(title="regard", version=__version__, openapi_url=None)

    @app.get("/health")
    async def health() -> Response:
        return as_json({"status": "ok", "version": __version__})

    app.include_router(explorer_routes(shelf, traces or {}, limits))
    app.mount("/", StaticFiles(directory=page, html=True), name="page")
    for kind, answer in ((RegardError, tell_error), (HTTPException, tell_http), (RequestValidationError, tell_body)):
        app.add_exception_handler(kind, answer)
    app.add_middleware(Guard, hosts=hosts, key=key, open_paths={"/health", *page_paths(page)}, most_bytes=limits.bytes)
    return app


def page_paths(page: Path) -> set[str]:
    """The addresses of the page and its files."""
    files = {f"/{path.relative_to(page).as_posix()}" for path in page.rglob("*") if path.is_file()}
    return files | {"/"}


async def tell_error(request: Request, error: Exception) -> Response:
    if isinstance(error, BusyError):
        return refusal(503, str(error), **{"Retry-After": RETRY})
    return refusal(
        404 if isinstance(error, UnknownError) else 503 if isinstance(error, ModelError) else 400, str(error)
    )


async def tell_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"there is no {request.url.path!r} here" if error.status_code == 404 else str(error.detail)
    return refusal(error.status_code, message, **(error.headers or {}))


async def tell_body(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return refusal(400, explain(list(error.errors())))
