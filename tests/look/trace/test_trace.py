"""The format regard-trace/1: what is written is read again, and every file that does not fit together is refused."""

from __future__ import annotations

import base64
import contextlib
import copy
import gzip
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as st_numpy

from regard.errors import DataError, UsageError
from regard.look.trace.attention_map import Map, make_thumbnails, unit_rows
from regard.look.trace.search_steps import Candidate, Node, Step, Tree
from regard.look.trace.trace import Axis, Head, Model, Token, Trace

MODEL = Model("tiny", "transformer", {"encoder": 1, "decoder": 2}, 2, {"model": 8, "head": 4}, "scaled", 0.5)


def axis_of(length: int) -> Axis:
    """Words of two pieces, and an end."""
    tokens = [Token(f"▁w{i // 2}" if i % 2 == 0 else "x", i // 2) for i in range(length - 1)]
    return Axis((*tokens, Token("</s>", special=True)), tuple(f"w{i}x" for i in range(length // 2)))


def weights_of(*shape: int, seed: int = 0) -> np.ndarray:
    return unit_rows(np.random.default_rng(seed).random(shape) ** 3)


def make_trace(n: int = 5, m: int = 3) -> Trace:
    """A translation of m tokens from n, with everything that a trace can have."""
    causal = np.tri(m, m, dtype=bool)
    dec_self = Map("target", "read", unit_rows(weights_of(2, 2, m, m) * causal), causal)
    vectors = {name: np.random.default_rng(1).standard_normal((1, 2, n, 4)) for name in "qkv"}
    half = Candidate(4, "▁w0", math.log(0.5), 0.25, 0.75)
    quarter = Candidate(7, "x", math.log(0.25), 0.0, 0.25)
    step = Step(4, (half, quarter), 0.25, 1.2, draw=0.3)
    nodes = (
        Node(None, 4, "▁w0", -1.0, -1.0, -1.0, "kept"),
        Node(None, 5, "x", -2.0, -2.0, -2.0, "pruned"),
        Node(0, 3, "</s>", -0.5, -1.5, -0.75, "done"),
    )
    return Trace(
        model=MODEL,
        axes={"source": axis_of(n), "target": axis_of(m), "read": axis_of(m)},
        maps={
            "enc_self": Map("source", "source", weights_of(1, 2, n, n), **vectors),
            "dec_self": dec_self,
            "cross": Map("target", "source", weights_of(2, 2, m, n)),
        },
        steps=(step,) * (m - 1) + (Step(7, (half, quarter), 0.25, 1.2, given=True),),
        tree=Tree(2, 1.0, nodes, 2),
        source="w0x w1x",
        output="w0x",
        search={"name": "beam", "width": 2, "length_penalty": 1.0, "top_k": None},
        best_head=Head(1, None),
        notes=("made by hand",),
    )


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_round_trip_is_exact(tmp_path: Path, name: str) -> None:
    trace = make_trace()
    path = trace.save(tmp_path / name)
    again = Trace.load(path)
    for kind, one in trace.maps.items():
        assert again.maps[kind].weights.dtype == np.float32
        assert np.array_equal(again.maps[kind].weights, one.weights)
    assert np.array_equal(again.maps["dec_self"].mask, trace.maps["dec_self"].mask)
    assert np.array_equal(again.maps["enc_self"].q, trace.maps["enc_self"].q)
    assert (again.steps, again.tree, again.axes, again.model) == (trace.steps, trace.tree, trace.axes, trace.model)
    assert (again.search, again.best_head, again.notes) == (trace.search, trace.best_head, trace.notes)
    assert Trace.from_dict(trace.to_dict()).to_dict() == trace.to_dict()
    assert path.read_bytes() == again.save(tmp_path / name).read_bytes()
    assert path.suffix == ".json" or path.read_bytes()[4:8] == bytes(4)  # no time of writing in it
    assert [file.name for file in tmp_path.iterdir()] == [name]


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 40), st.integers(1, 40)),
    seed=st.integers(0, 9),
)
def test_large_maps_keep_half_precision(shape: tuple[int, int, int, int], seed: int) -> None:
    layers, heads, m, n = shape
    model = Model("tiny", "transformer", {"decoder": layers}, heads, {})
    weights = weights_of(*shape, seed=seed)
    axes = {"target": axis_of(m), "source": axis_of(n)}
    trace = Trace(model, axes, {"cross": Map("target", "source", weights)})
    content = json.loads(json.dumps(trace.to_dict()))
    assert ("float16" in content["maps"]["cross"]["weights"]) == (weights.size > 4096)
    again = Trace.from_dict(content).maps["cross"]
    if weights.size > 4096:
        assert again.weights.dtype == np.float16
        # Half of the last of 11 digits, or of the smallest number that there is.
        assert np.all(np.abs(again.weights - weights) <= np.maximum(weights * 2**-11, 2**-25))
        assert again.thumbnails is not None and again.thumbnails.dtype == np.uint8
        second = Trace.from_dict(Trace.from_dict(content).to_dict()).maps["cross"]
        assert np.array_equal(second.weights, again.weights)
    else:
        assert np.array_equal(again.weights, weights) and again.thumbnails is None


@given(st_numpy.arrays(np.float32, (1, 1, 2, 3), elements=st.floats(0, 1, width=32)))
def test_any_numbers_come_back_as_they_were(weights: np.ndarray) -> None:
    one = Map("source", "source2", weights, random_features=True)
    axes = {"source": axis_of(2), "source2": axis_of(3)}
    trace = Trace(Model("m", "encoder", {"encoder": 1}, 1, {}), axes, {"enc_self": one})
    assert np.array_equal(Trace.from_dict(trace.to_dict()).maps["enc_self"].weights, weights)


def test_thumbnails_by_hand() -> None:
    weights = np.zeros((1, 1, 64, 33), np.float32)
    weights[0, 0, 5, 0] = 1.0
    weights[0, 0, 63, 32] = 0.5
    made = make_thumbnails(weights)
    assert made.shape == (1, 1, 32, 32) and made[0, 0, 2, 0] == 255 and made[0, 0, 31, 31] == 128
    assert made.astype(int).sum() == 255 + 128


def test_rows_without_a_key_are_zero() -> None:
    weights = np.array([[[[0.5, 0.5], [0.0, 0.0]]]])
    mask = np.array([[1, 1], [0, 0]])
    Map("source", "source", weights, mask)
    with pytest.raises(DataError, match=r"layer 0, head 0, row 1 sums to 0.000000 instead of 1"):
        Map("source", "source", weights)
    with pytest.raises(DataError, match="row 1, column 1 is not 0 although it is masked"):
        Map("source", "source", np.array([[[[0.5, 0.5], [0.0, 1.0]]]]), mask)


def test_random_features_are_exempt() -> None:
    weights = np.array([[[[0.7, -0.1], [0.9, 0.3]]]])
    assert Map("source", "source", weights, random_features=True).weights[0, 0, 0, 1] == np.float32(-0.1)
    with pytest.raises(DataError, match="row 0, column 1 is below 0"):
        Map("source", "source", weights)


@pytest.mark.parametrize(("dtype", "fine", "wrong"), [(np.float32, 8e-6, 2e-5), (np.float16, 1e-3, 4e-3)])
def test_tolerance_of_sums(dtype: Any, fine: float, wrong: float) -> None:
    def one(off: float) -> Map:
        return Map("source", "source", np.array([[[[0.5 + off, 0.5]]]], dtype))

    one(fine)
    with pytest.raises(DataError, match="row 0 sums to"):
        one(wrong)


Content = dict[str, Any]


def at(*path: str | int, to: Any) -> Callable[[Content], None]:
    """A change of a good file: another value at this place, or none with `...`."""

    def change(content: Content) -> None:
        *way, last = path
        here: Any = content
        for step in way:
            here = here[step]
        if to is ...:
            del here[last]
        else:
            here[last] = to

    return change


def packed(numbers: list[float]) -> str:
    return base64.b64encode(np.array(numbers, "<f2").tobytes()).decode()


CROSS = ("maps", "cross", "weights")
BROKEN = [
    (at("format", to="regard-trace/2"), "the format is 'regard-trace/2'"),
    (at("format", to=...), "not a trace"),
    (at("steps", 0, "chosn", to=1), r"steps\[0\]: unknown entry 'chosn'; did you mean 'chosen'"),
    (at("model", "name", to=...), "model: the entry 'name' is missing"),
    (at("maps", to=...), "the entry 'maps' is missing"),
    (at("maps", to=[]), "maps must be an object"),
    (at("axes", "source", "tokens", to={}), "axes.source.tokens must be a list"),
    (at("axes", "source", "tokens", 1, "text", to=3), r"axes.source.tokens\[1\].text must be a text, got 3"),
    (at("axes", "source", "tokens", 1, "pad", to=1), r"tokens\[1\].pad must be true or false, got 1"),
    (at("axes", "source", "tokens", 1, "word", to=True), r"tokens\[1\].word must be a whole number, got true"),
    (at("axes", "source", "tokens", 1, "word", to=9), "axes.source: token 1 belongs to word 9"),
    (at("axes", "source", "tokens", 3, "word", to=0), "axes.source: token 3 belongs to word 0"),
    (at("axes", "source", "tokens", 4, to=...), r"maps.enc_self: \[1, 2, 5, 5\] does not fit the 4 tokens of source"),
    (at("axes", "target", to=...), "unknown axis 'target'"),
    (at("maps", "crss", to={"query": "a", "key": "b", "weights": {}}), "maps.crss.weights must be an array"),
    (at("model", "heads", to=3), r"maps.enc_self: \[1, 2, 5, 5\] does not fit 1 layers of 3 heads"),
    (at("model", "layers", "decoder", to=1), "does not fit 1 layers of 2 heads"),
    (at("maps", "cross", "key", to="targt"), "maps.cross: unknown axis 'targt'; did you mean 'target'"),
    (at(*CROSS, "shape", to=[2, 2, 3]), "maps.cross.weights: 60 numbers do not fill the shape"),
    (at(*CROSS, "shape", to=[4, 1, 3, 5]), r"maps.cross: \[4, 1, 3, 5\] does not fit 2 layers of 2 heads"),
    (at(*CROSS, "shape", to=[60]), r"maps.cross: weights must be \[layer, head,"),
    (at(*CROSS, "shape", to=[-2, -2, 3, 5]), "weights.shape must be up to four non-negative whole numbers"),
    (at(*CROSS, "values", 7, to="x"), r"weights.values\[7\] must be a number, got \"x\""),
    (at(*CROSS, "values", 7, to=True), r"weights.values\[7\] must be a number, got true"),
    (at(*CROSS, "values", 7, to=2.0), "maps.cross: layer 0, head 0, row 1 sums to"),
    (at(*CROSS, "values", 7, to=1e200), "weights must be finite numbers"),
    (at(*CROSS, "values", 7, to=10**400), r"weights.values\[7\] must be a number"),
    (at(*CROSS, "values", to=[]), "0 numbers do not fill the shape"),
    (at(*CROSS, "float16", to=""), "weights must be an array"),
    (at(*CROSS, to={"shape": [1], "float16": "not base64!"}), "weights.float16 is not float16 in base64"),
    (at(*CROSS, to={"shape": [1], "float16": "A!AA="}), "weights.float16 is not float16 in base64"),
    (at(*CROSS, to={"shape": [1], "float16": "AAAA"}), "weights.float16 is not float16 in base64"),
    (at(*CROSS, to={"shape": [2, 2, 3, 5], "float16": packed([0.25] * 60)}), "sums to 1.250000 instead of 1"),
    (at(*CROSS, to={"shape": [2, 2, 3, 5], "float16": packed([np.inf] * 60)}), "must be finite numbers"),
    (at("maps", "cross", "thumbnails", to={"shape": [1], "uint8": "AA=="}), "thumbnails, of shape .1., do not match"),
    (
        at("maps", "cross", "thumbnails", to={"shape": [2, 2, 3, 5], "uint8": "A" * 80}),
        "maps.cross: the thumbnails, of shape .2, 2, 3, 5., do not match the weights",
    ),
    (at("maps", "dec_self", "mask", "values", 1, to=2), "the mask must be 1 where a query may attend"),
    (at("maps", "dec_self", "mask", "values", 0, to=0), "is not 0 although it is masked"),
    (at("maps", "dec_self", "mask", "shape", to=[9]), r"the mask has the shape \[9\]"),
    (at("maps", "enc_self", "q", "shape", to=[1, 1, 5, 8]), r"q has the shape \[1, 1, 5, 8\]"),
    (at("maps", "enc_self", "k", "shape", to=[1, 1, 5, 8]), "q and k have vectors of different widths, 4 and 8"),
    (at("maps", "enc_self", "v", "shape", to=[1, 2, 4, 5]), r"v has the shape \[1, 2, 4, 5\]"),
    (at("steps", 1, to=...), "2 steps for 3 target tokens"),
    (at("steps", 0, "rest", to=0.3), r"steps\[0\]: the probabilities of the candidates and the rest sum to 1.05"),
    (at("steps", 0, "rest", to=None), r"steps\[0\].rest must be a number, got null"),
    (at("steps", 0, "candidates", 0, "logp", to=1e5), r"steps\[0\]: the probabilities"),
    (at("steps", 0, "chosen", to=5), r"steps\[0\]: the chosen token 5 must be among the candidates exactly once"),
    (at("steps", 0, "entropy", to=-1), "entropy is -1.0, below 0"),
    (at("steps", 0, "draw", to=0.8), "the draw 0.8 is not in the interval of the chosen token, 0.25 to 0.75"),
    (at("steps", 0, "candidates", 0, "low", to=...), "the draw 0.3 is not in the interval of the chosen token, None"),
    (at("tree", "nodes", 2, "parent", to=2), "tree: the parent of node 2 is 2, which does not come before it"),
    (at("tree", "nodes", 2, "parent", to=1), "tree: node 2 continues node 1, which was pruned"),
    (at("tree", "nodes", 0, "state", to="gone"), r"tree.nodes\[0\]: unknown state 'gone'"),
    (at("tree", "nodes", 2, "score", to=-0.7), "tree: node 2 has the score -0.7, but sum and length give -0.75"),
    (at("tree", "length_penalty", to=-1), "tree: length_penalty must be at least 0, got -1.0"),
    (at("tree", "length_penalty", to=1e300), "tree: node 2 has the score -0.75, but sum and length give -0.0"),
    (at("tree", "best", to=1), "best is 1, which is not a kept or finished node"),
    (at("tree", "best", to=3), "best is 3, which is not a kept or finished node"),
    (at("best_head", "layer", to=2), "best_head is head 0 of layer 2"),
    (at("search", "width", to=[]), r"search.width must be a text or a whole number or .*, got \[\]"),
    (at("notes", to="x"), "notes must be a list"),
]


SOUND = [
    at("axes", "source", "tokens", 2, "word", to=...),
    at("axes", "source", "tokens", 1, "word", to=1),
    at("maps", "cross", "query", to="read"),
    at(*CROSS, to={"shape": [2, 2, 3, 5], "float16": packed([0.2] * 60)}),
    at("maps", "enc_self", "v", "shape", to=[1, 1, 5, 8]),
]


def changed(path: Path, change: Callable[[Content], None]) -> Path:
    content = json.loads(json.dumps(make_trace().to_dict()))
    change(content)
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_a_file_that_does_not_fit_together(tmp_path: Path, change: Callable[[Content], None], message: str) -> None:
    """Each check finds what it is there for, and the message names file and place."""
    path = changed(tmp_path / "broken.json", change)
    with pytest.raises(DataError, match=message) as caught:
        Trace.load(path)
    assert str(caught.value).startswith(f"{path}: ")


JSON = st.sampled_from([None, True, 0, -1, 7, 10**400, 1e300, -0.5, "", "AAAA", [], [[]], [0.5], {}, {"shape": [1]}])


def places_of(value: Any) -> list[tuple[Any, Any]]:
    """Every place of a JSON value: what holds it, and its name or number there."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for name, one in inside for found in [(value, name), *places_of(one)]]


@settings(max_examples=200)
@given(data=st.data())
def test_whatever_is_changed_the_answer_is_a_trace_or_a_message(data: st.DataObject) -> None:
    content = json.loads(json.dumps(make_trace().to_dict()))
    for _ in range(data.draw(st.integers(1, 3))):
        holder, name = data.draw(st.sampled_from(places_of(content)))
        holder[name] = copy.deepcopy(data.draw(JSON))  # a later change must not reach into the samples
    with contextlib.suppress(DataError):
        Trace.from_dict(content)


@pytest.mark.parametrize("change", SOUND)
def test_other_changes_are_fine(tmp_path: Path, change: Callable[[Content], None]) -> None:
    Trace.load(changed(tmp_path / "sound.json", change))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "not a trace"),
        (b"null", "not a trace"),
        (b'{"format": "regard-trace/1", "steps": NaN}', "NaN, which JSON does not allow"),
        (b"[" * 100_000, "not JSON"),
        (b"9" * 10_000, "not JSON"),
        (b"\x1f\x8b broken", "cannot be read"),
        (gzip.compress(b"{}" * 99, mtime=0)[:-5], "cannot be read"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "none.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"^{re.escape(str(path))}: .*{message}"):
        Trace.load(path)


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        Trace.load(tmp_path / "missing.json")
    with pytest.raises(DataError, match="cannot be read"):
        Trace.load(tmp_path)


def test_a_file_that_unpacks_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.look.trace.file_format.MAX_FILE_BYTES", 2**20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * (2**20 + 1)))
    with pytest.raises(DataError, match="larger than 1 MiB, the limit of a trace"):
        Trace.load(path)


def test_the_name_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"must end in .json or .json.gz"):
        make_trace().save(tmp_path / "trace.pickle")


def test_the_way_to_a_node() -> None:
    tree = make_trace().tree
    assert tree is not None and tree.path(tree.best) == [0, 2]
