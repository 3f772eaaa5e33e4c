"""Queries, keys and values in traces: the weights of the trace come from them again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from regard.api.ensemble import join_translators
from regard.look import trace_text
from regard.look.trace.attention_map import Map
from regard.look.trace.trace import Trace

from ...repeats import some


def weights_again(one: Map, score: Any) -> np.ndarray:
    """softmax of the scores of q and k, groups of heads sharing keys, masked as the map says."""
    assert one.q is not None and one.k is not None
    k = np.repeat(one.k, one.q.shape[1] // one.k.shape[1], axis=1)
    scores = score(one.q.astype(np.float64), k.astype(np.float64))
    if one.mask is not None:
        scores = np.where(one.mask, scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def scaled(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    return q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])


@pytest.mark.parametrize("position", ["none", "sinusoidal", "rotary"])
@settings(max_examples=3)
@given(data=st.data())
def test_transformers(position: str, data: st.DataObject, small: Any) -> None:
    kind = data.draw(st.sampled_from(["transformer", "transformer-lm", "encoder"]))
    form = data.draw(st.sampled_from(["projected", "slice"]))
    face = small.small_face(
        kind,
        position=position,
        order=data.draw(st.sampled_from(["pre", "post"])),
        form=form,
        kv_heads=data.draw(st.sampled_from([None, 1, 2])) if form == "projected" else None,
        qk_norm=data.draw(st.booleans()),
    )
    trace = trace_text(face, small.TEXT, vectors=True)
    assert trace.maps
    for one in trace.maps.values():
        np.testing.assert_allclose(weights_again(one, scaled), one.weights, atol=2e-4)
        assert one.v is not None and one.v.shape[:3] == one.k.shape[:3]
    again = Trace.from_dict(trace.to_dict())
    for name, one in trace.maps.items():
        np.testing.assert_allclose(again.maps[name].q.astype(float), one.q, atol=2e-2)


@pytest.mark.parametrize("attention", some(["additive", "concat", "bilinear", "dot", "scaled"], 2))
@pytest.mark.parametrize("style", ["bahdanau", "luong"])
def test_recurrent_translators(attention: str, style: str, small: Any) -> None:
    face = small.small_face("rnn", attention=attention, style=style)
    one = trace_text(face, small.TEXT, vectors=True).maps["rnn"]
    score = face.model.decoder.cross_attention.score

    def compare(q: np.ndarray, k: np.ndarray) -> np.ndarray:
        if attention in ("additive", "concat"):
            return np.tanh(q[..., :, None, :] + k[..., None, :, :]) @ score.weight.detach().numpy()
        return q @ k.swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1]) if attention == "scaled" else 1.0)

    np.testing.assert_allclose(weights_again(one, compare), one.weights, atol=1e-4)


def test_they_come_only_if_wanted_and_leave_no_hooks(small: Any) -> None:
    face = small.small_face("transformer")
    assert all(one.q is one.k is one.v is None for one in trace_text(face, small.TEXT).maps.values())
    trace_text(face, small.TEXT, vectors=True)
    assert not any(module._forward_pre_hooks for module in face.model.modules())


def test_an_ensemble_has_those_of_its_first_model(small: Any) -> None:
    first, second = small.small_face("transformer", position="rotary"), small.small_face("transformer", order="pre")
    joined = trace_text(join_translators([first, second]), small.TEXT, target="the cat", vectors=True)
    alone = trace_text(first, small.TEXT, target="the cat", vectors=True)
    for name, one in alone.maps.items():
        np.testing.assert_allclose(joined.maps[name].v, one.v, atol=1e-5)
