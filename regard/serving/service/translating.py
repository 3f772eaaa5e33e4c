"""Translate the texts of a request: split long ones into parts, batch the parts, join the translations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from regard.serving.keys import Key
from regard.serving.limits import ServiceLimits
from regard.serving.service.batcher import MAX_RETRY_SECONDS, BatchedRequest
from regard.serving.service.errors import RequestError
from regard.serving.service.hosted_models import HostedModel, HostedModels, TranslationOptions
from regard.serving.service.request_log import RequestRecord
from regard.serving.waiting import await_work

if TYPE_CHECKING:
    from regard.api.results import Translation
    from regard.api.translation.split_long_text import TextPart

LARGE_REQUEST = 2_000  # characters: longer requests are tokenized in another thread, so that the server answers others


@dataclass
class Translated:
    """The translations of a request's texts, each with its alternatives; `pivot` is the language between."""

    texts: list[Translation]
    pivot: str | None


def check_request(
    limits: ServiceLimits, key: Key, texts: Sequence[str], *, each: int = 1, field: str = "q", long_texts: bool = False
) -> None:
    """Raise a RequestError if a request exceeds limits of the server or of its key; `each` is the rows of a text.

    `long_texts` allows texts as long as the whole request.
    """
    if len(texts) > limits.texts:
        message = f"the request has {len(texts)} texts; the limit is {limits.texts}: send several requests"
        raise RequestError(400, message, field=field)
    longest = 0 if long_texts else max(map(len, texts), default=0)
    if longest > limits.characters:
        message = f"a text has {longest:,} characters; the limit is {limits.characters:,}: split it"
        raise RequestError(400, message, field=field)
    if (characters := sum(map(len, texts))) > limits.all_characters:
        message = (
            f"the texts have {characters:,} characters; the limit is {limits.all_characters:,}: send several requests"
        )
        raise RequestError(400, message, field=field)
    if len(texts) * each > limits.rows:
        message = f"{len(texts)} texts with {each} results each are more than {limits.rows}: ask for less"
        raise RequestError(400, message, field=field)
    if key.allowance is not None and (seconds := key.allowance.seconds_until(len(texts))):
        message = f"this key may send {key.allowance.per_minute} texts per minute: try again later"
        raise RequestError(429, message, retry_seconds=max(1, round(min(MAX_RETRY_SECONDS, seconds))))


def find_path(models: HostedModels, source: str, target: str) -> list[HostedModel]:
    """Return the one or two models that translate between two languages; RequestError if there are none."""
    if source not in models.sources:
        raise RequestError(
            400, f"{source} is not supported as source; available: {', '.join(models.sources)}", field="source"
        )
    if (path := models.paths.get((source, target))) is None:
        available = ", ".join(models.targets(source))
        raise RequestError(
            400, f"{target} is not supported as target of {source}; available: {available}", field="target"
        )
    return path


async def translate(
    request: Request,
    path: Sequence[HostedModel],
    texts: Sequence[str],
    *,
    limits: ServiceLimits,
    count: int = 1,
    attention: bool = False,
    on_text: Callable[[str], object] | None = None,
) -> Translated:
    """Translate texts along a path of models; through two models, the first one's best translations.

    `on_text` is called with the growing translation of the first text, in the thread of the batcher.
    """
    if attention and len(path) > 1:
        raise RequestError(
            400, "attention is not available for a translation through another language", field="attention"
        )
    for model in path[:-1]:
        first = await translate_once(request, model, texts, limits, TranslationOptions())
        texts = [translation.text for translation in first]
    results = await translate_once(request, path[-1], texts, limits, TranslationOptions(count, attention), on_text)
    return Translated(results, pivot_of(path))


def pivot_of(path: Sequence[HostedModel]) -> str | None:
    """Return the language between two models."""
    languages = path[0].languages
    return languages[1] if languages and len(path) > 1 else None


async def translate_once(
    request: Request,
    model: HostedModel,
    texts: Sequence[str],
    limits: ServiceLimits,
    options: TranslationOptions,
    on_text: Callable[[str], object] | None = None,
) -> list[Translation]:
    """Translate texts with one model."""
    record: RequestRecord = request.scope["regard.record"]
    large = model.face is None or sum(map(len, texts)) > LARGE_REQUEST
    split, tokens = await run_in_threadpool(split_texts, model, texts) if large else split_texts(model, texts)
    if tokens > limits.tokens:
        raise RequestError(
            400, f"the texts have {tokens:,} tokens; the limit is {limits.tokens:,}: send fewer", field="q"
        )
    client: Key = request.scope["regard.key"]
    parts = [part.text for text in split for part in text]
    grow = None if on_text is None else GrowingText(split[0], on_text)
    work = BatchedRequest(client.name, parts, options, grow)
    translated: list[Any] = await await_work(request, model.batches.submit(work))
    results = iter(translated)
    joined = [join(text, parts, [next(results) for _ in parts]) for text, parts in zip(texts, split, strict=True)]
    record.texts = len(texts)
    record.prompt_tokens += tokens
    record.written_tokens += sum(len(translation.ids) for translation in joined)
    record.queued += work.started - work.submitted
    record.worked += work.ended - work.started
    return joined


def split_texts(model: HostedModel, texts: Sequence[str]) -> tuple[list[list[TextPart]], int]:
    """Return the parts of each text, and the number of tokens of all of them."""
    face = model.load()
    split = [face.split(text) for text in texts]
    return split, sum(len(face.tokenizer.encode(part.text)) for parts in split for part in parts)


def join(text: str, parts: Sequence[TextPart], translations: list[Translation]) -> Translation:
    """Join the translations of a text's parts, as `Translator.translate` does."""
    from regard.api.translation.split_long_text import join_translations

    return join_translations(text, parts, translations) if len(parts) > 1 else translations[0]


class GrowingText:
    """Calls a function with the translation of the first parts of a text, whenever there is one more."""

    def __init__(self, parts: Sequence[TextPart], on_text: Callable[[str], object]) -> None:
        self.parts, self.on_text = parts, on_text
        self.texts: dict[int, str] = {}
        self.count = 0  # first parts that are translated

    def __call__(self, index: int, translation: Translation) -> None:
        self.texts[index] = translation.text
        before = self.count
        while self.count in self.texts:
            self.count += 1
        if self.count > before:
            shown = zip(range(self.count), self.parts, strict=False)
            self.on_text("".join(self.texts[i] + part.blanks for i, part in shown))
