"""The kernel that joins the gradients of queries, keys and values, run by Triton's interpreter, against torch.

As in tests/kernels/training/test_residual_triton.py, a process of its own runs this file as a script.

    B batch   T tokens   H heads   d width of a head
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

from regard import MultiHeadAttention
from regard.kernels import fuse


def check_joined(device: str, B: int, H: int, T: int, d: int, dtype: torch.dtype) -> None:
    """Gradients that lie in memory as torch's kernels leave them: by head, by token, or anyhow."""
    from regard.kernels.training.split_heads_triton import joined

    by_head = torch.randn(B, H, T, d, device=device).to(dtype)
    by_token = torch.randn(B, T, H, d, device=device).to(dtype).transpose(1, 2)
    anyhow = torch.randn(d, T, B, H, device=device).to(dtype).permute(2, 3, 1, 0)
    dx, to_bias = joined(by_head, by_token, anyhow)
    wanted = torch.cat([one.transpose(1, 2).flatten(2) for one in (by_head, by_token, anyhow)], -1)
    assert torch.equal(dx, wanted) and dx.is_contiguous()
    torch.testing.assert_close(to_bias.double(), wanted.double().sum((0, 1)), rtol=1e-5, atol=1e-4)


def check_operator(device: str) -> None:
    from regard.kernels.training.split_heads_triton import joined

    torch.library.opcheck(joined, torch.randn(3, 2, 2, 3, 8, device=device).unbind())


def check_attention(device: str) -> None:
    """Attention that joins them so is attention: results, and all gradients; also compiled as one graph."""
    from regard.kernels.training import split_heads_triton as heads_triton

    for position in (None, "rotary"):
        layer = MultiHeadAttention(dim=24, heads=3, position=position).to(device)
        nn.init.normal_(layer.input.bias)
        x = torch.randn(2, 5, 24, device=device, requires_grad=True)
        given = [x, *layer.parameters()]
        gradients = []
        wanted = layer(x, causal=True)
        fuse(layer, only=["heads"])
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")(x, causal=True)
        found = layer(x, causal=True)
        for y in (wanted, compiled, found):
            torch.testing.assert_close(y, wanted, rtol=1e-5, atol=1e-5)
            with patch.object(heads_triton, "joined", wraps=heads_triton.joined) as joined:
                gradients.append(torch.autograd.grad(y.square().sum(), given))
            assert y is compiled or joined.called is (y is found)  # a graph may know it by its other name
            torch.testing.assert_close(gradients[-1], gradients[0], rtol=1e-4, atol=1e-5)


def check_all(device: str) -> None:
    check_joined(device, 2, 3, 7, 20, torch.float32)
    check_joined(device, 1, 1, 1, 8, torch.float32)
    check_joined(device, 3, 2, 10, 64, torch.bfloat16)
    check_operator(device)
    check_attention(device)


def test_the_kernel_is_torch(interpret: Callable[..., None]) -> None:
    interpret(__file__, "the kernel is torch")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
def test_the_kernel_is_torch_cuda() -> None:
    check_all("cuda")
    check_joined("cuda", 8, 12, 1000, 64, torch.bfloat16)


@pytest.mark.slow
@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="CUDA: Triton comes for Linux on x86_64"
)
def test_the_kernel_compiles_for_a_gpu(compiled_kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes much that the compiler does not."""
    from regard.kernels.training import row_sums_triton as sums_triton, split_heads_triton as heads_triton

    monkeypatch.setattr(heads_triton, "_join", compiled_kernel(heads_triton._join))
    monkeypatch.setattr(sums_triton, "_add_up", compiled_kernel(sums_triton._add_up))
    for shape in ((2, 3, 5, 64), (1, 2, 7, 20)):
        given = torch.zeros(shape, dtype=torch.bfloat16)
        heads_triton.joined(given, given.transpose(1, 2).contiguous().transpose(1, 2), given)
    assert heads_triton._join.count == 2


@pytest.mark.parametrize(
    ("options", "fits"),
    [({}, True), ({"kv_heads": 1}, False), ({"d_v": 4}, False), ({"bias": False}, False)],
)
def test_who_takes_it(options: dict[str, Any], fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training of self-attention whose q, k and v have one size, with a bias; never on a CPU."""
    layer, x = fuse(MultiHeadAttention(dim=16, heads=2, **options)), torch.randn(2, 3, 16)
    assert layer.input.why_not(x) is not None  # on a CPU
    monkeypatch.setattr("regard.kernels.training.fused_dropout.runs_triton", lambda device: True)
    assert (layer.input.why_not(x) is None) is fits
    assert layer.eval().input.why_not(x) is not None


@pytest.mark.parametrize("options", [{"key_dim": 6}, {"form": "slice"}])
def test_other_projections_stay_plain(options: dict[str, Any]) -> None:
    layer = MultiHeadAttention(dim=16, heads=2, **options)
    plain = type(layer.input)
    assert type(fuse(layer).input) is plain


if __name__ == "__main__":
    from regard.kernels.training import split_heads_triton as heads_triton

    heads_triton.ROWS, heads_triton.COLUMNS, heads_triton.PROGRAMS = 2, 16, 12  # more rows than programs
    check_all("cpu")
    print("the kernel is torch")
