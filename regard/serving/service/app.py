"""The web application of `regard serve`: its routes, its middleware, and the responses to errors."""

from __future__ import annotations

from collections.abc import Collection

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.errors import ModelError, RegardError
from regard.serving.faces.deepl import deepl_routes
from regard.serving.faces.fields import body_key
from regard.serving.faces.libretranslate import libretranslate_routes
from regard.serving.faces.openai.chat import chat_routes
from regard.serving.faces.openai.completions import completion_routes
from regard.serving.faces.openai.embeddings import embedding_routes
from regard.serving.faces.openai.models import model_routes
from regard.serving.faces.operations import OPEN_PATHS, operation_routes
from regard.serving.request_guard import LOOPBACK, Guard
from regard.serving.service.batcher import QueueFullError
from regard.serving.service.errors import RequestError, refuse
from regard.serving.service.request_log import LogFormat, RequestLog
from regard.serving.service.service import Service
from regard.serving.waiting import CLIENT_CLOSED, DisconnectedError

BODY_KEY_PATHS = ("/translate", "/languages", "/detect", "/frontend/settings", "/translate_file", "/suggest")


def create_service(
    service: Service, *, hosts: Collection[str] = LOOPBACK, origins: Collection[str] = (), log: LogFormat = "off"
) -> RequestLog:
    """Create the application. `hosts` are its valid host names; pages of `origins` may use it, too (CORS)."""
    routes = all_routes(service)
    app = Starlette(routes=routes)
    for kind in (RegardError, HTTPException, DisconnectedError):
        app.add_exception_handler(kind, AnswerError(service))
    guard = Guard(
        app,
        hosts=hosts,
        keys=service.keys,
        open_paths=OPEN_PATHS,
        max_bytes=service.limits.bytes,
        larger={},
        origins=origins,
        body_keys=dict.fromkeys(BODY_KEY_PATHS, body_key),
        refuse=refuse,
    )
    return RequestLog(
        guard,
        metrics=service.metrics,
        seconds=service.limits.seconds,
        routes=[route.path for route in routes],
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

    def __init__(self, service: Service) -> None:
        self.service = service

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
            message = f"unknown path {path!r}" if error.status_code == 404 else str(error.detail)
            return refuse(path, error.status_code, message, **dict(error.headers or {}))
        return refuse(path, 503 if isinstance(error, ModelError) else 400, str(error))
