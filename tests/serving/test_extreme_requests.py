"""No request makes the server answer 500: extreme numbers, wrong types and odd strings in every field."""

from __future__ import annotations

import json
import math
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings, strategies as st

GOOD = {"model": "fr-en", "text": "Jane", "max_tokens": 3}
INSIDE = {"model": "fr-en", "text": "Jane", "target": "Jane", "stack": "decoder", "layer": 0, "token": 0, "head": 0}
EXTREMES = st.sampled_from(
    [0, -1, 1, 2, 3, 2**31, 2**63, -(2**63) - 1, 2**64, 10**30, 0.5, 1000, 1e300, 1e308, -1e308, 5e-324, 1e-308,
     math.nan, math.inf, -math.inf, True, False, None, "", "x", "\0", "\ud800", "\U0001f600", "\r\n", "'\"<>", "1e308",
     [], {}, [[]], [None], {"name": "beam"}, [0], [1], [2], [3], [2, 2], [3, 3, 3], [-1], [1e308], [2**63], "fr-en",
     "encoder"]
)  # fmt: skip
SEARCHES = st.one_of(
    st.fixed_dictionaries({"name": st.just("beam")}, optional={"width": EXTREMES, "length_penalty": EXTREMES}),
    st.fixed_dictionaries(
        {"name": st.just("sample")},
        optional={"temperature": EXTREMES, "top_k": EXTREMES, "top_p": EXTREMES, "min_p": EXTREMES, "seed": EXTREMES},
    ),
    EXTREMES,
)
HEADS = st.lists(st.fixed_dictionaries({"map": st.just("cross"), "layer": EXTREMES, "head": EXTREMES}), max_size=2)
TRACE_FIELDS = {
    **dict.fromkeys(("model", "text", "target", "prefix", "top", "vectors", "max_tokens"), EXTREMES),
    "search": SEARCHES,
    "off": st.one_of(HEADS, EXTREMES),
}
SEQUENCE_REQUESTS = {
    "recurrent": {"model": "shakespeare-lstm", "text": "Jane"},
    "embeddings": {"model": "shakespeare-lstm", "word": "a", "count": 5},
    "similarity": {"model": "demo-encoder", "texts": ["Jane", "the cat"]},
}  # the path of each route under /api and a body that it takes
POST_PATHS = ["/api/trace", "/api/inside", *(f"/api/{name}" for name in SEQUENCE_REQUESTS)]
INSIDE_FIELDS = {**dict.fromkeys(INSIDE, EXTREMES), "search": SEARCHES}


def check(client: Any, answer: Any) -> None:
    """The answer is a result, or a refusal with a sentence; the server goes on."""
    assert answer.status < 500, answer.content[:300]
    if answer.status >= 400:
        assert len(answer.error) > 10
    elif answer.headers.get("content-type") == "application/json":
        json.loads(answer.content, parse_constant=pytest.fail)  # NaN and Infinity are not JSON


def search(name: str, **fields: Any) -> dict[str, Any]:
    return {"search": {"name": name, **fields}}


@settings(max_examples=30)
@example(search("beam", length_penalty=1e300))
@example(search("beam", length_penalty=1e308))
@example(search("beam", length_penalty=1000))
@example(search("beam", length_penalty=1e9))
@example(search("sample", temperature=5e-324))
@example(search("sample", temperature=1e308))
@example(search("sample", top_p=5e-324, min_p=5e-324, top_k=2**63))
@example({"prefix": [0]})
@example({"prefix": [1]})
@example({"prefix": [2]})
@example({"prefix": [3]})
@example({"prefix": [0, 1, 2]})
@example({"prefix": [2], "search": {"name": "greedy"}})
@example({"model": "shakespeare", "prefix": [3]})
@example({"model": "shakespeare", "text": "", "prefix": []})
@given(st.fixed_dictionaries({}, optional=TRACE_FIELDS))
def test_no_trace_request_breaks_the_server(client: Any, change: dict[str, Any]) -> None:
    check(client, client.post("/api/trace", GOOD | change))


@settings(max_examples=40)
@given(st.fixed_dictionaries({}, optional=INSIDE_FIELDS))
def test_no_inside_request_breaks_the_server(client: Any, change: dict[str, Any]) -> None:
    check(client, client.post("/api/inside", INSIDE | change))


@pytest.mark.parametrize("name", SEQUENCE_REQUESTS)
@settings(max_examples=30)
@given(change=st.data())
def test_no_sequence_request_breaks_the_server(sequences: Any, name: str, change: st.DataObject) -> None:
    body = SEQUENCE_REQUESTS[name]
    fields = st.fixed_dictionaries({}, optional=dict.fromkeys(body, EXTREMES))
    check(sequences, sequences.post(f"/api/{name}", body | change.draw(fields)))


def test_the_unchanged_requests_are_answered(client: Any, sequences: Any) -> None:
    for server, requests in ((client, {"trace": GOOD, "inside": INSIDE}), (sequences, SEQUENCE_REQUESTS)):
        for name, body in requests.items():
            assert server.post(f"/api/{name}", body).status == 200, name


ODD_TEXT = st.one_of(st.text(max_size=20), st.sampled_from(["..", "/", "%", "\0", "a" * 3000, "decoder", "__class__"]))


@settings(max_examples=25)
@given(ODD_TEXT, ODD_TEXT)
def test_no_address_breaks_the_server(client: Any, model: str, name: str) -> None:
    model, name = (quote(text.encode(errors="replace"), safe="") for text in (model, name))
    for path in (f"/api/traces/{name}", f"/api/parameters?model=fr-en&name={name}", f"/api/{name}", f"/{name}"):
        check(client, client.get(path))
    check(client, client.get(f"/api/parameters?model={model}"))


JSON_VALUES = st.recursive(EXTREMES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner))


@settings(max_examples=25)
@given(JSON_VALUES, st.sampled_from(POST_PATHS))
def test_no_body_breaks_the_server(client: Any, body: Any, path: str) -> None:
    check(client, client.ask("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"}))


@pytest.mark.parametrize("content", [b'{"a": 1e999}', b"{" * 10_000, b"\x00", b"\xff\xfe{\x00}\x00", b"1" * 5000, b""])
@pytest.mark.parametrize("path", POST_PATHS)
def test_no_bytes_break_the_server(client: Any, path: str, content: bytes) -> None:
    check(client, client.post(path, content))
