"""The web application: the explorer page, its API, error handling and access rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from regard.errors import ModelError, RegardError
from regard.serving.attribution_api import attribution_routes
from regard.serving.ballot import Ballot
from regard.serving.explorer_api import as_json, explorer_routes
from regard.serving.input_api import INPUT_PATH, input_routes
from regard.serving.keys import KeyRing
from regard.serving.limits import LIMITS, Limits
from regard.serving.model_threads import BusyError, ModelShelf, UnknownError
from regard.serving.request_bodies import explain
from regard.serving.request_guard import LOOPBACK, Guard, refusal
from regard.serving.sequence_api import sequence_routes
from regard.serving.vote_api import OPEN_PATHS, OPEN_POSTS, vote_routes
from regard.version import __version__

PAGE = Path(__file__).parents[1] / "look" / "page" / "static"
RETRY_AFTER = "2"  # seconds, for clients that are turned away because the queue is full


def create_app(
    shelf: ModelShelf,
    *,
    traces: Mapping[str, bytes] | None = None,
    files: Mapping[str, Path] | None = None,
    limits: Limits = LIMITS,
    hosts: Collection[str] = LOOPBACK,
    key: str | None = None,
    page: Path = PAGE,
    ballot: Ballot | None = None,
) -> FastAPI:
    """Create the application of `regard explore`; `hosts` are its valid host names, the rest as in `explorer_app`.

    With a `key`, every request except for the page itself, the voters' page and /health must send it.
    """
    app = explorer_app(shelf, traces=traces, files=files, limits=limits, page=page, ballot=ballot)
    app.add_middleware(
        Guard,
        hosts=hosts,
        keys=None if key is None else KeyRing.single(key),
        open_paths={"/health", *page_paths(page), *(OPEN_PATHS if ballot else ())},
        open_posts=OPEN_POSTS if ballot else (),
        max_bytes=limits.bytes,
        larger={INPUT_PATH: limits.file_bytes},
    )
    return app


def explorer_app(
    shelf: ModelShelf,
    *,
    traces: Mapping[str, bytes] | None = None,
    files: Mapping[str, Path] | None = None,
    limits: Limits = LIMITS,
    page: Path = PAGE,
    ballot: Ballot | None = None,
) -> FastAPI:
    """Create the explorer without access rules. `traces` is the JSON of traces opened from files.

    `files` are images, series and recordings that the page offers as examples. With a `ballot`, a class can vote.
    """
    app = FastAPI(title="regard", version=__version__, openapi_url=None)

    @app.get("/health")
    async def health() -> Response:
        return as_json({"status": "ok", "version": __version__})

    apis = [
        explorer_routes(shelf, traces or {}, limits, votes=ballot is not None),
        sequence_routes(shelf, limits),
        attribution_routes(shelf, limits),
        input_routes(shelf, files or {}),
        *([vote_routes(ballot)] if ballot else []),
    ]
    for api in apis:
        app.include_router(api)
    app.mount("/", StaticFiles(directory=page, html=True), name="page")
    app.add_exception_handler(RegardError, answer_error)
    routes = [route for api in apis for route in api.routes if isinstance(route, Route)]
    app.add_exception_handler(HTTPException, HttpErrors(routes, page))
    app.add_exception_handler(RequestValidationError, answer_invalid_body)
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


class HttpErrors:
    """Answers the errors of the routes. The page is mounted at the root, so it gets all that no API route takes."""

    def __init__(self, api: Sequence[Route], page: Path) -> None:
        self.api, self.read_only = api, {"/health", *page_paths(page)}

    async def __call__(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code not in (404, 405):
            return refusal(error.status_code, str(error.detail), **(error.headers or {}))
        path, method = request.url.path, request.method
        methods = {name for route in self.api if route.path_regex.match(path) for name in route.methods or ()}
        methods |= {"GET", "HEAD"} if path in self.read_only else set()
        if not methods or method in methods:
            return refusal(404, f"unknown path {path!r}")
        allowed = ", ".join(sorted(methods))
        return refusal(405, f"{path} cannot be used with {method}, only with {allowed}", Allow=allowed)


async def answer_invalid_body(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    content_type = request.headers.get("content-type", "")
    in_body = any(wrong["loc"][0] == "body" for wrong in error.errors())
    if in_body and request.method == "POST" and "json" not in content_type.lower():
        got = f"got {content_type[:100]!r}" if content_type else "there is none"
        return refusal(415, f"send JSON with the header `Content-Type: application/json`; {got}")
    return refusal(400, explain(list(error.errors())))
