"""Routes for those who run the server: is it alive, is it ready, how much does it do."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.serving.explorer_api import as_json
from regard.serving.keys import ANONYMOUS
from regard.serving.service.metrics import CONTENT_TYPE
from regard.serving.service.service import Service
from regard.version import __version__

OPEN_PATHS = ("/health", "/ready")  # for balancers, which have no key


def operation_routes(service: Service) -> list[Route]:
    """Return /health, /ready and /metrics."""

    async def health(request: Request) -> Response:
        return as_json({"status": "ok", "version": __version__})

    async def ready(request: Request) -> Response:
        reason = service.why_not_ready()
        content: dict[str, object] = {"status": reason or "ready"}
        if service.keys is None or request.scope["regard.key"] is not ANONYMOUS:
            content["models"] = {
                model.name: {"state": model.state, "queue": len(model.batcher), "error": model.error}
                for model in service.models
            }
        response = as_json(content)
        response.status_code = 200 if reason is None else 503
        return response

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    return [Route(f"/{endpoint.__name__}", endpoint, methods=["GET"]) for endpoint in (health, ready, metrics)]
