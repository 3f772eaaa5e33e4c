"""The kernels that cast to 8 bits, run by Triton's interpreter, against torch.

As in tests/kernels/training/test_residual_triton.py, a process of its own runs this file as a script. The interpreter
rounds to 8 bits wrongly (0.49 to 0.25), so the casts are compared with numbers that 8 bits represent exactly; a GPU
compares all numbers.

    R rows   C columns   B batch   T tokens   H heads   d width of a head
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.kernels import fuse
from regard.kernels.fp8.casts import E4M3, E5M2, Format, cast_both, cast_by_torch, empty_cast
from regard.kernels.fp8.enable import all_scales
from regard.models.config import Config
from regard.models.presets import make_model, preset

NAN, INFINITY = float("nan"), float("inf")


def exact_numbers(R: int, C: int, device: str) -> Tensor:
    """Numbers of two bits times a power of two, which both formats represent under a scale of a power of two."""
    draw = torch.Generator().manual_seed(0)
    numbers = torch.randint(-3, 4, (R, C), generator=draw) * 2.0 ** torch.randint(-4, 3, (R, C), generator=draw)
    return numbers.to(device)


def check_cast(x: Tensor, last: float, form: Format) -> None:
    """Bytes in both orders, inverse scale, and the largest magnitude."""
    states = [torch.tensor([last, 0.0], device=x.device) for _ in range(2)]
    ours, torchs = cast_both(x, states[0], form), cast_by_torch(x, states[1], form)
    for found, wanted in zip(ours[:2], torchs[:2], strict=True):  # as numbers, because -0 is 0 and NaN is NaN
        found, wanted = (numbers.view(form.dtype).float() for numbers in (found, wanted))
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    assert ours.inverse == torchs.inverse and torch.equal(*states)


def check_casts(device: str, numbers: Callable[[int, int, str], Tensor]) -> None:
    for shape in ((16, 16), (70, 24), (64, 130), (3, 48)):
        for dtype in (torch.float32, torch.bfloat16):
            x = numbers(*shape, device).to(dtype)
            for form in (E4M3, E5M2):
                check_cast(x, 4.0, form)
                check_cast(x, 0.001, form)  # magnitudes that are too large


def check_not_finite(device: str) -> None:
    """Infinities become the largest number, NaN stays NaN, and no scale follows from them."""
    x = exact_numbers(16, 32, device)
    x[0, 0], x[1, 1], x[2, 2] = INFINITY, -INFINITY, NAN
    if device == "cpu":
        x[2, 2] = 1.0  # the interpreter rounds NaN wrongly
    amax = torch.tensor([4.0, 0.0], device=device)
    cast = cast_both(x, amax, E4M3)
    numbers, wanted = cast.straight.view(E4M3.dtype).float(), cast_by_torch(x, amax.clone(), E4M3).straight
    torch.testing.assert_close(numbers, wanted.view(E4M3.dtype).float(), rtol=0, atol=0, equal_nan=True)
    assert numbers[0, 0] == 448 and amax[1] < INFINITY


def gpt(**options: Any) -> Config:
    return preset("gpt2", vocabulary=48, layers=1, dim=32, heads=2, hidden=64, max_length=20, **options)


def check_kernels_in_a_model(device: str, *, dropout: float, activation: str = "gelu-tanh") -> None:
    """Casts inside the kernels give the same results and gradients as kernels and casts one after the other."""
    from regard.kernels.fp8.linear import Fp8Linear
    from regard.kernels.training.fused_feed_forward import FusedFeedForward

    results = []
    for separate in (False, True):
        torch.manual_seed(0)
        model = make_model(gpt(dropout=dropout, activation=activation)).to(device).train()
        fuse(model, fp8=True)
        hooks = []
        if separate:  # a hook keeps the layer from being computed inside a kernel
            for module in model.modules():
                if isinstance(module, FusedFeedForward):
                    assert type(module.down) is Fp8Linear
                    hooks.append(module.down.register_forward_hook(lambda *_: None))
        torch.manual_seed(1)
        scales = all_scales(model)
        assert scales is not None
        tokens = torch.randint(48, (2, 9), device=device)
        for _ in range(2):
            scales.start_step()
            model.zero_grad()
            with torch.autocast(device, torch.bfloat16):
                y = model(tokens)
            y.float().square().mean().backward()
        gradients = {name: weight.grad for name, weight in model.named_parameters()}
        results.append({"y": y.float(), "amax": scales.amax, **gradients})
    for name, wanted in results[1].items():
        error = (results[0][name] - wanted).norm() / wanted.norm()
        assert error < (0.01 if name.endswith("down.bias") else 1e-6), (name, error)  # which is summed in 16 bits


def check_heads(device: str) -> None:
    """Gradients of q, k, v that lie in memory anyhow; also compiled as one graph."""
    from regard.kernels.fp8.heads_triton import join_cast
    from regard.kernels.training.split_heads_triton import joined

    B, H, T, d = 2, 3, 7, 16
    by_head = exact_numbers(B * H * T, d, device).view(B, H, T, d).bfloat16()
    by_token = exact_numbers(B * T * H, d, device).view(B, T, H, d).transpose(1, 2).bfloat16()
    anyhow = exact_numbers(d * T * B, H, device).view(d, T, B, H).permute(2, 3, 1, 0).bfloat16()
    wanted, wanted_sum = joined(by_head, by_token, anyhow)
    amax, amax_wanted = (torch.tensor([4.0, 0.0], device=device) for _ in range(2))
    cast, total = join_cast(by_head, by_token, anyhow, amax)
    expected = cast_by_torch(wanted.flatten(0, 1), amax_wanted, E5M2)
    for found, part in zip(cast[:2], expected[:2], strict=True):
        torch.testing.assert_close(found.view(E5M2.dtype).float(), part.view(E5M2.dtype).float(), rtol=0, atol=0)
    torch.testing.assert_close(total, wanted_sum)
    assert cast.inverse == expected.inverse and torch.equal(amax, amax_wanted)


def check_output_layer(device: str, *, smoothing: float, masked: bool) -> None:
    """Softmax in 8 bits in both orders, losses, and the entries of the true tokens."""
    from regard.kernels.fp8.output import add_labels, softmax_cast, softmax_cast_by_torch

    n, V = 37, 80
    draw = torch.Generator().manual_seed(0)
    scores = (3 * torch.randn(n, V, generator=draw)).bfloat16().to(device)
    labels = torch.randint(V, (n,), generator=draw).to(device)
    keep = (torch.rand(n, generator=draw) < 0.8).to(device) if masked else None
    ours, torchs = (function(scores, labels, keep, smoothing) for function in (softmax_cast, softmax_cast_by_torch))
    for actual, expected in zip(ours[:3], torchs[:3], strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    for actual, expected in zip(ours[3:], torchs[3:], strict=True):
        actual, expected = (numbers.view(E5M2.dtype).float() for numbers in (actual, expected))
        # A GPU rounds exp differently from torch, which changes few numbers and by one unit.
        unit = 0.5 if device == "cpu" else 0.25
        torch.testing.assert_close(actual, expected, rtol=1.01 * unit, atol=2.0**-9)
        if device == "cuda":
            assert (actual != expected).float().mean() < 1e-2
    assert not ours.straight.gather(1, labels[:, None]).any()
    x, weight, product = (exact_numbers(rows, 24, device) for rows in (n, V, n))
    x_cast, w_cast = (cast_both(part, torch.tensor([4.0, 0.0], device=device), E4M3) for part in (x, weight))
    dw, dx = torch.zeros(V, 24, device=device), torch.empty(n, 24, device=device)
    add_labels(product.bfloat16(), x_cast, w_cast, labels, ours.at_label, dw, dx)
    torch.testing.assert_close(dx, product + ours.at_label[:, None] * weight[labels], rtol=1e-5, atol=1e-5)
    wanted = torch.zeros_like(dw).index_add_(0, labels, ours.at_label[:, None] * x)
    torch.testing.assert_close(dw, wanted, rtol=1e-5, atol=1e-5)


def check_compiled(device: str) -> None:
    """torch.compile takes the layers whole."""
    torch.manual_seed(0)
    model = fuse(make_model(gpt(dropout=0.0)).to(device).train(), fp8=True)
    scales, tokens = all_scales(model), torch.randint(48, (2, 9), device=device)
    assert scales is not None
    results = []
    for run in (model, torch.compile(model, backend="aot_eager")):
        scales.amax[:] = torch.tensor([4.0, 0.0])
        model.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            y = run(tokens)
        y.float().square().mean().backward()
        results.append([y.float().detach(), *(weight.grad.clone() for weight in model.parameters())])
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=1e-5)


def check_all(device: str) -> None:
    check_casts(device, exact_numbers)
    check_not_finite(device)
    check_heads(device)
    check_output_layer(device, smoothing=0.0, masked=True)
    check_output_layer(device, smoothing=0.1, masked=False)
    check_kernels_in_a_model(device, dropout=0.0)
    check_kernels_in_a_model(device, dropout=0.25)
    check_kernels_in_a_model(device, dropout=0.0, activation="relu")
    check_compiled(device)


def test_the_kernels_are_torch(interpret: Callable[..., None]) -> None:
    interpret(__file__, "the kernels are torch")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
def test_the_kernels_are_torch_cuda() -> None:
    check_all("cuda")
    check_casts("cuda", lambda R, C, device: torch.randn(R, C, device=device) * torch.randn(C, device=device).exp())


@pytest.mark.slow
@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="CUDA: Triton comes for Linux on x86_64"
)
def test_the_kernels_compile_for_a_gpu(compiled_kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes much that the compiler does not."""
    from regard.kernels.fp8 import casts_triton, heads_triton, hidden_triton, output_triton
    from regard.kernels.training import row_sums_triton

    kernels = (
        (casts_triton, "cast_kernel"),
        (hidden_triton, "_hidden_cast"),
        (hidden_triton, "_hidden_cast_back"),
        (heads_triton, "_join_cast"),
        (output_triton, "_row_losses"),
        (output_triton, "_softmax_cast"),
        (output_triton, "_clear_labels"),
        (output_triton, "_add_labels"),
        (row_sums_triton, "_add_up"),
    )
    for module, name in kernels:
        monkeypatch.setattr(module, name, compiled_kernel(getattr(module, name)))
    h, amax = torch.zeros(32, 48, dtype=torch.bfloat16), torch.ones(2)
    casts_triton.launch_cast(h, amax, hidden_triton.hidden_cast(h, None, 0.0, False, amax), E4M3)
    hidden_triton.hidden_cast_back(h, h, None, 0.0, False, amax)
    heads_triton.join_cast(*(torch.zeros(3, 2, 2, 4, 16, dtype=torch.bfloat16)).unbind(), amax)
    labels = torch.zeros(32, dtype=torch.long)
    softmax = output_triton.launch_softmax_cast(h, labels, labels > 0, 0.1)
    cast = empty_cast(32, 48, h.device)
    output_triton.launch_add_labels(h, cast, cast, labels, softmax.at_label, h.float(), h)
    assert all(getattr(module, name).count for module, name in kernels)


if __name__ == "__main__":
    from regard.kernels.fp8 import casts_triton

    casts_triton.TILE_ROWS, casts_triton.TILE_COLUMNS = 16, 32  # more than one tile
    check_all("cpu")
    print("the kernels are torch")
