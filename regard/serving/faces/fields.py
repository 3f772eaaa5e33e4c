"""The fields of a request: JSON, a form, or the query of its address. LibreTranslate and DeepL accept all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.types import Scope

from regard.serving.service.errors import RequestError

MAX_FIELDS = 200
MAX_HEADER_CHARACTERS = 500
FORM = "application/x-www-form-urlencoded"


async def read_fields(request: Request) -> dict[str, Any]:
    """Return the fields of a request. Fields of the body win over those of the query; a repeated field is a list."""
    return parse_fields(request.scope, await request.body())


def parse_fields(scope: Scope, body: bytes) -> dict[str, Any]:
    """Return the fields of the query and the body of a request."""
    fields = parse_form(scope["query_string"])
    if not body:
        return fields
    kind = content_type(scope)
    if kind == FORM:
        return fields | parse_form(body)
    if kind == "application/json" or kind.endswith("+json") or not kind:
        return fields | parse_json(body)
    raise RequestError(415, f"send JSON or a form ({FORM}), not {kind[:100]!r}")


def parse_json(body: bytes) -> dict[str, Any]:
    """Return a JSON object; RequestError if it is none."""
    try:
        content = json.loads(body)
    except RecursionError:
        raise RequestError(400, "the body is nested too deeply") from None
    except ValueError as error:  # also UnicodeDecodeError
        raise RequestError(400, f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise RequestError(400, "the body is not a JSON object")
    return content


def parse_form(content: bytes) -> dict[str, Any]:
    """Return the fields of a form or a query; browsers send line ends as CRLF, which become LF."""
    try:
        fields = parse_qs(content.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except UnicodeDecodeError:
        raise RequestError(400, "the form is not UTF-8") from None
    except ValueError:
        raise RequestError(400, f"the form has more than {MAX_FIELDS} fields") from None
    texts = {name: [value.replace("\r\n", "\n") for value in values] for name, values in fields.items()}
    return {name: values[0] if len(values) == 1 else values for name, values in texts.items()}


def content_type(scope: Scope) -> str:
    """Return the type of the body in lower case, without parameters."""
    for name, value in scope["headers"]:
        if name == b"content-type":
            text: str = value.decode("latin-1").partition(";")[0].strip().lower()
            return text
    return ""


def body_key(scope: Scope, body: bytes) -> str:
    """Return the field `api_key` of a request, or an empty text."""
    try:
        key = parse_fields(scope, body).get("api_key", "")
    except RequestError:
        return ""
    return key if isinstance(key, str) else ""


def ignored_fields(fields: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return the response header that lists unknown fields, with their untrusted names escaped to ASCII."""
    names = ", ".join(ascii(name)[1:-1] for name in fields if name not in known)
    return {"X-Ignored-Fields": names[:MAX_HEADER_CHARACTERS]} if names else {}
