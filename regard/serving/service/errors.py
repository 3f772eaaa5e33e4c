"""Error responses, in the form that the clients of each API expect."""

from __future__ import annotations

import json

from starlette.responses import Response

from regard.errors import RegardError

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class RequestError(RegardError):
    """A request that cannot be answered; `field` is the part of it that is wrong."""

    def __init__(
        self, status: int, message: str, *, field: str | None = None, retry_seconds: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.field = status, field
        self.headers = {} if retry_seconds is None else {"Retry-After": str(retry_seconds)}


def error_content(path: str, status: int, message: str, field: str | None = None) -> dict[str, object]:
    """Return the body of an error: as OpenAI's under /v1, as DeepL's under /v2, else as LibreTranslate's."""
    if path.startswith("/v1/"):
        kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        return {"error": {"message": message, "type": kind, "param": field, "code": None}}
    if path.startswith("/v2/"):
        return {"message": message}
    return {"error": message}


def refuse(path: str, status: int, message: str, *, field: str | None = None, **headers: str) -> Response:
    """Return an error response. DeepL's clients know a wrong key by 403."""
    status = 403 if status == 401 and path.startswith("/v2/") else status
    content = json.dumps(error_content(path, status, message, field))
    return Response(content, status, headers, media_type="application/json")
