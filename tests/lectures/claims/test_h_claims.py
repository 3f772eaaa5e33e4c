"""H. What the lectures stress: H1 and H2."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regard import AdditiveScore, ContentAttention, KeyValueAttention, MultiHeadAttention, attend

LAYERS = {
    "multi-head": lambda: MultiHeadAttention(dim=8, heads=2, kv_heads=1, qk_norm=True),
    "slice": lambda: MultiHeadAttention(dim=8, heads=2, form="slice"),
    "rotary": lambda: MultiHeadAttention(dim=8, heads=2, position="rotary"),
    "relative": lambda: MultiHeadAttention(dim=8, heads=2, position="relative"),
    "content": lambda: ContentAttention(outputs=3, dim=8),
    "additive": lambda: KeyValueAttention(score=AdditiveScore(query_dim=8, key_dim=8, hidden=5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_H1_differentiable(name: str) -> None:
    """Gradients reach the input and every parameter, and they are those of finite differences."""
    layer = LAYERS[name]().double()
    x = torch.randn(2, 4, 8).double().requires_grad_()
    run = (lambda x: layer(x, x)) if name == "additive" else layer
    grads = torch.autograd.grad(run(x).pow(2).sum(), [x, *layer.parameters()])
    assert all(grad.abs().sum() > 0 for grad in grads)
    assert torch.autograd.gradcheck(run, (x,))


class Operations(TorchDispatchMode):
    """Counts the tensor operations that run inside the block."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", LAYERS)
def test_H1_parallel(name: str) -> None:
    """One call for all positions: the number of operations does not grow with the length."""
    layer = LAYERS[name]()
    counts = []
    for length in (4, 64):
        x = torch.randn(2, length, 8)
        with Operations() as operations:
            layer(x, x) if name == "additive" else layer(x)
        counts.append(operations.count)
    assert counts[0] == counts[1]


def test_H2_direct_path_between_every_pair() -> None:
    """In one layer every output depends on every input; the path has the same length at any distance."""
    x = torch.randn(9, 4)
    jacobian = torch.autograd.functional.jacobian(lambda x: attend(x, x, x), x)  # (n, d, n, d)
    assert (jacobian.abs().sum((1, 3)) > 0).all()
    layer = MultiHeadAttention(dim=8, heads=2)
    x = torch.randn(1, 9, 8)
    jacobian = torch.autograd.functional.jacobian(layer, x)  # (1, n, d, 1, n, d)
    assert (jacobian.abs().sum((0, 2, 3, 5)) > 0).all()
    # Two equal tokens, near and far from the query, matter equally much.
    far = torch.randn(50, 4)
    far[49] = far[1]
    _, weights = attend(far, far, far, return_weights=True)
    assert torch.equal(weights[0, 1], weights[0, 49])
