"""The API of LibreTranslate (https://docs.libretranslate.com), so that its clients work unchanged.

Our additions: `attention` returns the alignment of each translation, `stream` sends the growing translation of a long
text as server-sent events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.api.results import Translation
from regard.serving.explorer_api import as_json
from regard.serving.faces.events import event_stream
from regard.serving.faces.fields import ignored_fields, read_fields
from regard.serving.markup.segments import HTML, plain_text
from regard.serving.service.detection import detect_language, detection
from regard.serving.service.errors import RequestError
from regard.serving.service.languages import language_name
from regard.serving.service.service import Service
from regard.serving.service.translating import check_request, find_path, translate
from regard.serving.service.translating_markup import translate_markup

FIELDS = ("q", "source", "target", "format", "alternatives", "api_key", "attention", "scores", "stream")
TRUE = (True, "true", "1", "True")


def libretranslate_routes(service: Service) -> list[Route]:
    """Return the routes of LibreTranslate's API."""

    async def translate_texts(request: Request) -> Response:
        fields = await read_fields(request)
        texts, is_list = read_texts(fields)
        alternatives = read_count(fields, service.limits.alternatives)
        key = request.scope["regard.key"]
        check_request(service.limits, key, texts, each=1 + alternatives)
        source, confidence = await read_source(service, fields, texts)
        path = find_path(service.models, source, read_code(fields, "target"))
        headers = ignored_fields(fields, FIELDS)
        attention = fields.get("attention") in TRUE
        if is_html(fields):
            translated_html, pivot = await translate_markup(request, path, texts, HTML, service.limits)
            content = {"translatedText": translated_html if is_list else translated_html[0]}
            return respond(content, headers, detected(source, confidence, texts if is_list else None), pivot)
        if fields.get("stream") in TRUE:
            if is_list or alternatives or attention:
                raise RequestError(400, "stream is for one text, without alternatives and attention", field="stream")
            return await event_stream(
                lambda send: translate(
                    request, path, texts, limits=service.limits, on_text=lambda text: send({"translatedText": text})
                ),
                lambda translated: {"translatedText": translated.texts[0].text, "done": True},
                request,
                headers,
            )
        translated = await translate(
            request, path, texts, limits=service.limits, count=1 + alternatives, attention=attention
        )
        answers = [answer(result, fields, alternatives) for result in translated.texts]
        content = {name: [each[name] for each in answers] for name in answers[0]} if is_list else answers[0]
        return respond(content, headers, detected(source, confidence, texts if is_list else None), translated.pivot)

    async def languages(request: Request) -> Response:
        models = service.models
        codes = dict.fromkeys(code for pair in models.paths for code in pair)
        return as_json(
            [
                {"code": code, "name": language_name(code), "targets": sorted({code, *models.targets(code)})}
                for code in codes
                if models.targets(code)
            ]
        )

    async def detect(request: Request) -> Response:
        fields = await read_fields(request)
        texts, _ = read_texts(fields)
        check_request(service.limits, request.scope["regard.key"], texts)
        return as_json(await run_in_threadpool(detection, " ".join(texts)), ignored_fields(fields, FIELDS))

    async def settings(request: Request) -> Response:
        source, target = next(iter(service.models.paths), ("", ""))
        sides = {"source": source, "target": target}
        return as_json(
            {
                "charLimit": service.limits.characters,
                "frontendTimeout": 500,
                "apiKeys": service.keys is not None,
                "keyRequired": service.keys is not None,
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": {side: {"code": code, "name": language_name(code)} for side, code in sides.items()},
            }
        )

    async def not_implemented(request: Request) -> Response:
        reason = "translate the text of the file with /translate" if "file" in request.url.path else "nothing is stored"
        raise RequestError(501, f"{request.url.path} is not available: {reason}")

    return [
        Route("/translate", translate_texts, methods=["POST"]),
        Route("/languages", languages, methods=["GET"]),
        Route("/detect", detect, methods=["POST"]),
        Route("/frontend/settings", settings, methods=["GET"]),
        Route("/translate_file", not_implemented, methods=["POST"]),
        Route("/suggest", not_implemented, methods=["POST"]),
    ]


def read_texts(fields: dict[str, Any]) -> tuple[list[str], bool]:
    """Return the texts of `q`, and whether it is a list."""
    q: Any = fields.get("q")
    texts: list[Any] = q if isinstance(q, list) else [q]
    if not q or not any(texts):
        raise RequestError(400, "Invalid request: missing q parameter", field="q")
    if not all(isinstance(text, str) for text in texts):
        raise RequestError(400, "Invalid request: q must be a text or a list of texts", field="q")
    if any("\ud800" <= letter <= "\udfff" for text in texts if not text.isascii() for letter in text):
        raise RequestError(
            400, "Invalid request: q contains an unpaired surrogate, which is not a character", field="q"
        )
    return texts, isinstance(q, list)


def read_code(fields: dict[str, Any], name: str) -> str:
    """Return a language code."""
    code = fields.get(name)
    if not isinstance(code, str) or not code:
        raise RequestError(400, f"Invalid request: missing {name} parameter", field=name)
    return code[:20]


async def read_source(service: Service, fields: dict[str, Any], texts: Sequence[str]) -> tuple[str, float | None]:
    """Return the source language, and the confidence if it was detected."""
    if (source := read_code(fields, "source")) != "auto":
        return source, None
    return await detect_source(service, list(map(plain_text, texts)) if is_html(fields) else texts)


def is_html(fields: dict[str, Any]) -> bool:
    """Whether the texts are HTML; RequestError for other formats, and for what only plain texts can have."""
    name = fields.get("format", "text")
    if name not in ("text", "html"):
        raise RequestError(400, f"format {str(name)[:20]} is not supported: send text or html", field="format")
    if name == "html":
        for field in ("alternatives", "stream", "attention", "scores"):
            if fields.get(field) not in (None, 0, "0", False, "false", ""):
                raise RequestError(400, f"{field} is available for format text, not for html", field=field)
    return name == "html"


def detected(source: str, confidence: float | None, texts: Sequence[str] | None) -> Any:
    """Return what the response says of the detected language, for each of `texts`; None if it was not detected."""
    if confidence is None:
        return None
    entry = {"confidence": confidence, "language": source}
    return entry if texts is None else [entry] * len(texts)


def respond(content: dict[str, Any], headers: dict[str, str], language: Any, pivot: str | None) -> Response:
    """Return the response with a translation."""
    content = content if language is None else {**content, "detectedLanguage": language}
    return as_json(content, headers if pivot is None else {**headers, "X-Pivot": pivot})


async def detect_source(service: Service, texts: Sequence[str]) -> tuple[str, float]:
    """Return the detected language of texts, and the confidence; RequestError if no model translates it."""
    detected, confidence = await run_in_threadpool(detect_language, " ".join(texts))
    if detected not in service.models.sources:
        available = ", ".join(service.models.sources)
        language = f"{language_name(detected)} ({detected})"
        message = f"the text is probably {language}, which no model translates; available: {available}"
        raise RequestError(400, message, field="source")
    return detected, confidence


def read_count(fields: dict[str, Any], most: int) -> int:
    """Return the number of alternatives, which some clients send as text."""
    value = fields.get("alternatives", 0)
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError):  # no number, or infinity
        count = -1
    if isinstance(value, float | bool) or not 0 <= count <= most:
        raise RequestError(400, f"alternatives must be a whole number from 0 to {most}", field="alternatives")
    return count


def answer(result: Translation, fields: dict[str, Any], alternatives: int) -> dict[str, Any]:
    """Return what the response says of one text."""
    content: dict[str, Any] = {"translatedText": result.text}
    if alternatives:
        others = [other.text for other in result.alternatives[1:]]
        content["alternatives"] = [text for text in dict.fromkeys(others) if text != result.text]
    if fields.get("scores") in TRUE:
        content["score"] = result.score
    if fields.get("attention") in TRUE:
        content["alignment"] = result.alignment().to_dict() if result.ids else None
    return content
