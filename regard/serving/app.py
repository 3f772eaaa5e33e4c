"""The web application: the explorer page, its API, error handling and access rules."""

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
RETRY_AFTER = "2"  # seconds, for clients that are turned away because the queue is full


def create_app(
    shelf: ModelShelf,
    *,
    traces: Mapping[str, bytes] | None = None,
    limits: Limits = LIMITS,
    hosts: Collection[str] = LOOPBACK,
    key: str | None = None,
    page: Path = PAGE,
) -> FastAPI:
    """Create the application. `hosts` are its valid host names, `traces` the JSON of traces opened from files.

    With a `key`, every request except for the page itself and /health must send it.
    """
    app = FastAPI(title="regard", version=__version__, openapi_url=None)

    @app.get("/health")
    async def health() -> Response:
        return as_json({"status": "ok", "version": __version__})

    app.include_router(explorer_routes(shelf, traces or {}, limits))
    app.mount("/", StaticFiles(directory=page, html=True), name="page")
    app.add_exception_handler(RegardError, answer_error)
    app.add_exception_handler(HTTPException, answer_http_error)
    app.add_exception_handler(RequestValidationError, answer_invalid_body)
    app.add_middleware(Guard, hosts=hosts, key=key, open_paths={"/health", *page_paths(page)}, max_bytes=limits.bytes)
    return app


def page_paths(page: Path) -> set[str]:
    """Return the URL paths of the page and its files."""
    files = {f"/{path.relative_to(page).as_posix()}" for path in page.rglob("*") if path.is_file()}
    return files | {"/"}


async def answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, BusyError):
        return refusal(503, str(error), **{"Retry-After": RETRY_AFTER})
    return refusal(
        404 if isinstance(error, UnknownError) else 503 if isinstance(error, ModelError) else 400, str(error)
    )


async def answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"unknown path {request.url.path!r}" if error.status_code == 404 else str(error.detail)
    return refusal(error.status_code, message, **(error.headers or {}))


async def answer_invalid_body(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return refusal(400, explain(list(error.errors())))
