"""Heads switched off and attention forced, held against models whose weights were changed by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import regard
from regard.api.ensemble import join_translators
from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.sample import Sample
from regard.errors import UsageError
from regard.look import force_attention, heads_off, trace_text
from regard.look.trace.trace import Trace
from regard.models.recurrent.translator import RecurrentTranslator

KINDS = ["transformer", "transformer-lm"]
MODERN = {"order": "pre", "norm": "rms", "position": "rotary", "kv_heads": 2, "activation": "swiglu"}
SEARCHES = [Greedy(), Beam(3), Sample(seed=5, temperature=1.4)]


def numbers(trace: Trace) -> list[float]:
    """All that a search saw, in one list."""
    steps = [one.logp for step in trace.steps for one in step.candidates]
    nodes = [] if trace.tree is None else [node.sum for node in trace.tree.nodes]
    return [*steps, *nodes, *(weight for one in trace.maps.values() for weight in one.weights.ravel())]


def without_columns(face: Any, off: list[tuple[str, int, int]]) -> Any:
    """The same model with those columns of W_O at zero that read the heads: another way to silence them."""
    changed = copy.copy(face)
    changed.model = copy.deepcopy(face.model)
    for which, layer, head in off:
        stack = changed.model.encoder if which == "enc_self" else changed.model.decoder
        block = stack.blocks[layer]
        attention = block.cross_attention if which == "cross" else block.self_attention
        with torch.no_grad():
            attention.output.weight[:, head * attention.d_v : (head + 1) * attention.d_v] = 0
    return changed


@settings(max_examples=8)
@given(data=st.data())
def test_off_is_as_if_the_output_matrix_did_not_read_it(data: st.DataObject, small: Any) -> None:
    draw = data.draw
    kind = draw(st.sampled_from(KINDS))
    face = small.small_face(kind, torch.float64, **(MODERN if draw(st.booleans()) else {}))
    which = ["dec_self"] if kind == "transformer-lm" else ["enc_self", "dec_self", "cross"]
    heads = st.tuples(st.sampled_from(which), st.integers(0, 1), st.integers(0, 3))
    off = draw(st.lists(heads, min_size=1, max_size=6, unique=True))
    search = draw(st.sampled_from(SEARCHES))
    plain = trace_text(face, small.TEXT, search=search, max_tokens=5)
    found = trace_text(face, small.TEXT, search=search, max_tokens=5, off=off)
    wanted = trace_text(without_columns(face, off), small.TEXT, search=search, max_tokens=5)
    assert found.output == wanted.output
    np.testing.assert_allclose(numbers(found), numbers(wanted), atol=1e-9)
    assert found.notes[-1] == "Head {2} of layer {1} of {0} is switched off.".format(*off[-1])
    after = trace_text(face, small.TEXT, search=search, max_tokens=5)
    assert after.output == plain.output and numbers(after) == numbers(plain)  # identical, not only close
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in face.model.modules())


def test_off_changes_something(small: Any) -> None:
    face = small.small_face("transformer")
    found = trace_text(face, small.TEXT, target="the cat", off=[("cross", 1, 2)])
    plain = trace_text(face, small.TEXT, target="the cat")
    assert np.abs(np.array(numbers(found)) - numbers(plain)).max() > 1e-2


def test_an_encoder_that_only_reads(small: Any) -> None:
    face = small.small_face("encoder", torch.float64)
    off = [("enc_self", 0, 1)]
    found = trace_text(face, small.TEXT, off=off)
    wanted = trace_text(without_columns(face, off), small.TEXT)
    np.testing.assert_allclose(numbers(found), numbers(wanted), atol=1e-9)
    with heads_off(face.model, off):
        vector = face.embed(small.TEXT)
    np.testing.assert_allclose(vector, without_columns(face, off).embed(small.TEXT), atol=1e-9)


@pytest.mark.parametrize("form", ["packed", "int8"])
def test_a_decoder_in_c_leaves_it_to_the_modules(form: Any, small: Any) -> None:
    face, off = small.small_face("transformer"), [("cross", 0, 0), ("dec_self", 1, 3)]
    pack_weights(face.model, form)
    plain = trace_text(face, small.TEXT, search=Beam(2), max_tokens=6)
    found = trace_text(face, small.TEXT, search=Beam(2), max_tokens=6, off=off)
    assert found.tree.nodes[0].logp != pytest.approx(plain.tree.nodes[0].logp, abs=1e-3)
    # What the search saw step by step is what one pass over the text sees: both were silenced.
    (first,) = [one.logp for one in found.steps[0].candidates if one.token == found.tree.nodes[0].token]
    assert found.tree.nodes[0].logp == pytest.approx(first, abs=1e-2 if form == "int8" else 1e-4)


@pytest.mark.parametrize("style", ["bahdanau", "luong"])
def test_a_recurrent_translator_without_its_context(style: str, small: Any) -> None:
    face = small.small_face("rnn", torch.float64, style=style)
    changed = copy.copy(face)
    changed.model = copy.deepcopy(face.model)
    model: RecurrentTranslator = changed.model
    decoder: Any = model.decoder
    width = model.encoder.width
    with torch.no_grad():
        if style == "bahdanau":  # f(y, c) and [s; c; y]
            decoder.rnn.weight_ih_l0[:, decoder.embedding.dim :] = 0
            decoder.readout.weight[:, 16 : 16 + width] = 0
        else:  # [c; s]
            decoder.readout.weight[:, :width] = 0
    found = trace_text(face, small.TEXT, search=Beam(3), max_tokens=6, off=[("rnn", 0, 0)])
    wanted = trace_text(changed, small.TEXT, search=Beam(3), max_tokens=6)
    assert found.output == wanted.output
    steps = [[one.logp for step in trace.steps for one in step.candidates] for trace in (found, wanted)]
    np.testing.assert_allclose(*steps, atol=1e-9)


@pytest.mark.parametrize(
    ("off", "message"),
    [
        ([("crosses", 0, 0)], "unknown map 'crosses'; did you mean 'cross'"),
        ([("cross", 2, 0)], "cross has layers 0 to 1, not 2"),
        ([("cross", 0, 4)], "cross has heads 0 to 3 in each layer, not 4"),
        ([("cross", 0, -1)], "not -1"),
    ],
)
def test_heads_that_are_not_there(off: list[Any], message: str, small: Any) -> None:
    face = small.small_face("transformer")
    with pytest.raises(UsageError, match=message):
        trace_text(face, small.TEXT, off=off)


def test_models_without_heads(small: Any) -> None:
    with pytest.raises(UsageError, match="none of regard's attention layers"):
        trace_text(small.small_face("rnn", attention="none"), small.TEXT, off=[("rnn", 0, 0)])
    joined = join_translators([small.small_face("transformer"), small.small_face("transformer")])
    with pytest.raises(UsageError, match="an ensemble has several models"):
        trace_text(joined, small.TEXT, off=[("cross", 0, 0)])
    with heads_off(joined.model.models[0], [("cross", 0, 0)]):
        trace_text(joined, small.TEXT, max_tokens=4)


def test_hooks_go_even_when_something_fails(small: Any) -> None:
    face = small.small_face("transformer")
    contexts: list[Callable[[], Any]] = [
        lambda: heads_off(face.model, [("cross", 0, 0)]),
        lambda: force_attention(face.model, {"decoder.0.cross": "uniform"}),
    ]
    for context in contexts:
        with pytest.raises(RuntimeError), context():
            raise RuntimeError
        with pytest.raises(UsageError), context(), force_attention(face.model, {"decoder.9.cross": 0}):
            pass
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in face.model.modules())


@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "alibi", "relative", "t5"])
def test_forced_to_look_where_it_looks_nothing_changes(position: str, small: Any) -> None:
    """The weights that a model uses by itself, given back to it, give the same output."""
    face = small.small_face("transformer", torch.float64, position=position)
    ids, target = torch.tensor([face.read(small.TEXT).ids]), torch.tensor([[1, 5, 6, 7]])
    with torch.no_grad():
        with regard.record(face.model) as seen:
            plain = face.model(ids, target)
        with force_attention(face.model, dict(seen)), regard.record(face.model) as again:
            forced = face.model(ids, target)
    torch.testing.assert_close(forced, plain, atol=1e-9, rtol=0)
    for name, weights in seen.items():
        torch.testing.assert_close(again[name], weights, atol=1e-9, rtol=0)


@settings(max_examples=4)
@given(data=st.data())
def test_the_weights_used_are_those_given(data: st.DataObject, small: Any) -> None:
    face = small.small_face("transformer", torch.float64, position="rotary")
    n = len(face.read(small.TEXT).ids)
    layer, key = data.draw(st.integers(0, 1)), data.draw(st.integers(0, n - 1))
    name, weights = f"decoder.{layer}.cross", torch.rand(4, 1, n, dtype=torch.float64).softmax(-1)
    wanted = {"uniform": np.full((4, n), 1 / n), key: np.tile(np.eye(n)[key], (4, 1)), "own": weights[:, 0].numpy()}
    for look, rows in wanted.items():
        with force_attention(face.model, {name: weights if look == "own" else look}):
            trace = trace_text(face, small.TEXT, search=Beam(2), max_tokens=5)
        used = trace.maps["cross"].weights[layer]
        np.testing.assert_allclose(used, np.repeat(rows[:, None], used.shape[1], 1), atol=1e-6)
        other = trace.maps["cross"].weights[1 - layer]
        assert np.abs(other - np.repeat(rows[:, None], used.shape[1], 1)).max() > 1e-3


def test_uniform_attention_is_the_mean_of_the_values(small: Any) -> None:
    layer = regard.MultiHeadAttention(dim=8, heads=2, dropout=0.0).double()
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    _, _, v = layer.input(x, x, x)
    seen = torch.stack([v[:, :, : i + 1].mean(2).flatten(1) for i in range(5)], 1)  # what a causal mask leaves
    with force_attention(layer, {"attention": "uniform"}):
        torch.testing.assert_close(layer(x, causal=True), layer.output(seen))
    with force_attention(layer, {"attention": 0}):
        torch.testing.assert_close(
            layer(x, causal=True), layer.output(v[:, :, :1].expand(3, 2, 5, 4).transpose(1, 2).flatten(2))
        )


def test_a_recurrent_translator_is_forced_too(small: Any) -> None:
    face = small.small_face("rnn")
    with force_attention(face.model, {"decoder.cross": 2}):
        trace = trace_text(face, small.TEXT, search=Beam(2), max_tokens=5)
    assert (trace.maps["rnn"].weights[0, 0].argmax(-1) == 2).all() and trace.maps["rnn"].weights[..., 2].min() == 1


@pytest.mark.parametrize(
    ("looks", "message"),
    [
        ({"decoder.2.cross": 0}, "unknown attention layer 'decoder.2.cross'"),
        ({"decoder.0.cross": "even"}, "pass 'uniform'"),
        ({"decoder.0.cross": 99}, "there is no key 99; the keys are 0 to"),
        ({"decoder.0.cross": torch.ones(2, 3)}, "do not fit"),
        ({"decoder.0.cross": -torch.ones(1, 8)}, "weights must be non-negative"),
        ({"decoder.0.cross": torch.ones(8)}, "weights must be non-negative"),
    ],
)
def test_looks_that_mean_nothing(looks: Any, message: str, small: Any) -> None:
    face = small.small_face("transformer")
    with pytest.raises(UsageError, match=message), force_attention(face.model, looks):
        trace_text(face, small.TEXT, target="the cat")


def test_the_end_token_as_a_prefix_ends_the_text(small: Any) -> None:
    face = small.small_face("transformer")
    ids = [*face.target_tokenizer.encode("the cat"), regard.text.tokenizers.special_tokens.END]
    trace = trace_text(face, small.TEXT, prefix=ids)
    assert trace.output == "the cat" and all(step.given for step in trace.steps) and len(trace.steps) == len(ids)
    with pytest.raises(UsageError, match="continues after the end token"):
        trace_text(face, small.TEXT, prefix=[*ids, 5])
