"""The layer: the formula around `attend_features`, its state, its draws, recording, compiling and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from regard import masks, record
from regard.attention.linear.dispatch import attend_features
from regard.attention.linear.features import RandomFeatures, redraw_features
from regard.attention.linear.layer import RandomFeatureAttention
from regard.models.config import TransformerLMConfig
from regard.models.presets import make_model


def a_layer(**more: object) -> RandomFeatureAttention:
    return RandomFeatureAttention(**{"dim": 16, "heads": 4, "kv_heads": 2, "features": 16, **more})  # type: ignore[arg-type]


def test_self_attention_written_out() -> None:
    layer = a_layer(gate=True, learned_scale=True)
    x = torch.randn(2, 7, 16)
    weight, bias = layer.input.weight, layer.input.bias
    q, k, v = (
        (x @ w.T + b).unflatten(-1, (-1, 4)).transpose(1, 2)
        for w, b in zip(weight.split((16, 8, 8)), bias.split((16, 8, 8)), strict=True)
    )
    gate = (x @ layer.gate.weight.T + layer.gate.bias).mT
    y = attend_features(q, k, v, features=layer.features, causal=True, gate=gate)
    want = y.transpose(1, 2).flatten(2) @ layer.output.weight.T + layer.output.bias
    assert torch.allclose(layer(x, causal=True), want, atol=1e-6)


def test_prefill_and_steps() -> None:
    layer = a_layer(gate=True)
    x = torch.randn(2, 20, 16)
    y, state = layer(x[:, :15], causal=True, return_state=True)
    rows = [y]
    for t in range(15, 20):
        y, state = layer(x[:, t : t + 1], causal=True, state=state, return_state=True)
        rows.append(y)
    assert torch.allclose(torch.cat(rows, dim=1), layer(x, causal=True), atol=1e-5)


def test_cross_attention() -> None:
    layer = a_layer(key_dim=6, value_dim=5)
    x, key, value = torch.randn(2, 4, 16), torch.randn(2, 9, 6), torch.randn(2, 9, 5)
    mask = masks.padding([9, 3])
    y = layer(x, key, value, mask=mask)
    memory = layer.project_source(key, value, mask=mask)
    assert torch.allclose(layer.query_source(x, memory), y, atol=1e-6)
    assert torch.allclose(layer.query_source(x[:, 2:3], memory)[:, 0], y[:, 2], atol=1e-6)


def test_recording() -> None:
    layer = a_layer(gate=True)
    x = torch.randn(2, 5, 16)
    want = layer(x, causal=True)
    with record(layer) as recording:
        assert torch.allclose(layer(x, causal=True), want, atol=1e-5)
    (weights,) = recording.values()
    assert weights.shape == (2, 4, 5, 5)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 5)) and torch.equal(weights, weights.tril())


def test_half_precision_model() -> None:
    layer = a_layer(gate=True).bfloat16()
    y, state = layer(torch.randn(2, 9, 16, dtype=torch.bfloat16), causal=True, return_state=True)
    assert y.dtype == torch.bfloat16 and state.S.dtype == torch.float32
    assert y.isfinite().all()


def test_it_learns() -> None:
    """All parameters get a gradient, and some steps lower a loss."""
    torch.manual_seed(1)
    layer = a_layer(gate=True, learned_scale=True)
    x = torch.randn(8, 12, 16)
    target = torch.cat([torch.zeros(8, 1, 16), x[:, :-1]], dim=1)
    optimizer, losses = torch.optim.Adam(layer.parameters(), lr=0.02), []
    for _ in range(40):
        loss = (layer(x, causal=True) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.any() for p in layer.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


# The cache of a decoder


@pytest.mark.parametrize("position", [None, "rotary"])
def test_cache(position: str | None) -> None:
    """Prompt and steps; the rows change places, some leave, and others of another age come."""
    layer = a_layer(gate=True, position=position)
    x = torch.randn(4, 20, 16)
    want = layer(x, causal=True)
    cache = layer.new_cache(3)
    assert torch.allclose(layer(x[:3, :8], causal=True, cache=cache), want[:3, :8], atol=1e-5)
    assert torch.allclose(layer(x[:3, 8:9], causal=True, cache=cache), want[:3, 8:9], atol=1e-5)
    rows = torch.tensor([2, 0])
    cache.keep(rows, torch.tensor([0, 1]))
    assert torch.allclose(layer(x[rows, 9:11], causal=True, cache=cache), want[rows, 9:11], atol=1e-5)
    other = layer.new_cache(1, 20, static=True)
    layer(x[3:, :4], causal=True, cache=other)
    both = cache.join([cache, other]).select(torch.tensor([2, 1]))  # row 3 at its token 4, row 0 at its token 11
    assert len(both) == 2 and both.lengths.tolist() == [4, 11]
    y = layer(torch.stack([x[3, 4:5], x[0, 11:12]]), causal=True, cache=both)
    assert torch.allclose(y, torch.stack([want[3, 4:5], want[0, 11:12]]), atol=1e-5)


@torch.no_grad()
def test_in_the_place_of_exact_attention() -> None:
    """In the blocks of a language model, which knows nothing of it: step by step as at once."""
    config = TransformerLMConfig(vocabulary=11, layers=2, dim=16, heads=4, hidden=32)
    model = make_model(config).eval()
    for number, block in enumerate(model.decoder.blocks):
        block.self_attention = a_layer(position="rotary", seed=number)
    tokens = torch.randint(11, (3, 9))
    want, state, rows = model(tokens), model.start(3, 9), []
    for t in range(9):
        rows.append(model.project(model.decode(tokens[:, t : t + 1], state=state)))
    assert torch.allclose(torch.cat(rows, dim=1), want, atol=1e-5)


def test_positions_that_cannot_be_had() -> None:
    for name in ("alibi", "t5", "relative", "sinusoidal"):
        with pytest.raises(ValueError, match="does not rotate queries and keys"):
            a_layer(position=name)
    turning = a_layer(position="rotary")
    x = torch.randn(1, 3, 16)
    with pytest.raises(ValueError, match="positions inside attention are for self-attention"):
        turning(x, x.clone())
    _, state = turning(x, causal=True, return_state=True)
    with pytest.raises(ValueError, match="a state does not store the length of its text"):
        turning(x, causal=True, state=state)
    with pytest.raises(ValueError, match="give either cache= or state="):
        turning(x, causal=True, cache=turning.new_cache(1), return_state=True)


# The draws


def test_redraw_goes_by_the_step() -> None:
    """A training of 30 steps, and one that was resumed at step 17, have the same W at every step."""
    one, other = (RandomFeatures(dim=4, features=8, seed=3, redraw_every=10) for _ in range(2))
    seen = []
    for step in range(30):
        changed = one.redraw(step)
        assert changed == (step in (10, 20))
        seen.append(one.W.clone())
    for step in range(17, 30):
        other.redraw(step)
        assert torch.equal(other.W, seen[step])
    assert one.draw == other.draw == (3, 2) and one.drawn.tolist() == [3, 2]
    assert not torch.equal(seen[0], seen[10]) and not torch.equal(seen[10], seen[20])


def test_redraw_leaves_evaluation_alone() -> None:
    model = nn.Sequential(a_layer(redraw_every=10, seed=1), a_layer(redraw_every=10, seed=2), a_layer(seed=3)).eval()
    x = torch.randn(1, 6, 16)
    before = model(x)
    assert redraw_features(model, 25) == 0 and torch.equal(model(x), before)
    assert redraw_features(model.train(), 25) == 2 and not torch.equal(model(x), before)
    assert redraw_features(model, 25) == 0


def test_the_draw_is_in_the_checkpoint(tmp_path: Path) -> None:
    layer = a_layer(seed=4, redraw_every=10)
    redraw_features(layer, 55)
    _, state = layer(torch.randn(1, 3, 16), causal=True, return_state=True)
    save_file(layer.state_dict(), tmp_path / "model.safetensors")
    fresh = a_layer(seed=0, redraw_every=10)
    fresh.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert fresh.features.draw == (4, 5) and torch.equal(fresh.features.W, layer.features.W)
    x = torch.randn(1, 1, 16)
    assert torch.equal(fresh(x, causal=True, state=state), layer(x, causal=True, state=state))
    redraw_features(fresh, 60), redraw_features(layer, 60)
    assert torch.equal(fresh.features.W, layer.features.W)
    with torch.device("meta"):
        empty = a_layer(seed=0)
    empty.load_state_dict(load_file(tmp_path / "model.safetensors"), assign=True)
    assert empty.features.draw == (4, 5)


def test_heads_have_rows_of_their_own() -> None:
    W = a_layer().features.W
    assert W.shape == (2, 8, 4) and not torch.equal(W[0], W[1])


# Compiled


@pytest.fixture
def counter() -> Iterator[CompileCounterWithBackend]:
    torch.compiler.reset()
    yield CompileCounterWithBackend("eager")
    torch.compiler.reset()


@pytest.mark.slow
def test_compiled_whole(counter: CompileCounterWithBackend) -> None:
    """One graph, forward and backward, and a new draw is no reason for another."""
    layer = a_layer(gate=True, learned_scale=True, redraw_every=1)
    compiled = torch.compile(
        lambda x, lengths: layer(x, mask=masks.causal() & masks.padding(lengths)), fullgraph=True, backend=counter
    )
    for step in range(3):
        redraw_features(layer, step)
        x, lengths = torch.randn(2, 150, 16, requires_grad=True), torch.tensor([150, 41 + step])
        want, got = layer(x, mask=masks.causal() & masks.padding(lengths)), compiled(x, lengths)
        assert torch.allclose(got, want, atol=1e-6)
        wants, gots = (torch.autograd.grad(y.square().sum(), x)[0] for y in (want, got))
        assert torch.allclose(gots, wants, atol=1e-5)
    assert counter.frame_count == 1


def test_compiled_for_any_length(counter: CompileCounterWithBackend) -> None:
    """One graph or two (sizes may be alike at first) for one chunk, several and a part of one; gradients as well."""
    layer = a_layer(gate=True)
    compiled = torch.compile(lambda x: layer(x, causal=True), dynamic=True, fullgraph=True, backend=counter)
    for rows, n in ((4, 9), (5, 130)):
        x = torch.randn(rows, n, 16, requires_grad=True)
        want, got = layer(x, causal=True), compiled(x)
        assert torch.allclose(got, want, atol=1e-6)
        inputs = [x, *layer.parameters()]
        wants, gots = (torch.autograd.grad(y.square().sum(), inputs) for y in (want, got))
        for one, other in zip(gots, wants, strict=True):
            assert torch.allclose(one, other, atol=1e-4)
    assert counter.frame_count <= 2


@torch.no_grad()
def test_compiled_steps(counter: CompileCounterWithBackend) -> None:
    """Many steps of decoding, one graph or two (the first state is a view into the states of its chunks)."""
    layer = a_layer(gate=True).eval()
    step = torch.compile(
        lambda x, state: layer(x, causal=True, state=state, return_state=True), fullgraph=True, backend=counter
    )
    _, state = layer(torch.randn(2, 10, 16), causal=True, return_state=True)
    other = state
    for _ in range(5):
        x = torch.randn(2, 1, 16)
        y, state = step(x, state)
        want, other = layer(x, causal=True, state=other, return_state=True)
        assert torch.allclose(y, want, atol=1e-6) and torch.allclose(state.S, other.S, atol=1e-6)
    assert counter.frame_count <= 2


def test_wrong_arguments() -> None:
    for more, message in (
        ({"heads": 3}, "dim=16 does not split into heads=3"),
        ({"kv_heads": 3}, "heads=4 is not a multiple of kv_heads=3"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"map": "trigg"}, "unknown feature map 'trigg'; did you mean 'trig'"),
        ({"map": "trig", "features": 15}, "features must be even.*got 15"),
    ):
        with pytest.raises(ValueError, match=message):
            a_layer(**more)
    x = torch.randn(2, 3, 16)
    with pytest.raises(ValueError, match=r"query must be \(B, length, 16\), got \(2, 3, 8\)"):
        a_layer()(x[..., :8])
    with pytest.raises(ValueError, match=r"value must be \(B, length, 16\)"):
        a_layer()(x, x, x[0])
    gated = a_layer(gate=True)
    with pytest.raises(ValueError, match="it is for causal attention"):
        gated(x)
    with pytest.raises(ValueError, match="cross-attention has no past: use gate=False"):
        gated.project_source(x)
    _, state = gated(x, causal=True, return_state=True)
    with pytest.raises(ValueError, match="a state keeps sums, not single keys"):
        gated(x, causal=True, state=state, return_weights=True)
    with pytest.raises(ValueError, match=r"regard\.attend"):
        a_layer()(x, mask=masks.window(2))
