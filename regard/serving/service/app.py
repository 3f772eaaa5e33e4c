"""The web application of `regard serve`: its routes, its middleware, and the responses to errors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from regard.errors import ModelError, RegardError
from regard.serving.app import PAGE as EXPLORER_PAGE, explorer_app, page_paths
from regard.serving.faces.deepl import deepl_routes
from regard.serving.faces.fields import body_key
from regard.serving.faces.libretranslate import libretranslate_routes
from regard.serving.faces.openai.chat import chat_routes
from regard.serving.faces.openai.completions import completion_routes
from regard.serving.faces.openai.embeddings import embedding_routes
from regard.serving.faces.openai.models import model_routes
from regard.serving.faces.operations import OPEN_PATHS, operation_routes
from regard.serving.input_api import INPUT_PATH
from regard.serving.limits import LIMITS
from regard.serving.model_threads import ModelShelf
from regard.serving.request_guard import LOOPBACK, Guard
from regard.serving.service.batcher import QueueFullError
from regard.serving.service.errors import RequestError, refuse
from regard.serving.service.request_log import LogFormat, RequestLog
from regard.serving.service.service import Service
from regard.serving.waiting import CLIENT_CLOSED, DisconnectedError

TRANSLATE_PAGE = Path(__file__).parents[1] / "page"
EXPLORE = "/explore"
BODY_KEY_PATHS = ("/translate", "/languages", "/detect", "/frontend/settings", "/translate_file", "/suggest")


def create_service(
    service: Service,
    *,
    hosts: Collection[str] = LOOPBACK,
    origins: Collection[str] = (),
    log: LogFormat = "off",
    explorer: ModelShelf | None = None,
) -> RequestLog:
    """Create the application. `hosts` are its valid host names; pages of `origins` may use it, too (CORS).

    The models of the `explorer` are copies of its own, so that a trace does not delay a translation.
    """
    routes = all_routes(service)
    pages: list[BaseRoute] = [Mount("/", StaticFiles(directory=TRANSLATE_PAGE, html=True))]
    open_paths = {*OPEN_PATHS, *page_paths(TRANSLATE_PAGE)}
    if explorer is not None:
        pages.insert(0, Mount(EXPLORE, explorer_app(explorer)))
        open_paths |= {EXPLORE, *(EXPLORE + path for path in page_paths(EXPLORER_PAGE))}
    app = Starlette(routes=[*routes, *pages])
    for kind in (RegardError, HTTPException, DisconnectedError):
        app.add_exception_handler(kind, AnswerError(service, routes, page_paths(TRANSLATE_PAGE)))
    guard = Guard(
        app,
        hosts=hosts,
        keys=service.keys,
        open_paths=open_paths,
        max_bytes=service.limits.bytes,
        larger={EXPLORE + INPUT_PATH: LIMITS.file_bytes},
        origins=origins,
        body_keys=dict.fromkeys(BODY_KEY_PATHS, body_key),
        refuse=refuse,
    )
    return RequestLog(
        guard,
        metrics=service.metrics,
        seconds=service.limits.seconds,
        routes=[*open_paths, *(route.path for route in routes), EXPLORE],
        stopping=lambda: service.stopping,
        log=log,
    )


def all_routes(service: Service) -> list[Route]:
    """Return the routes of all APIs."""
    openai = [model_routes, completion_routes, chat_routes, embedding_routes]
    faces = [operation_routes, libretranslate_routes, deepl_routes, *openai]
    return [route for face in faces for route in face(service)]


class AnswerError:
    """Answers the errors of the routes, and counts the refused requests."""

    def __init__(self, service: Service, routes: Sequence[Route], files: Collection[str]) -> None:
        self.service, self.routes, self.files = service, routes, files

    async def __call__(self, request: Request, error: Exception) -> Response:
        path = request.url.path
        rejected = self.service.metrics.rejected
        if isinstance(error, DisconnectedError):
            return Response(status_code=CLIENT_CLOSED)
        if isinstance(error, QueueFullError):
            rejected.labels("queue").inc()
            return refuse(path, 503, str(error), **{"Retry-After": str(error.retry_seconds)})
        if isinstance(error, RequestError):
            if error.status == 429:
                rejected.labels("key").inc()
            return refuse(path, error.status, str(error), field=error.field, **error.headers)
        if isinstance(error, HTTPException):
            if error.status_code in (404, 405):
                return self._answer_unknown(path, request.method)
            return refuse(path, error.status_code, str(error.detail), **dict(error.headers or {}))
        return refuse(path, 503 if isinstance(error, ModelError) else 400, str(error))

    def _answer_unknown(self, path: str, method: str) -> Response:
        """Tell an unknown path from a wrong method; the page, which is mounted at /, gets what no route takes."""
        methods = {name for route in self.routes if route.path_regex.match(path) for name in route.methods or ()}
        methods |= {"GET", "HEAD"} if path in self.files else set()
        if not methods or method in methods:
            return refuse(path, 404, f"unknown path {path[:200]!r}")
        allowed = ", ".join(sorted(methods))
        return refuse(path, 405, f"{path} cannot be used with {method}, only with {allowed}", Allow=allowed)
