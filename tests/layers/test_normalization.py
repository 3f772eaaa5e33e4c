"""LayerNorm and RMSNorm against the written-out formulas, and these against torch.nn."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from regard.layers.normalization import LayerNorm, RMSNorm, layer_norm, rms_norm


def randomise(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


@given(st.lists(st.integers(0, 3), max_size=3), st.integers(1, 9), st.booleans(), st.sampled_from([0.1, 1e-5]))
def test_layer_norm(shape, dim, bias, eps):
    ours = randomise(LayerNorm(dim, eps=eps, bias=bias)).double()
    theirs = nn.LayerNorm(dim, eps=eps, bias=bias).double()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x = torch.randn(*shape, dim, dtype=torch.float64) * 3 + 2
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(layer_norm(x, ours.weight, ours.bias, eps), theirs(x))


@given(st.lists(st.integers(0, 3), max_size=3), st.integers(1, 9), st.sampled_from([0.1, 1e-6]))
def test_rms_norm(shape, dim, eps):
    ours = randomise(RMSNorm(dim, eps=eps)).double()
    theirs = nn.RMSNorm(dim, eps=eps).double()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x = torch.randn(*shape, dim, dtype=torch.float64) * 3 + 2
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(rms_norm(x, ours.weight, eps), theirs(x))


def test_gradients_of_the_formulas():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    weight, bias = (torch.randn(4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for ours, theirs in (
        (layer_norm(x, weight, bias), nn.functional.layer_norm(x, (4,), weight, bias, 1e-5)),
        (rms_norm(x, weight), nn.functional.rms_norm(x, (4,), weight, 1e-6)),
    ):
        inputs = (x, weight, bias)
        got, expected = (torch.autograd.grad(y.sin().sum(), inputs, allow_unused=True) for y in (ours, theirs))
        torch.testing.assert_close(got[:2], expected[:2])


def test_defaults_start_as_the_bare_normalisation():
    x = torch.randn(5, 8)
    torch.testing.assert_close(LayerNorm(8)(x), nn.LayerNorm(8)(x))
    torch.testing.assert_close(RMSNorm(8)(x), nn.RMSNorm(8, eps=1e-6)(x))
    assert LayerNorm(8, bias=False).bias is None


@pytest.mark.parametrize("module", [LayerNorm(8), LayerNorm(8, bias=False), RMSNorm(8)])
def test_half_precision_is_computed_in_single(module):
    x = torch.randn(5, 8)
    y = module.bfloat16()(x.bfloat16())
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), module.float()(x.bfloat16().float()), atol=1e-2, rtol=1e-2)


def check_autocast(module, dtype, device):
    x = (torch.randn(50, 64) * 3 + 100).to(device, dtype)  # half precision would lose the mean's digits
    module = randomise(module).to(device)
    with torch.autocast(device, dtype=dtype):
        y = module(x)
    assert y.dtype == dtype
    wanted = module(x.float())
    close = 2.0 ** (-7 if dtype == torch.bfloat16 else -10)
    torch.testing.assert_close(y.float(), wanted, rtol=2 * close, atol=2 * close)
    ours, theirs = (torch.autograd.grad(out.float().sin().sum(), module.weight)[0] for out in (y, wanted))
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, rtol=0.05, atol=50 * 5 * close)


halves = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
norms = pytest.mark.parametrize("make", [LayerNorm, lambda dim: LayerNorm(dim, bias=False), RMSNorm])


@halves
@norms
def test_autocast_leaves_half_precision_as_it_is(make, dtype):
    """Half precision in, half precision out, rounded once each for weight and result; the sums are in float32."""
    check_autocast(make(64), dtype, "cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
@halves
@norms
def test_autocast_leaves_half_precision_as_it_is_cuda(make, dtype):
    """There autocast would write float32."""
    check_autocast(make(64), dtype, "cuda")


@pytest.mark.parametrize("module", [LayerNorm(8), RMSNorm(8)])
def test_autocast_leaves_single_precision_as_it_is(module):
    x = torch.randn(5, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module(x)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, module(x))


@pytest.mark.parametrize("cls", [LayerNorm, RMSNorm])
def test_errors(cls):
    with pytest.raises(ValueError, match=r"x must be \(…, 8\), since dim is 8, got \(2, 7\)"):
        cls(8)(torch.randn(2, 7))
    with pytest.raises(ValueError, match="dim must be at least 1, got 0"):
        cls(0)
    with pytest.raises(ValueError, match=r"eps must not be negative, got -1\.0"):
        cls(8, eps=-1.0)
