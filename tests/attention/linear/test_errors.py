"""What cannot be done is refused with a sentence that says what can."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard import masks
from regard.attention.linear.dispatch import attend_features, query_state, sum_keys
from regard.attention.linear.features import RandomFeatures

FEATURES = RandomFeatures(dim=8, features=16)
Q, K = torch.zeros(2, 4, 5, 8), torch.zeros(2, 2, 5, 8)


@pytest.mark.parametrize(
    "mask",
    [
        masks.window(2),
        masks.causal() & masks.window(2),
        masks.document([0, 0, 1, 1, 1]),
        masks.causal() | masks.padding([5, 3]),
        torch.ones(5, 5, dtype=torch.bool).tril(),
        masks.padding([5, 3]) & torch.ones(2, 1, 5, 5, dtype=torch.bool),
        torch.ones(2, 4, 1, 5, dtype=torch.bool),
    ],
    ids=["window", "causal and window", "document", "either", "matrix", "padding and matrix", "heads of a group"],
)
def test_masks_that_cannot_be_represented(mask: Any) -> None:
    with pytest.raises(ValueError, match=r"causal \(causal=True.*which keys exist.*both with &.*regard.attend"):
        attend_features(Q, K, K, features=FEATURES, mask=mask)


@pytest.mark.parametrize(
    "mask",
    [
        masks.causal(),
        masks.padding([5, 3]),
        masks.causal() & masks.padding([5, 3]) & masks.padding(torch.ones(2, 5, dtype=torch.bool)),
        torch.ones(5, dtype=torch.bool),
        torch.ones(2, 1, 1, 5, dtype=torch.bool) & masks.causal(),
    ],
)
def test_masks_that_can(mask: Any) -> None:
    assert attend_features(Q, K, K, features=FEATURES, mask=mask).shape == Q.shape


def test_wrong_arguments() -> None:
    state = sum_keys(K, K, features=FEATURES)
    with pytest.raises(TypeError, match="mask must be bool"):
        attend_features(Q, K, K, features=FEATURES, mask=torch.zeros(5, 5))
    with pytest.raises(TypeError, match="mask must be a regard mask or a bool tensor, got list"):
        attend_features(Q, K, K, features=FEATURES, mask=[True])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="for queries and keys of width 8, got 6"):
        attend_features(Q[..., :6], K[..., :6], K, features=FEATURES)
    with pytest.raises(ValueError, match="W for 3 key-value heads, and k has 2"):
        attend_features(Q, K, K, features=RandomFeatures(dim=8, heads=3))
    with pytest.raises(ValueError, match="gate lets the past fade, so it is for causal attention"):
        attend_features(Q, K, K, features=FEATURES, gate=torch.zeros(2, 2, 5))
    with pytest.raises(ValueError, match=r"gate must have one number per key, \(B, G, n\) = \(2, 2, 5\)"):
        attend_features(Q, K, K, features=FEATURES, causal=True, gate=torch.zeros(2, 4, 5))
    with pytest.raises(ValueError, match="unknown backend 'chunk'; did you mean 'chunked'"):
        attend_features(Q, K, K, features=FEATURES, backend="chunk")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        attend_features(Q, K, K, features=FEATURES, causal=True, chunk=0)
    with pytest.raises(ValueError, match="no weights with a state"):
        attend_features(Q, K, K, features=FEATURES, state=state, return_weights=True)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"state has shape \(2, 2, 16, 8\), and these keys need .* \(1, 2, 16, 8\)"):
        attend_features(Q[:1], K[:1], K[:1], features=FEATURES, state=state)
    with pytest.raises(ValueError, match="a causal mask compares keys with queries"):
        sum_keys(K, K, features=FEATURES, mask=masks.causal() & masks.padding([5, 3]))
    with pytest.raises(ValueError, match=r"does not fit a state of \(2, 2, 16, 8\)"):
        query_state(Q[:, :3], state, features=FEATURES)
    with pytest.raises(ValueError, match="for queries of width 8, got 6"):
        query_state(Q[..., :6], state, features=FEATURES)


def test_another_draw_with_an_open_state() -> None:
    """Features of two draws have nothing in common: a text that was begun with one W cannot go on with another."""
    features = RandomFeatures(dim=8, features=16, seed=3, redraw_every=10)
    _, state = attend_features(Q, K, K, features=features, causal=True, return_state=True)
    features.redraw(25)
    for use in (
        lambda: attend_features(Q, K, K, features=features, causal=True, state=state),
        lambda: sum_keys(K, K, features=features, state=state),
        lambda: query_state(Q, state, features=features),
        lambda: state.merge(sum_keys(K, K, features=features)),
        lambda: state.join([state, sum_keys(K, K, features=features)]),
    ):
        with pytest.raises(ValueError, match=r"draw \d of seed 3, and W is now draw \d of seed 3: finish a text with"):
            use()
