"""torch.compile: whole graphs, and no new graph for a new length or a new step.

B batch   m queries   n keys
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from regard import AdditiveScore, MultiHeadAttention, StaticCache, attend, masks

from ..repeats import by_default, some


@pytest.fixture(params=["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def counter(request: pytest.FixtureRequest) -> Iterator[CompileCounterWithBackend]:
    """A backend that counts the graphs it is given; starts and ends without any compiled code.

    "eager" runs the graph as it was traced. "aot_eager" also traces the backward pass, which takes as long again.
    """
    torch.compiler.reset()
    yield CompileCounterWithBackend(request.param)
    torch.compiler.reset()


def by_padding(q: Tensor, lengths: Tensor) -> Tensor:
    return attend(q, q, q, mask=masks.causal() & masks.padding(lengths))


OPTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "plain": lambda q, lengths: attend(q, q, q),
    "causal": lambda q, lengths: attend(q, q, q, causal=True),
    "causal m < n": lambda q, lengths: attend(q[:, :, 2:], q, q, causal=True),
    "padding": by_padding,
    "window": lambda q, lengths: attend(q, q, q, mask=masks.window(2) | masks.causal()),
    "bias": lambda q, lengths: attend(q, q, q, bias=q @ q.mT),
    "weights": lambda q, lengths: attend(q, q, q, causal=True, return_weights=True)[1],
    "grouped": lambda q, lengths: attend(q, q[:, :1], q[:, :1]),
    "tensor and mask": lambda q, lengths: attend(q, q, q, mask=(q[0, 0] @ q[0, 0].mT > 0) & masks.causal()),
    "together": lambda q, lengths: attend(  # what the others have one by one
        q[:, :, 2:], q[:, :1], q[:, :1], bias=q[:, :, 2:] @ q.mT, mask=masks.window(2) & (q[0, 0] @ q[0, 0].mT > -9)[2:]
    ),
}


@pytest.mark.parametrize("name", by_default({"padding", "weights", "together"}, OPTIONS))
def test_attend(name: str, counter: CompileCounterWithBackend) -> None:
    """Two lengths without a second recompilation: the first graph is for its length, the second for any."""
    compiled = torch.compile(OPTIONS[name], fullgraph=True, backend=counter)
    for n in (5, 7):
        q, lengths = torch.randn(2, 2, n, 4, requires_grad=True), torch.tensor([n, n - 2])
        want, got = OPTIONS[name](q, lengths), compiled(q, lengths)
        assert torch.allclose(got, want, atol=1e-6)
        wants, gots = (torch.autograd.grad(y.pow(2).sum(), q)[0] for y in (want, got))
        assert torch.allclose(gots, wants, atol=1e-5)
    assert counter.frame_count <= 2


@pytest.mark.slow
@torch.no_grad()
def test_attend_with_a_score_that_has_parameters(counter: CompileCounterWithBackend) -> None:
    score = AdditiveScore(query_dim=4, key_dim=4, hidden=3)
    compiled = torch.compile(lambda q: attend(q, q, q, score=score), fullgraph=True, backend=counter)
    for n in (5, 7, 9):
        q = torch.randn(2, n, 4)
        assert torch.allclose(compiled(q), attend(q, q, q, score=score), atol=1e-6)
    assert counter.frame_count <= 2


# tests/positions/test_interface.py compiles every scheme
@pytest.mark.parametrize("position", by_default({"relative"}, [None, "relative", "rotary", "t5", "alibi"]))
@torch.no_grad()
def test_multi_head_attention(position: str | None, counter: CompileCounterWithBackend) -> None:
    layer = MultiHeadAttention(dim=16, heads=4, kv_heads=2, position=position, qk_norm=True)
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for n in (5, 7, 9):
        x, mask = torch.randn(2, n, 16), masks.padding(torch.tensor([n, n - 2]))
        assert torch.allclose(compiled(x, causal=True, mask=mask), layer(x, causal=True, mask=mask), atol=1e-5)
    assert counter.frame_count <= 2


@pytest.mark.parametrize("form", some(["projected", "slice"], 1))
@torch.no_grad()
def test_cross_attention(form: str, counter: CompileCounterWithBackend) -> None:
    layer = MultiHeadAttention(dim=16, heads=4, form=form)
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for m, n in ((5, 6), (7, 9), (4, 12)):
        x, source = torch.randn(2, m, 16), torch.randn(2, n, 16)
        assert torch.allclose(compiled(x, source), layer(x, source), atol=1e-5)
    assert counter.frame_count <= 2


@pytest.mark.parametrize("position", by_default({"rotary"}, [None, "rotary", "alibi"]))
@torch.no_grad()
def test_one_graph_serves_every_step_of_a_static_cache(
    position: str | None, counter: CompileCounterWithBackend
) -> None:
    """Rows of different age too: nothing in the graph depends on the numbers in `lengths`."""
    layer = MultiHeadAttention(dim=16, heads=4, kv_heads=2, position=position)
    x = torch.randn(2, 12, 16)

    def step(new: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        return layer(new, causal=True, cache=StaticCache(k, v, lengths))

    compiled = torch.compile(step, fullgraph=True, backend=counter)
    cache = layer.new_cache(2, 12, static=True)
    first = layer(x[:1, :3], causal=True, cache=StaticCache(cache.k[:1], cache.v[:1], cache.lengths[:1]))
    want = layer(x, causal=True)
    assert torch.allclose(first, want[:1, :3], atol=1e-5)
    for t in range(8):
        new = torch.stack([x[0, t + 3], x[1, t]])[:, None]
        got = compiled(new, cache.k, cache.v, cache.lengths)
        assert torch.allclose(got[0, 0], want[0, t + 3], atol=1e-5)
        assert torch.allclose(got[1, 0], want[1, t], atol=1e-5)
    assert cache.lengths.tolist() == [11, 8]
    assert counter.frame_count == 1


@torch.no_grad()
def test_a_cache_may_be_an_argument(counter: CompileCounterWithBackend) -> None:
    layer = MultiHeadAttention(dim=16, heads=4)
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    x = torch.randn(2, 6, 16)
    cache = layer.new_cache(2, 6, static=True)
    steps = [compiled(x[:, t : t + 1], mask=masks.window(2, 0), cache=cache) for t in range(6)]
    assert torch.allclose(torch.cat(steps, 1), layer(x, mask=masks.window(2, 0)), atol=1e-5)
    assert counter.frame_count == 1


@pytest.mark.slow  # half a minute of PyTorch's code generation; that a layer is one graph is tested above
def test_inductor_smoke() -> None:
    """The only test that waits for a C++ compiler: forward and backward of one small layer."""
    torch.compiler.reset()
    layer = MultiHeadAttention(dim=8, heads=2)
    compiled = torch.compile(layer, fullgraph=True)
    x = torch.randn(2, 5, 8)
    want, got = layer(x, causal=True), compiled(x, causal=True)
    assert torch.allclose(got, want, atol=1e-5)
    wants, gots = (torch.autograd.grad(y.sum(), list(layer.parameters())) for y in (want, got))
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(wants, gots, strict=True))
    torch.compiler.reset()
