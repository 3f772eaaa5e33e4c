"""Traces of models with random features: marked, heads in their places, and what cannot be shown is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.errors import UsageError
from regard.look import force_attention, heads_off, inside_block, trace_text

MIXED = {"attention": "random-features", "features": 16, "exact_heads": ("encoder", "decoder.*.self:0")}


@pytest.mark.parametrize("kv_heads", [None, 2])
def test_a_trace_marks_estimates_and_brings_the_vectors_of_each_head(kv_heads: int | None, small: Any) -> None:
    exact = ("encoder", "decoder.*.self:0,1")
    face = small.small_face(
        "transformer", position="rotary", heads=4, kv_heads=kv_heads, **{**MIXED, "exact_heads": exact}
    )
    trace = trace_text(face, small.TEXT, vectors=True)
    assert {kind: one.random_features for kind, one in trace.maps.items()} == {
        "enc_self": False, "dec_self": True, "cross": True,
    }  # fmt: skip
    assert "estimates" in trace.notes[0]
    one = trace.maps["dec_self"]
    assert one.q is not None and one.k is not None and one.mask is not None
    k = np.repeat(one.k, one.q.shape[1] // one.k.shape[1], axis=1)
    scores = np.where(one.mask, one.q @ k.swapaxes(-1, -2) / np.sqrt(one.q.shape[-1]), -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    exact_weights = shares / shares.sum(-1, keepdims=True)
    np.testing.assert_allclose(one.weights[:, :2], exact_weights[:, :2], atol=2e-4)
    assert np.abs(one.weights[:, 2:] - exact_weights[:, 2:]).max() > 0.01
    np.testing.assert_allclose(one.weights.sum(-1), 1, atol=1e-4)


def test_softmax_is_not_marked(small: Any) -> None:
    trace = trace_text(small.small_face("transformer"), small.TEXT)
    assert not trace.notes and not any(one.random_features for one in trace.maps.values())


def test_any_head_can_be_switched_off(small: Any) -> None:
    """What is left of a layer whose heads are all off is the bias of W^O; one head off is less than that."""
    face = small.small_face("transformer-lm", heads=2, **{**MIXED, "exact_heads": "decoder.*.self:1"})
    layer = face.model.decoder.blocks[0].self_attention
    seen: list[Any] = []
    handle = layer.register_forward_hook(lambda module, args, result: seen.append(result))
    for off in ([], [0], [1], [0, 1]):
        with heads_off(face.model, [("dec_self", 0, head) for head in off]):
            face.model(torch.tensor([[2, 5, 6, 7, 5]]))
    handle.remove()
    whole, no_random, no_exact, nothing = seen
    assert (nothing - layer.output.bias).abs().max() < 1e-6
    together = no_random + no_exact - layer.output.bias
    assert (together - whole).abs().max() < 1e-5 and (no_random - no_exact).abs().max() > 1e-3


def test_what_cannot_be_shown_is_refused(small: Any) -> None:
    face = small.small_face("transformer", **{**MIXED, "exact_heads": "encoder"})
    refused = pytest.raises(UsageError, match="uses random features, which have no scores")
    with refused, force_attention(face.model, {"decoder.0.cross": "uniform"}):
        pass
    inside_block(face, small.TEXT, stack="encoder", layer=0, token=0, head=0)
    with pytest.raises(UsageError, match="uses random features or a window"):
        inside_block(face, small.TEXT, stack="decoder", layer=0, token=0, head=0)
    near = small.small_face("transformer", window=2)
    with pytest.raises(UsageError, match="uses random features or a window"):
        inside_block(near, small.TEXT, stack="encoder", layer=0, token=0, head=0)
    with regard.record(face.model) as maps:
        face.translate(small.TEXT)
    assert maps
