"""Inside a block: every box computed again from those it names, and the last one held against the model's own block."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import regard
from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.searches.greedy import Greedy
from regard.errors import UsageError
from regard.look.inside.inside import inside_block, read_parameter
from regard.text.tokenizers.special_tokens import START

from ...repeats import some

TARGET = "the cat eats"
POSITIONS = ["none", "sinusoidal", "learned", "rotary", "relative", "t5", "alibi", "fraction", "index"]


def check(found: dict[str, Any], face: Any, recomputing: Any) -> np.ndarray:
    """Every box is what its rule gives; the numbers of the last one."""
    json.dumps(found, allow_nan=False)
    boxes = {box["id"]: box for box in found["boxes"]}
    assert len(boxes) == len(found["boxes"])
    used = set()
    for number, box in enumerate(found["boxes"]):
        assert box["shape"] == box["values"]["shape"]
        assert set(box["from"]) <= {before["id"] for before in found["boxes"][:number]}
        assert "rows" not in box or len(box["rows"]) == box["shape"][0]
        used |= {box["rule"][key] for key in ("weight", "bias") if box["rule"].get(key)}
        wanted = recomputing.recompute(box, boxes, lambda name: read_parameter(face, name))
        if wanted is not None:
            np.testing.assert_allclose(recomputing.numbers_of(box), wanted, atol=1e-4, err_msg=box["id"])
    assert {one["name"] for one in found["parameters"]} == used
    for one in found["parameters"]:
        assert list(read_parameter(face, one["name"]).shape) == one["shape"]
    return recomputing.numbers_of(found["boxes"][-1])


def block_outputs(face: Any, stack: str, layer: int, text: str, target: str | None) -> np.ndarray:
    """What the model's own block gives for all tokens, caught in its forward pass."""
    model, seen = face.model, []
    handle = getattr(model, stack).blocks[layer].register_forward_hook(lambda *args: seen.append(args[-1]))
    with torch.no_grad():
        if not hasattr(model, "project"):
            face.embed(text)
        elif hasattr(model, "encode"):
            ids = face.target_tokenizer.encode(target or "x")
            model(torch.tensor([face.read(text).ids]), torch.tensor([[START, *ids]]))
        else:
            ids = face.tokenizer.encode(text) + face.tokenizer.encode(target or "")
            model(torch.tensor([[START, *ids[:-1]]]))
    handle.remove()
    return seen[0][0].numpy()


@settings(max_examples=30)
@given(data=st.data())
def test_every_kind_of_block(data: st.DataObject, small: Any, recomputing: Any) -> None:
    draw = data.draw
    kind = draw(st.sampled_from(["transformer", "transformer-lm", "encoder"]))
    form = draw(st.sampled_from(["projected", "slice"]))
    config = {
        "position": draw(st.sampled_from(POSITIONS)),
        "order": draw(st.sampled_from(["pre", "post"])),
        "norm": draw(st.sampled_from(["rms", "layer"])),
        "activation": draw(st.sampled_from(["relu", "gelu", "gelu-tanh", "swiglu"])),
        "form": form,
        "kv_heads": draw(st.sampled_from([None, 1, 2])) if form == "projected" else None,
        "bias": draw(st.booleans()),
        "qk_norm": draw(st.booleans()),
        "scale_embedding": draw(st.booleans()),
        "max_length": 64,
    }
    if kind != "encoder" and config["position"] == "fraction":
        config["position"] = "none"  # it cannot generate: the length is not known
    face = small.small_face(kind, **config)
    stacks = {"transformer": ["encoder", "decoder"], "transformer-lm": ["decoder"], "encoder": ["encoder"]}[kind]
    stack, layer, head = draw(st.sampled_from(stacks)), draw(st.integers(0, 1)), draw(st.integers(0, 3))
    target = TARGET if stack == "decoder" else None
    outputs = block_outputs(face, stack, layer, small.TEXT, target)
    token = draw(st.integers(0, len(outputs) - 1))
    found = inside_block(face, small.TEXT, stack=stack, layer=layer, token=token, head=head, target=target)
    assert len(found["tokens"]) == len(outputs)
    last = check(found, face, recomputing)
    np.testing.assert_allclose(last, outputs[token], atol=1e-4, rtol=1e-4)
    assert found["layers"] == 2 and found["heads"] == 4


def test_rows_of_all_heads_are_the_sums_of_each(small: Any, recomputing: Any) -> None:
    face = small.small_face("transformer", position="relative", kv_heads=2)
    each = [
        inside_block(face, small.TEXT, stack="decoder", layer=1, token=2, head=head, target=TARGET) for head in range(4)
    ]
    for part, total in (("self", "sum_both"), ("cross", "sum")):
        boxes = [{box["id"]: recomputing.numbers_of(box) for box in one["boxes"]} for one in each]
        rows = np.stack([one[f"{part}.{total}"] for one in boxes])
        for one in boxes:
            np.testing.assert_allclose(one[f"{part}.heads"], rows, atol=1e-6)
        assert np.abs(rows[0] - rows[1]).max() > 1e-3


def test_weights_are_those_of_the_trace(small: Any, recomputing: Any) -> None:
    face = small.small_face("transformer", position="rotary")
    trace = regard.look.trace_text(face, small.TEXT, search=Greedy(), vectors=True)
    found = inside_block(face, small.TEXT, stack="decoder", layer=1, token=3, head=2, search=Greedy())
    boxes = {box["id"]: recomputing.numbers_of(box) for box in found["boxes"]}
    for part, kind in (("self", "dec_self"), ("cross", "cross")):
        one = trace.maps[kind]
        np.testing.assert_allclose(boxes[f"{part}.weights"], one.weights[1, 2, 3], atol=1e-5)
        turned = "_rotated" if part == "self" else ""
        np.testing.assert_allclose(boxes[f"{part}.q{turned}"], one.q[1, 2, 3], atol=1e-4)
        np.testing.assert_allclose(boxes[f"{part}.k{turned}"], one.k[1, 2], atol=1e-4)
        np.testing.assert_allclose(boxes[f"{part}.v"], one.v[1, 2], atol=1e-4)
    assert [token["text"] for token in found["tokens"]] == [token.text for token in trace.axes["read"].tokens]
    assert [token["text"] for token in found["source_tokens"]] == [token.text for token in trace.axes["source"].tokens]


@pytest.mark.parametrize("attention", ["additive", "concat", "bilinear", "dot", "scaled"])
@pytest.mark.parametrize("style", ["bahdanau", "luong", "feeding"])
@pytest.mark.parametrize("cell", some(["gru", "lstm"], 1))
def test_recurrent_translators(attention: str, style: str, cell: str, small: Any, recomputing: Any) -> None:
    more = {"style": "bahdanau"} if style == "bahdanau" else {"style": "luong", "input_feeding": style == "feeding"}
    face = small.small_face("rnn", attention=attention, cell=cell, layers=2, **more)
    ids = face.target_tokenizer.encode(TARGET)
    read, source = torch.tensor([[START, *ids]]), torch.tensor([face.read(small.TEXT).ids])
    with torch.no_grad():
        readouts = face.model.decode(read, face.model.encode(source))[0].numpy()
    trace = regard.look.trace_text(face, small.TEXT, target=TARGET)
    for token in (0, 2):
        found = inside_block(face, small.TEXT, stack="decoder", layer=0, token=token, head=0, target=TARGET)
        last = check(found, face, recomputing)
        np.testing.assert_allclose(last, readouts[token], atol=1e-5)
        boxes = {box["id"]: recomputing.numbers_of(box) for box in found["boxes"]}
        np.testing.assert_allclose(boxes["cross.weights"], trace.maps["rnn"].weights[0, 0, token], atol=1e-5)


def test_the_shipped_model(recomputing: Any) -> None:
    face = regard.load("fr-en")
    found = inside_block(face, "Jane visite l'Afrique", stack="decoder", layer=0, token=1, head=3, search=Greedy())
    check(found, face, recomputing)


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("transformer", {"stack": "middle"}, "unknown stack 'middle'"),
        ("transformer", {"layer": 2}, "layer must be from 0 to 1, got 2"),
        ("transformer", {"layer": -1}, "layer must be from 0 to 1, got -1"),
        ("transformer", {"head": 4}, "head must be from 0 to 3, got 4"),
        ("transformer", {"token": 99}, "token must be from 0 to"),
        ("transformer", {"stack": "encoder", "target": "a"}, "an encoder generates no text"),
        ("transformer-lm", {"stack": "encoder"}, "no encoder made of blocks"),
        ("encoder", {}, "no block with attention"),
        ("rnn", {"stack": "encoder"}, "no encoder made of blocks"),
        ("rnn-lm", {}, "no block with attention"),
        ("sutskever", {}, "no block with attention"),
    ],
)
def test_what_is_not_there(kind: str, more: dict[str, Any], message: str, small: Any) -> None:
    face = small.small_face("rnn", attention="none") if kind == "sutskever" else small.small_face(kind)
    place = {"stack": "decoder", "layer": 0, "token": 0, "head": 0, **more}
    with pytest.raises(UsageError, match=message):
        inside_block(face, small.TEXT, **place)


def test_rounded_numbers_are_refused(small: Any) -> None:
    face = small.small_face("transformer", torch.bfloat16)
    with pytest.raises(UsageError, match="dtype='float32'"):
        inside_block(face, small.TEXT, stack="encoder", layer=0, token=0, head=0)
    face = small.small_face("transformer")
    pack_weights(face.model, "int8")
    with pytest.raises(UsageError, match="dtype='float32'"):
        inside_block(face, small.TEXT, stack="encoder", layer=0, token=0, head=0)


def test_a_parameter_by_name(small: Any) -> None:
    face = small.small_face("transformer")
    name = "decoder.blocks.1.feed_forward.up.bias"
    np.testing.assert_array_equal(read_parameter(face, name), face.model.get_parameter(name).detach().numpy())
    with pytest.raises(UsageError, match=r"unknown parameter .decoder\.blocks\.1\.feed_forward\.up."):
        read_parameter(face, name.removesuffix(".bias"))
