"""DeepL's API (https://developers.deepl.com), which translation tools speak, so that its clients work unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.serving.explorer_api import as_json
from regard.serving.faces.fields import ignored_fields, read_fields
from regard.serving.faces.libretranslate import detect_source
from regard.serving.markup.segments import HTML, INLINE, XML, MarkupRules, plain_text
from regard.serving.service.errors import RequestError
from regard.serving.service.languages import language_name
from regard.serving.service.service import Service
from regard.serving.service.translating import check_request, find_path, translate
from regard.serving.service.translating_markup import translate_markup

NO_LIMIT = 10**12  # what DeepL says of accounts without a limit
TAG_FIELDS = ("tag_handling", "ignore_tags", "splitting_tags", "non_splitting_tags")
FIELDS = ("text", "source_lang", "target_lang", "show_billed_characters", "auth_key", *TAG_FIELDS)
WITHOUT_EFFECT = ("split_sentences", "preserve_formatting", "model_type", "context", "outline_detection")
# Known fields that would change the translation, with the values that ask for nothing.
UNSUPPORTED: dict[str, Sequence[Any]] = {
    "formality": ("default", "prefer_more", "prefer_less"),
    "glossary_id": ("",),
    "style_id": ("",),
    "custom_instructions": ([],),
}


def deepl_routes(service: Service) -> list[Route]:
    """Return the routes of DeepL's API."""

    async def translate_texts(request: Request) -> Response:
        fields = await read_fields(request)
        texts = fields.get("text", [])
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise RequestError(400, "text must be a list of texts", field="text")
        for name, harmless in UNSUPPORTED.items():
            if fields.get(name) is not None and fields[name] not in harmless:
                raise RequestError(400, f"{name} is not supported", field=name)
        check_request(service.limits, request.scope["regard.key"], texts, field="text")
        rules = markup_rules(fields)
        plain = texts if rules is None else [plain_text(text, rules) for text in texts]
        source = language(fields, "source_lang") or (await detect_source(service, plain))[0]
        if (target := language(fields, "target_lang")) is None:
            raise RequestError(400, "target_lang is missing", field="target_lang")
        path = find_path(service.models, source, target)
        if rules is None:
            translated = await translate(request, path, texts, limits=service.limits)
            results = [result.text for result in translated.texts]
        else:
            results, _ = await translate_markup(request, path, texts, rules, service.limits)
        service.characters[request.scope["regard.key"].name] += sum(map(len, texts))
        translations = []
        for text, result in zip(texts, results, strict=True):
            entry: dict[str, Any] = {"detected_source_language": source.upper(), "text": result}
            if fields.get("show_billed_characters") in (True, "true", "1"):
                entry["billed_characters"] = len(text)
            translations.append(entry)
        headers = ignored_fields(fields, (*FIELDS, *WITHOUT_EFFECT, *UNSUPPORTED))
        return as_json({"translations": translations}, headers)

    async def languages(request: Request) -> Response:
        side = int((await read_fields(request)).get("type") == "target")
        codes = dict.fromkeys(pair[side] for pair in service.models.paths)
        entries: list[dict[str, Any]] = [{"language": code.upper(), "name": language_name(code)} for code in codes]
        if side:
            entries = [{**entry, "supports_formality": False} for entry in entries]
        return as_json(entries)

    async def usage(request: Request) -> Response:
        count = service.characters[request.scope["regard.key"].name]
        return as_json({"character_count": count, "character_limit": NO_LIMIT})

    return [
        Route("/v2/translate", translate_texts, methods=["POST"]),
        Route("/v2/languages", languages, methods=["GET", "POST"]),
        Route("/v2/usage", usage, methods=["GET", "POST"]),
    ]


def markup_rules(fields: dict[str, Any]) -> MarkupRules | None:
    """Return how the tags of the texts are handled; None: they have none."""
    kind = fields.get("tag_handling") or None
    if kind not in (None, "html", "xml"):
        raise RequestError(400, "tag_handling must be html or xml", field="tag_handling")
    ignored, splitting, inline = (tag_names(fields, name) for name in TAG_FIELDS[1:])
    if kind is None:
        return None
    if kind == "xml":
        return replace(XML, untranslated=ignored, splitting=splitting)
    return replace(HTML, untranslated=HTML.untranslated | ignored, splitting=splitting, inline=INLINE | inline)


def tag_names(fields: dict[str, Any], name: str) -> frozenset[str]:
    """Return a field with names of tags: a list, or a text with commas."""
    value = fields.get(name) or []
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise RequestError(400, f"{name} must be a list of names", field=name)
    return frozenset(each.strip().lower() for each in names)


def language(fields: dict[str, Any], name: str) -> str | None:
    """Return a language code of ours: DeepL's are capitals, and may have a region, which is dropped."""
    code = fields.get(name)
    if code is None or code == "":
        return None
    if not isinstance(code, str):
        raise RequestError(400, f"{name} must be a text", field=name)
    return code[:20].lower().partition("-")[0]
