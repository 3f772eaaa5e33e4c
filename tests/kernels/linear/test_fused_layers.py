"""`fuse` gives layers of random features their kernels, shares the parameters, and leaves unknown options alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch

from regard import MixedAttention, MultiHeadAttention, RandomFeatureAttention, RandomFeatures
from regard.attention.linear.state import empty_state
from regard.kernels import fuse
from regard.kernels.linear import attend, capabilities, fused_layers
from regard.kernels.linear.fused_layers import FusedRandomFeatureAttention
from regard.kernels.native import linear_step
from regard.positions import Rotary

INVENTED = "an invented option"


def make(**settings: Any) -> RandomFeatureAttention:
    return RandomFeatureAttention(**{"dim": 32, "heads": 2, "features": 32, "position": "rotary"} | settings)


@pytest.fixture
def invent(monkeypatch: pytest.MonkeyPatch) -> Callable[[type], None]:
    """Give a class a trait that nobody has heard of."""

    def add(kind: type) -> None:
        plain: Any = kind.traits  # type: ignore[attr-defined]
        monkeypatch.setattr(kind, "traits", property(lambda module: plain.fget(module) | {INVENTED}))

    return add


def test_a_fused_layer_is_the_same_layer() -> None:
    layer = make(gate=True, learned_scale=True)
    names, parameters, traits = list(layer.state_dict()), list(layer.parameters()), layer.traits
    x = torch.randn(2, 9, 32)
    wanted = layer(x, causal=True)
    assert fuse(layer) is layer and type(layer) is FusedRandomFeatureAttention
    assert isinstance(layer, RandomFeatureAttention) and layer.traits == traits
    assert list(layer.state_dict()) == names
    assert all(a is b for a, b in zip(layer.parameters(), parameters, strict=True))
    torch.testing.assert_close(layer(x, causal=True), wanted, rtol=0, atol=0)
    assert type(fuse(layer)) is FusedRandomFeatureAttention  # once more changes nothing


def test_random_heads_of_a_mixed_layer_are_fused() -> None:
    exact = MultiHeadAttention(dim=32, heads=1, d_k=16, d_v=16, output=False)
    random = make(heads=1, d_k=16, d_v=16, output=False, position=None)
    layer = fuse(MixedAttention(exact=exact, random=random, exact_heads=[1]))
    assert type(layer.random) is FusedRandomFeatureAttention and "mixed-heads" in layer.traits


@pytest.mark.parametrize("kind", [RandomFeatureAttention, RandomFeatures])
def test_a_layer_with_an_unknown_trait_stays_plain(kind: type, invent: Callable[[type], None]) -> None:
    invent(kind)
    layer = make()
    reason = FusedRandomFeatureAttention.why_not_fuse(layer)
    assert reason is not None and INVENTED in reason
    assert type(fuse(layer)) is RandomFeatureAttention


def test_the_kernels_refuse_features_with_an_unknown_trait(invent: Callable[[type], None]) -> None:
    """Triton as if it ran here: a call of a kernel would fail, and the plain code answers."""
    features, (q, k, v) = RandomFeatures(dim=16, features=32), torch.randn(3, 1, 2, 9, 16)
    state = empty_state(v[:, :, :0], 32)
    x, value = torch.randn(1, 2, 2, 16), v[:, :, :1]
    wanted = attend.dispatch.attend_features(q, k, v, features=features, causal=True)
    with (
        patch.object(capabilities, "runs_triton", return_value=True),
        patch.object(attend, "runs_triton", lambda x: True),
    ):
        known: tuple[Any, ...] = (features, None, True, None, False)
        assert capabilities.why_not_attend(q, k, v, *known) is None
        assert capabilities.why_not_step(x, value, features, state) is None
        with patch.object(attend, "run_kernels", side_effect=AssertionError), pytest.raises(AssertionError):
            attend.attend_features(q, k, v, features=features, causal=True)
        invent(RandomFeatures)
        assert INVENTED in str(capabilities.why_not_attend(q, k, v, *known))
        assert INVENTED in str(capabilities.why_not_step(x, value, features, state))
        with patch.object(attend, "run_kernels", side_effect=AssertionError):
            got = attend.attend_features(q, k, v, features=features, causal=True)
        with patch("regard.kernels.linear.step_triton.take_step_fused", side_effect=AssertionError):
            fused_layers.take_step(x, value, features=features, gate=None, state=state)
        with pytest.raises(ValueError, match=f"'triton' cannot do this: not implemented here: {INVENTED}"):
            attend.attend_features(q, k, v, features=features, causal=True, backend="triton")
    assert torch.equal(got, wanted)
    assert state.S.any()


@pytest.mark.skipif(not shutil.which("cc"), reason="COMPILER: there is none for C")
@pytest.mark.parametrize("kind", [None, Rotary, RandomFeatures, RandomFeatureAttention])
def test_the_step_in_c_refuses_an_unknown_trait(kind: type | None, invent: Callable[[type], None]) -> None:
    if kind is not None:
        invent(kind)
    layer, x = make().eval(), torch.randn(3, 1, 32)
    plain, refused = linear_step.why_not(layer), kind is not None
    assert (plain is not None and INVENTED in plain) if refused else plain is None
    with torch.no_grad(), patch.object(linear_step, "step_in_c", wraps=linear_step.step_in_c) as in_c:
        wanted = layer(x, causal=True, cache=layer.new_cache(3))
        assert not in_c.called  # a plain layer knows nothing of C
        torch.testing.assert_close(fuse(layer)(x, causal=True, cache=layer.new_cache(3)), wanted)
    assert in_c.called != refused
