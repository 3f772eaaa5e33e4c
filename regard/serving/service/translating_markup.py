"""Translate the texts of HTML and XML documents; their tags keep their places."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from regard.serving.limits import ServiceLimits
from regard.serving.markup.placing import translated_segment
from regard.serving.markup.segments import MarkupRules, Segment, read_markup
from regard.serving.service.hosted_models import HostedModel, TranslationOptions
from regard.serving.service.request_log import RequestRecord
from regard.serving.service.translating import pivot_of, translate_once


async def translate_markup(
    request: Request, path: Sequence[HostedModel], documents: Sequence[str], rules: MarkupRules, limits: ServiceLimits
) -> tuple[list[str], str | None]:
    """Translate documents along a path of models; return them, and the language between two models."""
    read = await run_in_threadpool(lambda: [read_markup(document, rules) for document in documents])
    segments = [part for parts in read for part in parts if isinstance(part, Segment)]
    for model in path:
        segments = await translate_segments(request, model, segments, limits)
    translated = iter(segments)
    record: RequestRecord = request.scope["regard.record"]
    record.texts = len(documents)
    joined = ["".join(part if isinstance(part, str) else next(translated).markup() for part in parts) for parts in read]
    return joined, pivot_of(path)


async def translate_segments(
    request: Request, model: HostedModel, segments: Sequence[Segment], limits: ServiceLimits
) -> list[Segment]:
    """Translate segments with one model; only those with tags need an alignment."""
    results: dict[int, Segment] = {}
    for tagged in (False, True):
        indices = [i for i, segment in enumerate(segments) if bool(segment.elements) == tagged]
        if not indices:
            continue
        texts = [segments[i].text for i in indices]
        translations = await translate_once(request, model, texts, limits, TranslationOptions(attention=tagged))
        chosen = [segments[i] for i in indices]
        placed = await run_in_threadpool(lambda a, b: [*map(translated_segment, a, b)], chosen, translations)
        results |= zip(indices, placed, strict=True)
    return [results[i] for i in range(len(segments))]
