"""The step in C of a fused layer against the plain step, which is taken wherever C cannot be."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import regard
from regard.attention.linear.cache import FeatureCache
from regard.attention.linear.feature_maps import MAPS, Hyperbolic
from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.linear.state import EMPTY
from regard.kernels import fuse
from regard.kernels.native import linear_step as step_native
from regard.positions.rotary import Interpolation, Rotary

from ...repeats import by_default, some

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="COMPILER: there is none for C")


def make(name: str = "hyperbolic", **settings: Any) -> RandomFeatureAttention:
    """Widths that are no multiples of a vector's, and numbers as training leaves them."""
    torch.manual_seed(3)
    plain: dict[str, Any] = {"dim": 36, "heads": 6, "features": 6 if name == "elu" else 130}
    if name != "elu":
        plain["learned_scale"] = True
    layer = fuse(RandomFeatureAttention(**{**plain, "map": name, **settings})).eval()
    for parameter in layer.parameters():
        if parameter.dim() == 1 or parameter is layer.features.sigma:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
    return layer


def step(layer: RandomFeatureAttention, x: Tensor, cache: Any) -> tuple[Tensor, bool]:
    """The layer's step, and whether it was taken in C."""
    taken = []
    code = step_native.compiled()

    class Watched:
        def feature_step(self, *given: Any) -> int:
            taken.append(given)
            return code.feature_step(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_native, "compiled", lambda: Watched())
        return layer(x, causal=True, cache=cache), bool(taken)


def by_torch(layer: RandomFeatureAttention, x: Tensor, cache: Any) -> Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_native, "compiled", lambda: None)
        return layer(x, causal=True, cache=cache)


def assert_close(got: Tensor, want: Tensor, tolerance: float = 1e-5, least: float = 1e-30) -> None:
    """Relative to the largest number."""
    error = (got.double() - want.double()).abs().amax() / want.double().abs().amax().clamp_min(least)
    assert got.dtype == torch.float32 and float(error) <= tolerance


def assert_states_close(ours: FeatureCache, theirs: FeatureCache, tolerance: float = 1e-5) -> None:
    for part in ("S", "z", "log_scale", "log_decay"):
        least = 1e-30 if part in "Sz" else 1.0  # the others are exponents
        assert_close(getattr(ours.state, part), getattr(theirs.state, part), tolerance, least)


def test_exponentials() -> None:
    x = torch.cat([torch.linspace(-87, 88, 200_001), torch.tensor([0.0, -87.5, -1e4, EMPTY, float("-inf")])])
    y = x.clone()
    step_native.compiled().exponentials_of(ctypes.c_void_p(y.data_ptr()), len(y))
    usual = x >= -87
    assert float((y.double() / x.double().exp() - 1)[usual].abs().max()) < 2e-7
    assert y[200_001] == 1 and not y[~usual].any()


@pytest.mark.parametrize("name", MAPS)
@given(
    rows=st.integers(1, 3),
    kv_heads=st.sampled_from([1, 2, 6]),
    gate=st.booleans(),
    position=st.sampled_from([None, "halves", "interleaved", "part"]),
    normalize=st.booleans(),
    prompt=st.integers(0, 3),
)
def test_steps_are_those_of_torch(
    name: str, rows: int, kv_heads: int, gate: bool, position: str | None, normalize: bool, prompt: int
) -> None:
    turns: Any = None
    if position is not None:
        part = {"fraction": 0.5, "scaling": Interpolation(2.0)} if position == "part" else {"layout": position}
        turns = Rotary(head_dim=4 if position == "part" else 6, **part)  # type: ignore[arg-type]
    settings: dict[str, Any] = {} if name == "elu" else {"normalize": normalize}
    if position == "part":
        settings |= {"d_k": 4, "d_v": 7, "features": 4 if name == "elu" else 130}
    layer = make(name, kv_heads=kv_heads, gate=gate, position=turns, **settings)
    x = torch.randn(rows, prompt + 5, 36)
    with torch.no_grad():
        ours, theirs = layer.new_cache(rows), layer.new_cache(rows)
        if prompt:
            for cache in (ours, theirs):
                layer(x[:, :prompt], causal=True, cache=cache)
        for t in range(prompt, prompt + 5):
            got, in_c = step(layer, x[:, t : t + 1], ours)
            assert in_c
            # Sums of waves of long vectors come near 0 by chance, and a quotient by them has few digits.
            few = name in ("trig", "plain") and not normalize
            assert_close(got, by_torch(layer, x[:, t : t + 1], theirs), 1e-3 if few else 1e-5)
    assert_states_close(ours, theirs)
    assert torch.equal(ours.lengths, theirs.lengths)


@pytest.mark.parametrize("name", by_default({True}, MAPS))
@pytest.mark.parametrize("gate", [False, True])
def test_many_steps_are_the_whole_text(name: str, gate: bool) -> None:
    layer = make(name, kv_heads=3, gate=gate, position="rotary")
    x = torch.randn(2, 400, 36)
    with torch.no_grad():
        cache = layer.new_cache(2)
        got = torch.cat([layer(x[:, t : t + 1], causal=True, cache=cache) for t in range(400)], dim=1)
        want = layer.double()(x.double(), causal=True)
    assert_close(got, want)


@pytest.mark.parametrize("log_scale", some([EMPTY, -3e4, -90.0, 90.0, 3e4], 3))
@pytest.mark.parametrize("scale", some([0.0, 1.0, 300.0], 2))
@pytest.mark.parametrize("name", ["hyperbolic", "optimal", "positive"])
def test_levels_far_apart(name: str, scale: float, log_scale: float) -> None:
    """An old text that outweighs the new key by far, or is outweighed; keys that are longer than any exponent bears."""
    layer = make(name, gate=True, normalize=False)
    x = scale * torch.randn(2, 1, 36)
    with torch.no_grad():
        ours, theirs = layer.new_cache(2), layer.new_cache(2)
        for cache in (ours, theirs):
            torch.manual_seed(5)
            if log_scale != EMPTY:
                cache.state.S.normal_()
                cache.state.z.uniform_(0.1, 1.0)
            cache.state.log_scale.fill_(log_scale)
        got, _ = step(layer, x, ours)
        want = by_torch(layer, x, theirs)
    assert got.isfinite().all()
    tolerance = 1e-5 if scale < 300 else 1e-3  # an exponent of some thousands has few digits behind 0
    assert_close(got, want, tolerance)
    assert_states_close(ours, theirs, tolerance)


@pytest.mark.parametrize("name", MAPS)
def test_a_token_of_zeros(name: str) -> None:
    """It has no direction, and stays what it is."""
    layer = make(name, bias=False)
    with torch.no_grad():
        ours, theirs = layer.new_cache(1), layer.new_cache(1)
        for x in (torch.zeros(1, 1, 36), torch.randn(1, 1, 36)):
            got, _ = step(layer, x, ours)
            assert_close(got, by_torch(layer, x, theirs))


def test_keys_without_weight_give_zeros() -> None:
    """Features of elu vanish where keys are far below 0, and then there is nothing to divide by."""
    layer = make("elu")
    assert layer.output is not None
    with torch.no_grad():
        layer.input.bias[36:72] = -1e4  # type: ignore[index]
        got, in_c = step(layer, torch.randn(2, 1, 36), layer.new_cache(2))
    assert in_c and torch.equal(got, layer.output.bias.expand(2, 1, 36))


def test_rows_know_nothing_of_each_other_bit_by_bit_and_threads_change_nothing() -> None:
    layer = make(position="rotary", kv_heads=2)
    q, k, v = (torch.randn(9, heads, 1, 6) for heads in (6, 2, 2))

    def steps(rows: slice, threads: int) -> Tensor:
        cache = layer.new_cache(9).select(torch.arange(9)[rows])
        cache.lengths += torch.arange(9)[rows]
        torch.set_num_threads(threads)
        for _ in range(3):
            y = step_native.step_in_c(
                q[rows], k[rows], v[rows], features=layer.features, position=layer.position, gate=None, cache=cache
            )
        assert y is not None
        return y

    before = torch.get_num_threads()
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_native, "A_THREAD", 1)
        together = steps(slice(None), 1)
        assert torch.equal(steps(slice(None), 4), together)
        for i in (0, 4, 8):
            assert torch.equal(steps(slice(i, i + 1), 1), together[i : i + 1])
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Own(Hyperbolic):
    """What somebody made of a map of ours."""


class Turning(Rotary):
    """And of a scheme."""


@pytest.mark.parametrize(
    "why",
    ["nothing", "float64", "map", "position", "hook", "graph", "strides", "heads", "compiler", "wide", "scaling"],
)
def test_what_is_left_to_torch(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    position: Any = {
        "position": Turning(head_dim=6),
        "scaling": Rotary(head_dim=6, scaling=Unhashable()),
    }.get(why, Rotary(head_dim=6))
    layer = make(Own() if why == "map" else "hyperbolic", position=position)  # type: ignore[arg-type]
    x = torch.randn(2, 1, 36)
    if why == "float64":
        layer, x = layer.double(), x.double()
    elif why == "hook":
        layer.features.register_forward_hook(lambda *given: None)
    elif why == "heads":
        layer.input.register_forward_hook(
            lambda module, given, made: [part.repeat(1, 1, 1, 2)[..., :6] for part in made]
        )
    elif why == "compiler":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    elif why == "wide":
        monkeypatch.setattr(step_native, "STACK", 80)
    with torch.no_grad():
        ours, theirs = layer.new_cache(2), layer.new_cache(2)
        if why == "graph":
            ours.state.S.requires_grad_()
        elif why == "strides":
            object.__setattr__(ours.state, "S", ours.state.S.mT.contiguous().mT)
        got, in_c = step(layer, x, ours)
        want = by_torch(layer, x, theirs)
    assert in_c == (why == "nothing")
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(ours.state.S, theirs.state.S)


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, theta: Tensor) -> Tensor:
        return theta / 2


def test_gradients_and_recording_take_the_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = make()
    monkeypatch.setattr(step_native, "step_in_c", None)  # it would fail
    x = torch.randn(1, 1, 36)
    layer(x, causal=True, cache=layer.new_cache(1)).sum().backward()
    assert layer.features.sigma is not None and layer.features.sigma.grad is not None
    with torch.no_grad(), regard.record(layer) as recording:
        layer(x, causal=True, cache=layer.new_cache(1, 1))
    assert len(recording) == 1


def test_another_learned_scale_or_draw_is_seen_at_once() -> None:
    """Nothing of the layer's numbers is kept between two steps."""
    layer = make(redraw_every=1)
    x = torch.randn(1, 1, 36)
    with torch.no_grad():
        for change in (lambda: layer.features.sigma.mul_(1.5), lambda: layer.train().features.redraw(2)):  # type: ignore[union-attr]
            change()
            ours, theirs = layer.new_cache(1), layer.new_cache(1)
            for _ in range(2):
                got, in_c = step(layer, x, ours)
                assert in_c
                assert_close(got, by_torch(layer, x, theirs))


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_NATIVE", "0")
    step_native.compiled.cache_clear()
    layer = make(position="rotary")
    with torch.no_grad():
        y = layer(torch.randn(2, 1, 36), causal=True, cache=layer.new_cache(2))
    assert y.shape == (2, 1, 36) and step_native.compiled() is None
    step_native.compiled.cache_clear()
