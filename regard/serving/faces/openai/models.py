"""`GET /v1/models`: which models there are."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.serving.explorer_api import as_json
from regard.serving.service.errors import RequestError
from regard.serving.service.hosted_models import HostedModel
from regard.serving.service.service import Service


def model_routes(service: Service) -> list[Route]:
    """Return the routes of the list of models, and of one of them."""
    created = int(time.time())

    def described(model: HostedModel) -> dict[str, Any]:
        return {"id": model.name, "object": "model", "created": created, "owned_by": "regard", "task": model.task_face}

    async def models(request: Request) -> Response:
        return as_json({"object": "list", "data": [described(model) for model in service.models]})

    async def model(request: Request) -> Response:
        name = request.path_params["id"]
        if (hosted := service.models.get(name)) is None:
            raise RequestError(404, f"the model {name[:100]!r} does not exist", field="model")
        return as_json(described(hosted))

    return [Route("/v1/models", models, methods=["GET"]), Route("/v1/models/{id}", model, methods=["GET"])]
