"""The state: prefill and steps equal the whole, however it was cut, saved, forked, merged or reordered meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from regard import masks
from regard.attention.linear.dispatch import attend_features, sum_keys
from regard.attention.linear.feature_maps import MAPS
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.state import FeatureState, empty_state

B, H, G, L, D = 3, 4, 2, 45, 8


@pytest.fixture
def text() -> dict[str, torch.Tensor]:
    return {
        "q": torch.randn(B, H, L, D),
        "k": torch.randn(B, G, L, D),
        "v": torch.randn(B, G, L, D),
        "gate": torch.randn(B, G, L) + 1,
    }


def part(text: dict[str, torch.Tensor], start: int, end: int, rows: slice | torch.Tensor = slice(None)):
    q, k, v = (text[name][rows, :, start:end] for name in "qkv")
    return q, k, v, text["gate"][rows, :, start:end]


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, atol=1e-5, rtol=1e-4)


def same_state(one: FeatureState, other: FeatureState) -> bool:
    """The sums with their factor; the log_scale alone is a matter of the way that was taken."""
    return all(
        same(
            a * one.log_scale.exp().view(B, G, *[1] * (a.dim() - 2)),
            b * other.log_scale.exp().view(B, G, *[1] * (b.dim() - 2)),
        )
        for a, b in ((one.S, other.S), (one.z, other.z))
    ) and same(one.log_decay, other.log_decay)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("gated", [False, True])
def test_prefill_and_steps_equal_the_whole(name: str, gated: bool, text: dict[str, torch.Tensor]) -> None:
    features = RandomFeatures(dim=D, features=None if name == "elu" else 16, heads=G, map=name)

    def run(start: int, end: int, state: FeatureState | None):
        q, k, v, gate = part(text, start, end)
        return attend_features(
            q, k, v, features=features, causal=True, gate=gate if gated else None, state=state, chunk=8,
            return_state=True,
        )  # fmt: skip

    whole, last = run(0, L, None)
    state, rows = None, []
    for start, end in ((0, 30), (30, 31), (31, 32), (32, 40), *((t, t + 1) for t in range(40, L))):
        y, state = run(start, end, state)
        rows.append(y)
    assert torch.allclose(torch.cat(rows, dim=2), whole, atol=2e-5, rtol=2e-4)
    assert state is not None and same_state(state, last)
    q, k, v, gate = part(text, 0, L)
    oracle = attend_features(q, k, v, features=features, causal=True, gate=gate if gated else None, backend="reference")
    assert torch.allclose(torch.cat(rows, dim=2), oracle, atol=1e-4, rtol=1e-3)


def test_padding_at_the_left_of_a_prefill(text: dict[str, torch.Tensor]) -> None:
    """Prompts of different lengths, filled up at the left, go on like each by itself."""
    features = RandomFeatures(dim=D, features=16, heads=G)
    q, k, v, gate = part(text, 0, 10)
    missing = (0, 4, 7)
    keep = torch.tensor([[t >= m for t in range(10)] for m in missing])
    _, state = attend_features(
        q, k, v, features=features, causal=True, gate=gate, mask=masks.padding(keep), return_state=True
    )
    y = attend_features(
        *part(text, 10, 15)[:3], features=features, causal=True, gate=text["gate"][:, :, 10:15], state=state
    )
    for row, start in enumerate(missing):
        q, k, v, gate = part(text, start, 15, slice(row, row + 1))
        alone = attend_features(q, k, v, features=features, causal=True, gate=gate)
        assert same(y[row], alone[0, :, -5:])


def test_queries_see_all_of_a_state_and_of_new_keys(text: dict[str, torch.Tensor]) -> None:
    features = RandomFeatures(dim=D, features=16, heads=G)
    q, k, v, _ = part(text, 0, L)
    state = sum_keys(k[:, :, :20], v[:, :, :20], features=features)
    y, after = attend_features(q, k[:, :, 20:], v[:, :, 20:], features=features, state=state, return_state=True)
    assert same(y, attend_features(q, k, v, features=features))
    assert same_state(after, sum_keys(k, v, features=features))


@pytest.mark.parametrize("gated", [False, True])
def test_merge(gated: bool, text: dict[str, torch.Tensor]) -> None:
    """Two parts of a text that were read apart are the whole; and in threes it does not matter which two come first."""
    features = RandomFeatures(dim=D, features=16, heads=G)

    def read(start: int, end: int) -> FeatureState:
        _, k, v, gate = part(text, start, end)
        return sum_keys(k, v, features=features, gate=gate if gated else None)

    a, b, c, whole = read(0, 13), read(13, 14), read(14, L), read(0, L)
    assert same_state(a.merge(b).merge(c), whole)
    assert same_state(a.merge(b.merge(c)), whole)
    with pytest.raises(ValueError, match="states of one shape can be merged"):
        a.merge(b.select(torch.tensor([0])))


def test_save_and_load(tmp_path: Path, text: dict[str, torch.Tensor]) -> None:
    features = RandomFeatures(dim=D, features=16, heads=G, seed=5)
    q, k, v, gate = part(text, 0, 20)
    _, state = attend_features(q, k, v, features=features, causal=True, gate=gate, return_state=True)
    state.save(tmp_path / "state.safetensors")
    loaded = FeatureState.load(tmp_path / "state.safetensors")
    assert loaded.draw == (5, 0)
    q, k, v, gate = part(text, 20, 21)
    want, found = (
        attend_features(q, k, v, features=features, causal=True, gate=gate, state=one) for one in (state, loaded)
    )
    assert torch.equal(want, found)
    empty = empty_state(v, 16)  # of which nobody knows the draw
    empty.save(tmp_path / "empty.safetensors")
    assert FeatureState.load(tmp_path / "empty.safetensors").merge(state).draw == (5, 0)
    save_file({"S": state.S.contiguous()}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="is not a state of random features: it has no draw, forgotten, level, z"):
        FeatureState.load(tmp_path / "other.safetensors")


def test_reorder_for_beams(text: dict[str, torch.Tensor]) -> None:
    features = RandomFeatures(dim=D, features=16, heads=G)
    q, k, v, gate = part(text, 0, 20)
    _, state = attend_features(q, k, v, features=features, causal=True, gate=gate, return_state=True)
    rows = torch.tensor([2, 2, 0, 1, 2])
    picked = state.select(rows)
    assert len(picked) == 5
    q, k, v, gate = part(text, 20, 30)
    y = attend_features(q[rows], k[rows], v[rows], features=features, causal=True, gate=gate[rows], state=picked)
    q, k, v, gate = part(text, 0, 30)
    assert same(y, attend_features(q, k, v, features=features, causal=True, gate=gate)[rows][:, :, 20:])


def test_a_fork_goes_its_own_way(text: dict[str, torch.Tensor]) -> None:
    """A step changes no state that it is given; and a fork shares no memory."""
    features = RandomFeatures(dim=D, features=16, heads=G)
    _, k, v, _ = part(text, 0, 20)
    state = sum_keys(k, v, features=features)
    S, fork = state.S.clone(), state.fork()
    q, k, v, _ = part(text, 20, 21)
    attend_features(q, k, v, features=features, causal=True, state=state, return_state=True)
    assert torch.equal(state.S, S)
    fork.S.zero_()
    assert torch.equal(state.S, S)


def test_join_texts_of_different_ages(text: dict[str, torch.Tensor]) -> None:
    features = RandomFeatures(dim=D, features=16, heads=G)
    states = []
    for row, end in enumerate((5, 30, 17)):
        _, k, v, gate = part(text, 0, end, slice(row, row + 1))
        states.append(sum_keys(k, v, features=features, gate=gate))
    q, k, v, gate = part(text, 40, 41)
    y = attend_features(q, k, v, features=features, causal=True, gate=gate, state=FeatureState.join(states))
    for row, state in enumerate(states):
        one = slice(row, row + 1)
        alone = attend_features(q[one], k[one], v[one], features=features, causal=True, gate=gate[one], state=state)
        assert same(y[one], alone)


def test_detached_state_ends_backpropagation(text: dict[str, torch.Tensor]) -> None:
    features = RandomFeatures(dim=D, features=16, heads=G, learned_scale=True)
    q, k, v, _ = part(text, 0, 5)
    k.requires_grad_()
    state = sum_keys(k, v, features=features)
    y = attend_features(q, text["k"][:, :, 5:10], v, features=features, causal=True, state=state.detach())
    assert torch.autograd.grad(y.sum(), k, allow_unused=True) == (None,)
    y = attend_features(q, text["k"][:, :, 5:10], v, features=features, causal=True, state=state)
    assert torch.autograd.grad(y.sum(), k)[0].any()


def test_size_does_not_grow(text: dict[str, torch.Tensor]) -> None:
    features = RandomFeatures(dim=D, features=16, heads=G)
    sizes = set()
    for end in (1, 20, L):
        _, k, v, _ = part(text, 0, end)
        state = sum_keys(k, v, features=features)
        sizes.add(sum(x.numel() for x in (state.S, state.z, state.log_scale, state.log_decay)))
    assert sizes == {B * G * (16 * D + 16 + 2)}
