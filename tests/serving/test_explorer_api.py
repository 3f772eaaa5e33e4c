"""The routes of the explorer: which models there are, traces, the numbers inside, and what bad requests get."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.api.model_names import SHIPPED
from regard.look.trace.trace import Trace
from regard.serving.app import create_app
from regard.serving.limits import Limits
from regard.serving.model_threads import ModelShelf, ServedModel

JANE = "Jane visite l'Afrique en septembre"
GREEDY = {"name": "greedy"}


def trace(client: Any, **body: Any) -> Trace:
    answer = client.post("/api/trace", {"model": "fr-en", "text": JANE, **body})
    assert answer.status == 200, answer.content
    assert "x-ignored-fields" not in answer.headers
    return Trace.from_dict(answer.json)


def refused(client: Any, path: str = "/api/trace", **body: Any) -> str:
    answer = client.post(path, {"model": "fr-en", "text": JANE, **body})
    assert answer.status == 400, answer.content
    return answer.error


def chosen(found: Trace) -> list[int]:
    return [step.chosen for step in found.steps]


def test_models_are_told_before_they_are_loaded(serve: Callable[..., Any]) -> None:
    shelf = ModelShelf([ServedModel(name, SHIPPED / name) for name in ("shakespeare", "fr-en")], default="fr-en")
    found = serve(shelf, traces={"jane": b"{}"}).get("/api/models").json
    assert found == {
        "models": [
            {
                "name": "shakespeare",
                "kind": "writer",
                "architecture": "transformer-lm",
                "reads": "text",
                "state": "waiting",
                "error": None,
                "default": False,
                "about": None,
            },
            {
                "name": "fr-en",
                "kind": "translator",
                "architecture": "transformer",
                "reads": "text",
                "state": "waiting",
                "error": None,
                "default": True,
                "about": None,
            },
        ],
        "traces": [{"name": "jane"}],
        "limits": {"characters": 5000, "tokens": 512, "file_bytes": 2**24},
        "votes": False,
    }


def test_a_sentence_gives_its_trace(client: Any) -> None:
    found = trace(client)
    assert found.output == "Jane visits Africa in September"
    assert found.model.name == "fr-en"
    assert found.search == {"name": "beam", "width": 5, "length_penalty": 1.0, "patience": 1.0}
    assert found.tree is not None
    assert set(found.maps) == {"enc_self", "dec_self", "cross"}
    (fr_en, _) = client.get("/api/models").json["models"]
    assert fr_en["state"] == "ready" and fr_en["about"]["heads"] == found.model.heads


def test_searches(client: Any) -> None:
    greedy, beam = trace(client, search=GREEDY), trace(client, search={"name": "beam", "width": 1})
    assert greedy.search == GREEDY and beam.search["width"] == 1
    assert chosen(greedy) == chosen(beam)
    wild = {"name": "sample", "temperature": 2.5, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 3}
    first, again, other = (trace(client, search={**wild, "seed": seed}, max_tokens=10) for seed in (3, 3, 4))
    assert chosen(first) == chosen(again) != chosen(other)
    assert first.search == {**wild, "name": "sample", "top_k": None, "top_p": None, "min_p": None}
    filtered = trace(client, search={**wild, "top_k": 3, "top_p": 0.9, "min_p": 0.1}, max_tokens=5)
    assert (filtered.search["top_k"], filtered.search["top_p"], filtered.search["min_p"]) == (3, 0.9, 0.1)


def test_a_forced_beginning_and_a_given_target(client: Any) -> None:
    plain = trace(client, search=GREEDY)
    second = plain.steps[1].candidates[1].token
    forced = trace(client, search=GREEDY, prefix=[plain.steps[0].chosen, second])
    assert chosen(forced)[:2] == [plain.steps[0].chosen, second]
    assert [step.given for step in forced.steps[:3]] == [True, True, False]
    led = trace(client, target="Jane eats Africa")
    assert led.output == "Jane eats Africa" and all(step.given for step in led.steps)
    assert len(trace(client, search=GREEDY, max_tokens=2).steps) == 2
    assert all(len(step.candidates) <= 4 for step in trace(client, search=GREEDY, top=3).steps)


def test_what_is_written_is_limited_too(serve: Callable[..., Any]) -> None:
    """A sentence of words that the model does not know may be translated without end."""
    there = serve(ModelShelf([ServedModel("fr-en", SHIPPED / "fr-en")]), limits=Limits(tokens=12))
    found = trace(there, text="le chat " * 6, search={"name": "sample", "temperature": 50})
    assert len(found.steps) == 12


def test_heads_off_and_on_again(client: Any) -> None:
    found = trace(client, search=GREEDY)
    on, (layers, count, _, _) = found.to_dict(), found.maps["cross"].weights.shape
    heads = [{"map": "cross", "layer": layer, "head": head} for layer in range(layers) for head in range(count)]
    off = trace(client, search=GREEDY, off=heads)
    assert off.output != "Jane visits Africa in September"
    assert trace(client, search=GREEDY).to_dict() == on


def test_vectors_come_when_they_are_asked_for(client: Any) -> None:
    assert trace(client, search=GREEDY).maps["cross"].q is None
    cross = trace(client, search=GREEDY, vectors=True).maps["cross"]
    assert cross.q is not None and cross.q.shape[:3] == cross.weights.shape[:3]


def test_a_writer_is_loaded_when_it_is_asked(client: Any) -> None:
    found = trace(client, model="shakespeare", text="The", max_tokens=5)
    assert len(found.steps) == 8 and set(found.maps) <= {"dec_self"}


def test_inside(client: Any) -> None:
    body = {"stack": "decoder", "layer": 1, "token": 2, "head": 3}
    answer = client.post("/api/inside", {"model": "fr-en", "text": JANE, **body, "target": None, "search": GREEDY})
    assert answer.status == 200, answer.content
    boxes = {box["id"]: box for box in answer.json["boxes"]}
    weights = boxes["cross.weights"]["values"]
    found = trace(client, search=GREEDY).maps["cross"].weights[1, 3, 2]
    flat = weights["values"] if isinstance(weights, dict) else weights
    assert np.allclose(flat, found, atol=1e-5)
    assert all(set(one) == {"name", "shape"} for one in answer.json["parameters"])
    assert "layer" in refused(client, "/api/inside", **{**body, "layer": 9})


def test_a_parameter_comes_whole(client: Any) -> None:
    from regard.models.folder import load_model

    weights = dict(load_model(SHIPPED / "fr-en").named_parameters())
    name = next(name for name, weight in weights.items() if weight.ndim == 2)
    found = client.get(f"/api/parameters?model=fr-en&name={name}").json
    assert found["name"] == name and found["shape"] == list(weights[name].shape)
    numbers = np.frombuffer(base64.b64decode(found["float32"]), "<f4").reshape(found["shape"])
    assert (numbers == weights[name].detach().numpy()).all()
    answer = client.get("/api/parameters?model=fr-en&name=encoder.blocks.0")
    assert answer.status == 400 and "unknown parameter" in answer.error
    assert client.get("/api/parameters?model=fr-en").error == "name: field required"


def test_an_opened_trace_comes_back(serve: Callable[..., Any]) -> None:
    there = serve(ModelShelf([]), traces={"été <b>": b'{"format": "regard-trace/1"}'})
    assert there.get("/api/traces/%C3%A9t%C3%A9%20%3Cb%3E").json == {"format": "regard-trace/1"}
    answer = there.get("/api/traces/ete")
    assert answer.status == 404 and "unknown trace 'ete'" in answer.error


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</script>", "\u2028😀"]
)
def test_text_goes_round_as_it_is(client: Any, text: str) -> None:
    answer = client.post("/api/trace", {"model": "fr-en", "text": f"chat {text}", "search": GREEDY, "max_tokens": 3})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["source"] == f"chat {text}"


def test_an_unknown_model_gets_the_nearest_name(client: Any) -> None:
    assert client.post("/api/trace", {"model": "\ud800", "text": JANE}).status == 404
    answer = client.post("/api/trace", {"model": "fr-em", "text": JANE})
    assert answer.status == 404
    assert answer.error == "unknown model 'fr-em'; did you mean 'fr-en'? (known: fr-en, shakespeare)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": ""}, "there is nothing to translate"),
        ({"text": "   "}, "there is nothing to translate"),
        ({"text": "a" * 5001}, "the text has 5,001 characters; the limit is 5,000: shorten it"),
        ({"text": "x, " * 600}, "tokens; the limit is 512: shorten it"),
        ({"target": "x, " * 600}, "tokens; the limit is 512: shorten it"),
        ({"text": 7}, "text: input should be a valid string, got 7"),
        ({"text": None}, "text: input should be a valid string"),
        ({"search": {"name": "magic"}}, "search: input tag 'magic'"),
        (
            {"search": {"name": "beam", "width": 0}},
            "width: input should be greater than or equal to 1, got 0",
        ),
        ({"search": {"name": "beam", "width": 1000}}, "search.beam.width: "),
        ({"search": {"name": "beam", "width": "4"}}, "search.beam.width: input should be a valid integer, got '4'"),
        ({"search": {"name": "sample", "temperature": 0}}, "search.sample.temperature: "),
        ({"search": {"name": "sample", "temperature": float("nan")}}, "search.sample.temperature: "),
        ({"search": GREEDY, "target": "Jane"}, "leave out search"),
        ({"search": {"name": "beam", "length_penalty": 1e300}}, "length_penalty must be a number from 0 to 10"),
        ({"search": {"name": "sample", "temperature": 5e-324}}, "temperature must be at least 1e-06, got 5e-324"),
        ({"prefix": [10**6]}, "the prefix contains token 1000000"),
        ({"prefix": [5] * 513}, "prefix and max_tokens may have at most 512 tokens"),
        ({"max_tokens": 513}, "prefix and max_tokens may have at most 512 tokens"),
        ({"max_tokens": 0}, "max_tokens: "),
        ({"top": 0}, "top: "),
        ({"off": [{"map": "cross", "layer": 9, "head": 0}]}, "9"),
        ({"off": [{"map": "no", "layer": 0, "head": 0}]}, "off.0.map: "),
    ],
)
def test_a_request_that_cannot_be_met_is_explained(client: Any, change: dict[str, Any], message: str) -> None:
    assert message in refused(client, **change)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the body: field required"),
        (b"{", "the body is not JSON: "),
        (b'{"model": "fr-en", "text": }', "the body is not JSON: Expecting value at character 27"),
        (b"\xff", "body"),
        (b"[]", "the body: "),
        (b'"text"', "the body: "),
        (b"[" * 100_000, "body"),
        (b'{"text": "x"}', "model: field required"),
    ],
)
def test_a_body_that_is_none_is_explained(client: Any, content: bytes, message: str) -> None:
    answer = client.post("/api/trace", content)
    assert answer.status == 400
    assert message in answer.error


def test_another_content_type_is_refused(client: Any) -> None:
    content = json.dumps({"model": "fr-en", "text": JANE}).encode()
    for kind, got in (("text/plain", "got 'text/plain'"), ("", "there is none")):
        answer = client.ask("POST", "/api/trace", content, {"Content-Type": kind})
        assert answer.status == 415
        assert answer.error == f"send JSON with the header `Content-Type: application/json`; {got}"


def test_unknown_fields_are_ignored_and_listed(client: Any) -> None:
    body = {"model": "fr-en", "text": JANE, "beams": 3, "search": {"name": "greedy", "temperature": 1}}
    heads = [{"map": "cross", "layer": 0, "head": head, "why": 1} for head in (0, 1)]
    answer = client.post("/api/trace", {**body, "off": heads, "é\r\nSet-Cookie: x": 1})
    assert answer.status == 200
    names = answer.headers["x-ignored-fields"].split(", ")
    assert names == ["beams", "\\xe9\\r\\nSet-Cookie: x", "search.temperature", "off.why"]
    assert "set-cookie" not in answer.headers
    many = client.post("/api/trace", {"model": "fr-en", "text": JANE, **{f"field{i}": 0 for i in range(1000)}})
    assert many.status == 200 and len(many.headers["x-ignored-fields"]) == 500


def test_a_model_that_cannot_be_loaded_says_so(serve: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"kind": "transformer"}')
    there = serve(ModelShelf([ServedModel("bad", tmp_path)]))
    answer = there.post("/api/trace", {"model": "bad", "text": JANE})
    assert answer.status == 503 and "'bad' could not be loaded: " in answer.error
    (bad,) = there.get("/api/models").json["models"]
    assert bad["state"] == "failed" and "manifest.json" in bad["error"]


def test_many_at_once_get_their_own_answers(client: Any) -> None:
    texts = ["Le chat dort.", JANE, "Le chat noir dort.", "Jane mange."] * 2
    with ThreadPoolExecutor(len(texts)) as pool:
        found = list(pool.map(lambda text: trace(client, text=text, search=GREEDY), texts))
    assert [one.source for one in found] == texts
    assert [one.output for one in found[:4]] == [one.output for one in found[4:8]]


def test_the_app_has_no_pages_that_load_from_elsewhere(page: Path) -> None:
    """FastAPI's own pages take their scripts from the internet."""
    app = create_app(ModelShelf([]), page=page, limits=Limits())
    assert app.docs_url is None or app.openapi_url is None
