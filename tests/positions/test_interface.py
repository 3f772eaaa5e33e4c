"""What holds for every scheme: the stages, the names, dtypes, rows at different places, compilation, errors."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

import regard.positions
from regard.errors import UsageError
from regard.positions import POSITIONS, Interpolation, Learned, Position, Rotary, ShawRelative, T5Buckets, make_position

B, H, DIM, D = 2, 4, 32, 8
SCHEMES = {name: make_position(name, dim=DIM, heads=H, max_length=64) for name in POSITIONS}
SCHEMES |= {
    "learned, concatenated": Learned(max_length=64, dim=DIM, mode="concat", width=5),
    "rotary, interleaved": Rotary(head_dim=D, layout="interleaved", fraction=0.5, scaling=Interpolation(2.0)),
    "relative, keys only": ShawRelative(head_dim=D, values=False),
    "t5, one way": T5Buckets(heads=H, bidirectional=False),
}
every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
every_backend = pytest.mark.parametrize("backend", ["eager", "aot_eager"])


def stages(scheme: Position, x: Tensor, q: Tensor, i: Tensor, j: Tensor) -> dict[str, Tensor | None]:
    """What a model does with a scheme: x (B, m, DIM), q (B, H, m, D), i (m,) or (B, m), j (n,) or (B, n)."""
    bias = scheme.bias(q, i, j)
    scores = torch.zeros(q.shape[0], H, q.shape[2], j.shape[-1], dtype=q.dtype)
    weights = (scores if bias is None else scores + bias).softmax(-1)
    mixed = scheme.mix(weights, i, j)
    return {"embed": scheme.embed(x, i), "rotate": scheme.rotate(q, i), "bias": bias, "mix": mixed}


def inputs(T: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.randn(B, T, DIM, dtype=dtype), torch.randn(B, H, T, D, dtype=dtype), torch.arange(T), torch.arange(T)


ACTS_AT = {
    "none": set(),
    "sinusoidal": {"embed"},
    "learned": {"embed"},
    "fraction": {"embed"},
    "index": {"embed"},
    "rotary": {"rotate"},
    "relative": {"bias", "mix"},
    "t5": {"bias"},
    "alibi": {"bias"},
}


@pytest.mark.parametrize("name", POSITIONS)
def test_a_scheme_acts_at_its_stage_and_nowhere_else(name: str) -> None:
    scheme = SCHEMES[name]
    x, q, i, j = inputs(5)
    out = stages(scheme, x, q, i, j)
    acts = {stage for stage, before in [("embed", x), ("rotate", q)] if not torch.equal(out[stage], before)}
    acts |= {stage for stage in ("bias", "mix") if out[stage] is not None}
    assert acts == ACTS_AT[name]
    assert scheme.acts_on == ("attention" if acts and "embed" not in acts else "embedding")
    assert scheme.needs_weights == ("mix" in acts)
    assert scheme.out_dim(DIM) == out["embed"].shape[-1] == DIM


@every_scheme
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_keeps_the_dtype_and_the_shapes(scheme: Position, dtype: torch.dtype) -> None:
    for T in (0, 1, 6):
        x, q, i, j = inputs(T, dtype)
        out = stages(scheme, x, q, i, j)
        assert out["embed"].shape == (B, T, scheme.out_dim(DIM)) and out["rotate"].shape == q.shape
        if out["bias"] is not None:
            assert torch.broadcast_shapes(out["bias"].shape, (B, H, T, T)) == (B, H, T, T)
        if out["mix"] is not None:
            assert out["mix"].shape == (B, H, T, D)
        assert {value.dtype for value in out.values() if value is not None} == {dtype}


@every_scheme
def test_rows_at_different_places_are_each_as_if_alone(scheme: Position) -> None:
    x, q, _, _ = inputs(4)
    i, j = torch.tensor([[0, 1, 2, 3], [0, 7, 9, 20]]), torch.tensor([[0, 1, 2], [5, 6, 30]])
    both = stages(scheme, x, q, i, j)
    for row in range(B):
        alone = stages(scheme, x[row : row + 1], q[row : row + 1], i[row], j[row])
        for stage, value in both.items():
            if value is not None:
                assert_close(value[row : row + 1], alone[stage].expand_as(value[row : row + 1]))


@pytest.mark.parametrize("name", [name for name in SCHEMES if name != "fraction"])  # which refuses: see test_absolute
def test_one_step_with_a_cache_is_the_last_row_of_all(name: str) -> None:
    scheme = SCHEMES[name]
    x, q, i, j = inputs(6)
    whole = stages(scheme, x, q, i, j)
    step = stages(scheme, x[:, -1:], q[:, :, -1:], i[-1:], j)
    for stage, value in whole.items():
        if value is not None:
            assert_close(step[stage], value[..., -1:, :])


def all_stages(names: list[str], *arguments: Tensor) -> dict[str, dict[str, Tensor | None]]:
    return {name: stages(SCHEMES[name], *arguments) for name in names}


@torch._dynamo.config.patch(error_on_recompile=True)
@pytest.mark.parametrize("rows_apart", [False, True])
def test_all_schemes_are_one_graph_for_all_lengths(rows_apart: bool) -> None:
    torch._dynamo.reset()
    names = [name for name in SCHEMES if not (rows_apart and (name in ("fraction", "index") or ", " in name))]
    compiled = torch.compile(all_stages, backend="eager", fullgraph=True, dynamic=True)
    for T in (7, 12):
        x, q, i, j = inputs(T)
        if rows_apart:
            i = torch.stack((i, 2 * i))
        found, wanted = compiled(names, x, q, i, j), all_stages(names, x, q, i, j)
        for name in names:
            for stage, value in wanted[name].items():
                assert_close(found[name][stage], value)


@pytest.mark.slow
@every_scheme
@every_backend
@torch._dynamo.config.patch(error_on_recompile=True)
def test_compiles_whole_and_once_for_all_lengths(scheme: Position, backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(stages, backend=backend, fullgraph=True, dynamic=True)
    for T in (7, 12, 30):
        x, q, i, j = inputs(T)
        out = compiled(scheme, x, q, i, j)
        for stage, value in stages(scheme, x, q, i, j).items():
            assert_close(out[stage], value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sinusoidal", "learned", "rotary", "relative", "t5", "alibi"])
@every_backend
@torch._dynamo.config.patch(error_on_recompile=True)
def test_compiles_with_rows_at_different_places(name: str, backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(stages, backend=backend, fullgraph=True, dynamic=True)
    for T in (7, 12):
        x, q, i, j = inputs(T)
        i = torch.stack((i, 2 * i))
        out = compiled(SCHEMES[name], x, q, i, j)
        for stage, value in stages(SCHEMES[name], x, q, i, j).items():
            assert_close(out[stage], value)


def test_compiles_at_most_twice_when_lengths_are_found_to_vary() -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(stages, backend=counter, fullgraph=True)
    for T in (7, 12, 33, 50):
        compiled(SCHEMES["rotary"], *inputs(T))
    assert counter.frame_count == 2


@every_scheme
def test_no_state_is_left_behind(scheme: Position) -> None:
    """A first call in inference mode and then training; a model built on the meta device and then filled."""
    x, q, i, j = inputs(5)
    with torch.inference_mode():
        first = stages(scheme, x, q, i, j)
    x.requires_grad_(), q.requires_grad_()
    again = stages(scheme, x, q, i, j)
    sum(value.sum() for value in again.values() if value is not None).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in scheme.parameters())
    assert x.grad is not None and not list(scheme.buffers())
    for stage, value in first.items():
        if value is not None:
            assert_close(again[stage], value)
    scheme.zero_grad(set_to_none=True)
    filled = copy.deepcopy(scheme).to("meta").to_empty(device="cpu")
    filled.load_state_dict(scheme.state_dict())
    for stage, value in stages(filled, x, q, i, j).items():
        if value is not None:
            assert_close(value, again[stage])


def test_none_is_a_position_that_does_nothing() -> None:
    assert type(SCHEMES["none"]) is Position


def test_factory_fits_the_model() -> None:
    rotary = make_position("rotary", dim=512, heads=8)
    assert rotary.head_dim == 64 and make_position("rotary", dim=512, heads=8, head_dim=32).head_dim == 32
    assert make_position("relative", dim=512, heads=8).head_dim == 64
    assert make_position("relative", dim=512, heads=8, value_dim=48).value_table.shape == (33, 48)
    assert make_position("learned", dim=512, heads=8, max_length=100).table.shape == (100, 512)
    assert make_position("t5", dim=512, heads=8).bidirectional
    assert not make_position("t5", dim=512, heads=8, causal=True).bidirectional
    assert make_position("alibi", dim=512, heads=12).heads == 12
    assert all(make_position(name, dim=8, heads=2, max_length=3).extra_repr() for name in POSITIONS if name != "none")


def test_factory_refuses() -> None:
    known = r"\(known: none, sinusoidal, learned, rotary, relative, t5, alibi, fraction, index\)"
    with pytest.raises(ValueError, match=rf"unknown position 'rotery'; did you mean 'rotary'\? {known}"):
        make_position("rotery", dim=8, heads=2, max_length=4)
    with pytest.raises(UsageError, match=f"unknown position 'xyz' {known}"):
        make_position("xyz", dim=8, heads=2)
    with pytest.raises(UsageError, match="position 'learned' needs max_length"):
        make_position("learned", dim=8, heads=2)
    with pytest.raises(ValueError, match="heads must be at least 1, not 0"):
        make_position("none", dim=8, heads=0)
    with pytest.raises(TypeError, match="dim must be a whole number, not True"):
        make_position("sinusoidal", dim=True, heads=1)


def calls(name: str, positions: Tensor) -> Callable[[], object]:
    scheme = SCHEMES[name]
    x, q, _, j = inputs(3)
    if scheme.acts_on == "embedding":
        return lambda: scheme.embed(x, positions)
    return (lambda: scheme.rotate(q, positions)) if name == "rotary" else (lambda: scheme.bias(q, positions, j))


@pytest.mark.parametrize("name", [name for name in POSITIONS if name != "none"])
def test_wrong_positions_are_named(name: str) -> None:
    argument = "i" if ACTS_AT[name] & {"bias"} else "positions"
    with pytest.raises(ValueError, match=rf"{argument} must have shape \(3,\) or \(2, 3\), not \(4,\)"):
        calls(name, torch.arange(4))()
    with pytest.raises(ValueError, match=rf"{argument} must have shape .*, not \(5, 3\)"):
        calls(name, torch.zeros(5, 3, dtype=torch.long))()
    with pytest.raises(TypeError, match=rf"{argument} must be whole numbers such as torch.long, not torch.float32"):
        calls(name, torch.arange(3.0))()


@pytest.mark.parametrize("name", ["relative", "t5", "alibi"])
def test_wrong_key_positions_are_named(name: str) -> None:
    q, i = torch.randn(B, H, 3, D), torch.arange(3)
    with pytest.raises(ValueError, match=r"j must have shape \(3,\) or \(2, 3\), not \(7, 3\)"):
        SCHEMES[name].bias(q, i, torch.zeros(7, 3, dtype=torch.long))
    with pytest.raises(TypeError, match=r"j must be whole numbers such as torch\.long, not torch\.bool"):
        SCHEMES[name].bias(q, i, torch.ones(3, dtype=torch.bool))


def test_wrong_widths_and_heads_are_named() -> None:
    i = torch.arange(3)
    for name in ("sinusoidal", "learned", "fraction", "index"):
        with pytest.raises(ValueError, match=r"x of shape \(2, 3, 31\) has width 31; this scheme was made for 32"):
            SCHEMES[name].embed(torch.zeros(2, 3, 31), i)
    with pytest.raises(ValueError, match=r"x of shape .* has width 9; this scheme was made for 8"):
        SCHEMES["rotary"].rotate(torch.zeros(2, H, 3, 9), i)
    with pytest.raises(ValueError, match=r"q of shape .* has width 9; this scheme was made for 8"):
        SCHEMES["relative"].bias(torch.zeros(2, H, 3, 9), i, i)
    for name in ("t5", "alibi"):
        with pytest.raises(ValueError, match=r"q has shape \(2, 5, 3, 8\); this scheme was made for \(B, 4, m, D\)"):
            SCHEMES[name].bias(torch.zeros(2, 5, 3, D), i, i)


def test_everything_is_exported() -> None:
    assert all(hasattr(regard.positions, name) for name in regard.positions.__all__)
    assert regard.positions.sinusoidal(length=100, dim=512).shape == (100, 512)
