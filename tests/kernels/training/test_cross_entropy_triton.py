"""Triton's kernel, run by its interpreter on a CPU, against the plain formula in float64; on a GPU the kernel itself.

The interpreter is chosen when a kernel is defined, so a process of its own runs this file as a script.

    n rows   V vocabulary
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from regard.kernels.training import cross_entropy
from regard.kernels.training.cross_entropy import fused_fits, loss_and_gradient, token_loss

ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def check(device: str, *, V: int, smoothing: float, pull: float, masked: bool, dtype: torch.dtype) -> None:
    """Loss, plain cross-entropy and gradient of 4 rows, of which two are left out if `masked`."""
    from regard.kernels.training.cross_entropy_triton import fused_loss_and_gradient

    draw = torch.Generator().manual_seed(V)
    scores = (5 * torch.randn(4, V, generator=draw)).to(dtype)
    labels = torch.tensor([1, V - 1]).repeat(2)
    keep = torch.tensor([False, True]).repeat(2) if masked else None
    wanted = loss_and_gradient(scores.double(), labels, keep, smoothing, pull, wanted=True)
    given = [None if one is None else one.to(device) for one in (labels, keep)]
    for gradient in (False, True):
        own = scores.to(device, copy=True)
        found = fused_loss_and_gradient(own, *given, smoothing, pull, wanted=gradient)
        for one, other in zip(found[:2], wanted[:2], strict=True):
            torch.testing.assert_close(one.double().cpu(), other, rtol=1e-5, atol=1e-5)
        if gradient:
            assert found[2] is own  # in the place of the scores
            torch.testing.assert_close(own.double().cpu(), wanted[2], rtol=ROUNDING[dtype], atol=1e-5)
        else:
            assert found[2] is None and torch.equal(own.cpu(), scores)


CASES = [  # vocabularies below, at and above one block of 16
    {"V": 5, "smoothing": 0.1, "pull": 0.0, "masked": False, "dtype": torch.float32},
    {"V": 5, "smoothing": 0.0, "pull": 1.5, "masked": True, "dtype": torch.float32},
    {"V": 16, "smoothing": 0.0, "pull": 0.0, "masked": True, "dtype": torch.float32},
    {"V": 16, "smoothing": 0.1, "pull": 1.5, "masked": False, "dtype": torch.float32},
    {"V": 31, "smoothing": 0.1, "pull": 0.0, "masked": True, "dtype": torch.bfloat16},
    {"V": 31, "smoothing": 0.1, "pull": 0.5, "masked": True, "dtype": torch.float16},
    {"V": 40, "smoothing": 0.0, "pull": 0.0, "masked": False, "dtype": torch.float32},
    {"V": 40, "smoothing": 0.1, "pull": 2.0, "masked": True, "dtype": torch.float32},
]


def check_all(device: str) -> None:
    """Every case, and scores that are no numbers: then the loss is none, so that the step is left out."""
    from regard.kernels.training.cross_entropy_triton import fused_loss_and_gradient

    for case in CASES:
        check(device, **case)
    for pull, fault in ((0.0, float("inf")), (1.5, float("nan"))):
        scores = torch.zeros(2, 20)
        scores[1, 18] = fault
        labels = torch.tensor([3, 3])
        loss, nll, _ = fused_loss_and_gradient(scores.to(device), labels.to(device), None, 0.1, pull, wanted=False)
        assert not loss.isfinite() and not nll.isfinite()


def test_the_kernel_is_the_formula(interpret: Callable[..., None]) -> None:
    interpret(__file__, "the kernel is the formula")


def test_only_a_gpu_that_can_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = SimpleNamespace(is_cuda=True, dtype=torch.bfloat16, device=torch.device("cuda"))
    triton = importlib.util.find_spec("triton") is not None
    assert fused_fits(scores) is triton  # type: ignore[arg-type]
    monkeypatch.setattr("regard.kernels.gpu.AMPERE", False)
    assert not fused_fits(scores)  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_parts_of_the_table_gradient_add_up_cuda(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(70, 16, generator=draw), torch.randn(24, 16, generator=draw)
    labels = torch.arange(70) % 24

    def gradient(device: str, wide: torch.dtype, used: torch.dtype) -> torch.Tensor:
        table = weight.to(used).to(device, wide).requires_grad_()
        with torch.autocast(device, used, enabled=used != wide):
            total, _ = token_loss(hidden.to(used).to(device, wide), labels.to(device), weight=table, smoothing=0.1)
        return torch.autograd.grad(total, table)[0].double().cpu()

    wanted = gradient("cpu", torch.float64, torch.float64)
    monkeypatch.setattr(cross_entropy, "_max_scores", lambda _: 24 * 20)
    found = gradient("cuda", torch.float32, dtype)
    assert (found - wanted).norm() < {torch.float32: 1e-5}.get(dtype, 3e-2) * wanted.norm()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
def test_the_kernel_is_the_formula_cuda() -> None:
    check_all("cuda")
    scores = torch.randn(2, 20, device="cuda")
    assert loss_and_gradient(scores, torch.tensor([1, 2]).to("cuda"), None, 0.1, 0.0, wanted=True)[2] is scores
    for V in (4096, 10_000, 50_257):  # blocks of their true size
        check("cuda", V=V, smoothing=0.1, pull=1.5, masked=True, dtype=torch.bfloat16)


if __name__ == "__main__":
    from regard.kernels.training import cross_entropy_triton

    cross_entropy_triton.SCORES_PER_WARP = 2
    check_all("cpu")
    print("the kernel is the formula")
