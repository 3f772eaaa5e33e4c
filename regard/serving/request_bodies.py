"""Request bodies as pydantic models: types and ranges are checked, unknown fields are reported in a header."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

if TYPE_CHECKING:
    from regard.decoding.searches.search import Search

MAX_HEADER_CHARACTERS = 500


class Body(BaseModel):
    """The body of a request, or an object inside a body."""

    model_config = ConfigDict(extra="allow", strict=True)

    def ignored(self) -> Iterator[str]:
        """Yield the paths of unknown fields."""
        yield from self.model_extra or {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Body):
                    yield from (f"{name}.{field}" for field in item.ignored())

    def headers(self) -> dict[str, str]:
        """Return the response header that lists ignored fields, with their untrusted names escaped to ASCII."""
        names = ", ".join(dict.fromkeys(ascii(name)[1:-1] for name in self.ignored()))
        return {"X-Ignored-Fields": names[:MAX_HEADER_CHARACTERS]} if names else {}


class GreedyBody(Body):
    """Greedy search."""

    name: Literal["greedy"]

    def make(self) -> Search:
        from regard.decoding.searches.greedy import Greedy

        return Greedy()


class BeamBody(Body):
    """Beam search."""

    name: Literal["beam"]
    width: int = Field(5, ge=1, le=16)
    length_penalty: FiniteFloat = Field(1.0, ge=0)

    def make(self) -> Search:
        from regard.decoding.searches.beam import Beam

        return Beam(self.width, length_penalty=self.length_penalty)


class SampleBody(Body):
    """Sampling; a filter at its neutral value is switched off."""

    name: Literal["sample"]
    temperature: FiniteFloat = Field(1.0, gt=0)
    top_k: int = Field(0, ge=0)
    top_p: FiniteFloat = Field(1.0, gt=0, le=1)
    min_p: FiniteFloat = Field(0.0, ge=0, le=1)
    seed: int = Field(0, ge=-(2**63), lt=2**63)

    def make(self) -> Search:
        from regard.decoding.searches.sample import Sample

        top_p = None if self.top_p == 1 else self.top_p
        return Sample(self.temperature, self.top_k or None, top_p, self.min_p or None, self.seed)


SearchBody = Annotated[GreedyBody | BeamBody | SampleBody, Field(discriminator="name")]


class HeadBody(Body):
    """An attention head."""

    map: Literal["enc_self", "dec_self", "cross", "rnn"]
    layer: int = Field(ge=0)
    head: int = Field(ge=0)


class TraceBody(Body):
    """`POST /api/trace`."""

    model: str
    text: str
    search: SearchBody | None = None
    target: str | None = None
    prefix: list[int] = []
    top: int = Field(10, ge=1, le=100)
    off: list[HeadBody] = Field([], max_length=1000)
    vectors: bool = False
    max_tokens: int | None = Field(None, ge=1)


class QuestionBody(Body):
    """POST /api/vote."""

    choices: list[str] = Field(max_length=64)


class VoteBody(Body):
    """POST /vote/cast."""

    question: str = Field(max_length=64)
    choice: int


class AttributionBody(Body):
    """POST /api/attribution."""

    model: str
    text: str
    method: Literal["integrated_gradients", "gradient_times_input", "occlusion"] = "occlusion"
    baseline: Literal["mean", "zero"] = "mean"
    target: str | None = None


class InsideBody(Body):
    """`POST /api/inside`."""

    model: str
    text: str
    target: str | None = None
    search: SearchBody | None = None
    stack: Literal["encoder", "decoder"]
    layer: int = Field(ge=0)
    token: int = Field(ge=0)
    head: int = Field(ge=0)


class RecurrentBody(Body):
    """`POST /api/recurrent`."""

    model: str
    text: str


class EmbeddingsBody(Body):
    """`POST /api/embeddings`: the first `count` words in the plane, and the nearest words of `word`."""

    model: str
    word: str | None = None
    count: int = Field(150, ge=3, le=1000)


class SimilarityBody(Body):
    """`POST /api/similarity`."""

    model: str
    texts: list[str] = Field(min_length=1, max_length=30)


def explain(errors: list[Any]) -> str:
    """Return a sentence that says what is wrong with a body, and where."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}"
    path = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    value = repr(first.get("input"))
    got = "" if first["type"] == "missing" else f", got {value if len(value) <= 60 else value[:59] + '…'}"
    others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{path}: {first['msg'][0].lower()}{first['msg'][1:]}{got}{others}"
