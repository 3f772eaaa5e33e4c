"""The bodies of requests: known fields that are not supported are refused by name, unknown ones are ignored."""

from __future__ import annotations

import secrets
from typing import Any, Literal, TypeVar

from pydantic import Field, FiniteFloat, ValidationError
from starlette.requests import Request

from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Search
from regard.serving.request_bodies import Body, explain
from regard.serving.service.errors import RequestError
from regard.serving.service.penalties import Penalties

MIN_TEMPERATURE = 0.01  # below it, the most probable token is always taken

Share = Field(1.0, gt=0, le=1)
Penalty = Field(0.0, ge=-2, le=2)
Tokens = list[int]
AnyBody = TypeVar("AnyBody", bound=Body)


class StreamOptions(Body):
    include_usage: bool = False


class WritingBody(Body):
    """What completions and chat completions have in common."""

    model: str
    n: int | None = Field(1, ge=1)
    temperature: FiniteFloat | None = Field(1.0, ge=0, le=2)
    top_p: FiniteFloat | None = Share
    presence_penalty: FiniteFloat | None = Penalty
    frequency_penalty: FiniteFloat | None = Penalty
    logit_bias: dict[str, FiniteFloat] | None = None
    seed: int | None = Field(None, ge=-(2**62), lt=2**62)
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = None

    @property
    def stops(self) -> list[str]:
        """The stop texts."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stops) > 4 or not all(stops):
            raise RequestError(400, "stop has at most 4 texts, none of which is empty", field="stop")
        return stops

    def searches(self, count: int) -> list[Search]:
        """Return a search for each of `count` texts after the same prompt."""
        bias = tuple(
            sorted((int(token), value) for token, value in (self.logit_bias or {}).items() if token.isdecimal())
        )
        penalties = Penalties(self.presence_penalty or 0.0, self.frequency_penalty or 0.0, bias)
        rules = (penalties,) if penalties.changes_anything else ()
        temperature = 1.0 if self.temperature is None else self.temperature
        if temperature < MIN_TEMPERATURE:
            return [Greedy(rules=rules)] * count
        seed = secrets.randbits(61) if self.seed is None else self.seed
        top_p = None if self.top_p in (None, 1) else self.top_p
        return [Sample(temperature, top_p=top_p, seed=seed + i, rules=rules) for i in range(count)]


class CompletionBody(WritingBody):
    """`POST /v1/completions`."""

    prompt: str | Tokens | list[str] | list[Tokens] = ""
    max_tokens: int | None = Field(16, ge=0)
    best_of: int | None = Field(None, ge=1)
    echo: bool | None = False
    logprobs: int | None = Field(None, ge=0, le=5)
    suffix: None = None

    @property
    def prompts(self) -> list[str] | list[Tokens]:
        """The prompts as a list."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [self.prompt]
        return self.prompt  # type: ignore[return-value]


class TextPart(Body):
    type: Literal["text"]
    text: str


class ChatMessage(Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    def plain(self) -> dict[str, str]:
        """Return the message as `Writer.chat` takes it."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class ResponseFormat(Body):
    type: Literal["text"]


class ChatBody(WritingBody):
    """`POST /v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: ResponseFormat | None = None
    tools: None = None
    tool_choice: Literal["none"] | None = None
    functions: None = None


class EmbeddingBody(Body):
    """`POST /v1/embeddings`."""

    model: str
    input: str | Tokens | list[str] | list[Tokens]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = Field(None, ge=1)
    user: str | None = None


async def read_body(request: Request, kind: type[AnyBody]) -> AnyBody:
    """Return the checked body of a request; RequestError names the field that is wrong."""
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        errors: list[Any] = error.errors()
        field = str(errors[0]["loc"][0]) if errors[0]["loc"] else None
        wrong = [{**each, "loc": ("body", *each["loc"])} for each in errors]
        raise RequestError(400, explain(wrong), field=field) from None
