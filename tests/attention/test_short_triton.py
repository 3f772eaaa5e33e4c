"""The kernel for short texts, run by Triton's interpreter on a CPU, against the reference in float64.

The interpreter is chosen when a kernel is defined, so a process of its own runs this file as a script; on a GPU it is
the kernel itself.

    B batch   H heads   m queries   n keys   d width of a head
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from regard import masks
from regard.attention import drawn, short
from regard.attention.dispatch import attend
from regard.attention.fused import mask_matrix
from regard.attention.reference import attend_reference

ROUNDING = {torch.float32: 1e-5, torch.float16: 2**-9, torch.bfloat16: 2**-6}
SHARE = 0.3


def tensors(device: str, B: int, H: int, m: int, n: int, d: int, dtype: torch.dtype) -> list[Tensor]:
    """q, k, v as a layer cuts them from one tensor: the heads of a token side by side."""
    draw = torch.Generator().manual_seed(m * n + d)
    rows = [torch.randn(B, length, H, d, generator=draw).to(device, dtype) for length in (m, n, n)]
    return [x.transpose(1, 2).requires_grad_() for x in rows]


def by_hand(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, scale: float, mask: Tensor | None) -> Tensor:
    """softmax(q k^T scale) v in float64; with dropout by a mask of zeros and what the others are multiplied by."""
    if mask is None:
        return attend_reference(
            q.double(), k.double(), v.double(), mask=allowed, bias=None, score=None, scale=scale, dropout=0.0
        )[0]
    scores = scale * q.double() @ k.double().mT
    weights = (scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)).softmax(-1).nan_to_num()
    return (weights * mask.double()) @ v.double()


def mask_of(seed: Tensor, B: int, H: int, m: int, n: int) -> Tensor:
    """What the kernel multiplies the weights by: with equal weights and a different unit vector for each value."""
    from regard.attention.short_triton import attend_short

    q, k = (torch.zeros(B, H, length, n, device=seed.device) for length in (m, n))
    v = n * torch.eye(n, device=seed.device).expand(B, H, n, n)
    return attend_short(q, k, v, None, seed, False, 1.0, SHARE)


def check(
    device: str,
    *,
    m: int,
    n: int,
    d: int,
    causal: bool = False,
    masked: bool = False,
    one_mask: bool = False,
    dropout: bool = False,
    dtype: torch.dtype = torch.float32,
    B: int = 2,
    H: int = 2,
) -> None:
    """Output and gradients; the first sentence has no keys if `masked`."""
    from regard.attention.short_triton import attend_short

    q, k, v = given = tensors(device, B, H, m, n, d, dtype)
    keep = torch.arange(n, device=device) % 3 > 0
    keep = keep.expand(1 if one_mask else B, n).clone() if masked else None
    if keep is not None and not one_mask:
        keep[0] = False
    seed = torch.tensor([m], device=device) if dropout else None
    y = attend_short(q, k, v, keep, seed, causal, 0.3, SHARE if dropout else 0.0)
    assert y.shape == q.shape and y.dtype == dtype and y.transpose(1, 2).is_contiguous()
    allowed = None if keep is None else keep[:, None, None]
    allowed = mask_matrix(allowed, causal, q, k)
    wanted = by_hand(q, k, v, allowed, 0.3, None if seed is None else mask_of(seed, B, H, m, n))
    upstream = torch.randn(y.shape, device=device).to(dtype)
    found = torch.autograd.grad(y, given, upstream)
    for one, other in zip((y, *found), (wanted, *torch.autograd.grad(wanted, given, upstream.double())), strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=ROUNDING[dtype], atol=4 * ROUNDING[dtype])
    if keep is not None and not one_mask:
        assert not any(one[0].any() for one in (y, *found))  # exactly zero


def check_mask(device: str) -> None:
    """The share of weights that are dropped, and what it hangs on."""
    seeds = [torch.tensor([number], device=device) for number in (1, 2)]
    one, other = (mask_of(seed, 4, 4, 16, 32) for seed in seeds)
    torch.testing.assert_close(one.unique(), torch.tensor([0.0, 1 / (1 - SHARE)], device=device), rtol=1e-4, atol=0.0)
    differ = 2 * SHARE * (1 - SHARE)  # as two masks do that know nothing of each other
    heads = one[:, 0] != one[:, 1]
    for dropped, share in ((one == 0, SHARE), (one != other, differ), (heads, differ), (one[0] != one[1], differ)):
        assert abs(dropped.double().mean() - share) < 4 * (share * (1 - share) / dropped.numel()) ** 0.5
    assert torch.equal(one, mask_of(seeds[0], 4, 4, 16, 32))


def always(what: str, x: Tensor, dropout: float) -> bool:
    return dropout > 0


def check_attend(device: str) -> None:
    """The door takes the kernel with the masks that it knows. (Compiled: tests/layers/test_residual_triton.py.)"""
    B, H, n = 2, 2, 5
    q, k, v = tensors(device, B, H, n, n, 8, torch.float16)
    seed, lengths = torch.tensor([4], device=device), torch.tensor([5, 3], device=device)
    keep = torch.arange(n, device=device) < lengths[:, None]
    mask = mask_of(seed, B, H, n, n)
    with patch.object(short, "draws", always), patch.object(short, "draw_seed", lambda like: seed):
        for given in (masks.padding(keep), masks.padding(lengths), keep[:, None, None], None):
            for causal in (False, True):
                found = attend(q, k, v, mask=given, causal=causal, dropout=SHARE)
                allowed = mask_matrix(None if given is None else keep[:, None, None], causal, q, k)
                wanted = by_hand(q, k, v, allowed, 8**-0.5, mask)
                torch.testing.assert_close(found.double(), wanted, rtol=2**-9, atol=2**-7)
        both = attend(q, k, v, mask=masks.causal() & masks.padding(keep), dropout=SHARE)
        torch.testing.assert_close(both, attend(q, k, v, mask=keep[:, None, None], causal=True, dropout=SHARE))


class OnGPU:
    """As much of a tensor as is looked at."""

    is_cuda = True

    def __init__(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> None:
        self.shape, self.dtype = torch.Size(shape), dtype


def check_fits() -> None:
    """It is for short texts and masks of keys, with dropout, in half precision."""

    def fits(q: Any, k: Any, mask: Any = None, v: Any = None, bias: Any = None, dropout: float = 0.1) -> bool:
        return short.short_fits(q, k, k if v is None else v, mask, bias, dropout)

    q, k, keep = OnGPU(2, 4, 9, 64), OnGPU(2, 4, 7, 64), torch.ones(2, 7, dtype=torch.bool)
    for mask in (
        None,
        masks.padding(keep),
        masks.padding(torch.tensor([3, 7])),
        keep[:, None, None],
        keep[:1, None, None],
    ):
        assert fits(q, k, mask)
    for mask in (
        masks.window(2),
        masks.document(keep.long()),
        torch.ones(2, 4, 9, 7, dtype=torch.bool),
        keep,
        keep[:, None, None, :1],
    ):
        assert not fits(q, k, mask)
    assert not fits(q, k, bias=torch.zeros(7)) and not fits(q, k, dropout=0.0)
    assert fits(OnGPU(2, 4, 128, 128), OnGPU(2, 4, 128, 128))
    for shape, other in (
        ((2, 4, 129, 64), (2, 4, 7, 64)),
        ((2, 4, 9, 64), (2, 4, 129, 64)),
        ((2, 4, 9, 64), (2, 2, 7, 64)),
    ):
        assert not fits(OnGPU(*shape), OnGPU(*other))
    assert not fits(OnGPU(2, 4, 9, 130), OnGPU(2, 4, 7, 130)) and not fits(q, k, v=OnGPU(2, 4, 7, 32))
    assert not fits(OnGPU(2, 4, 9, 64, dtype=torch.float32), k)  # its products would be slow
    with patch.object(drawn, "PLACES", ["residual"]):
        assert not fits(q, k)
    with patch("regard.attention.short_triton.MATRIX_UNITS", False):
        assert not fits(q, k)


CASES: list[dict[str, Any]] = [
    {"m": 5, "n": 7, "d": 8, "masked": True},
    {"m": 7, "n": 7, "d": 16, "masked": True, "causal": True, "dropout": True},
    {"m": 9, "n": 4, "d": 20, "causal": True},  # queries before the first key see nothing
    {"m": 3, "n": 17, "d": 8, "causal": True, "dropout": True},
    {"m": 17, "n": 33, "d": 4, "one_mask": True, "masked": True},
    {"m": 6, "n": 20, "d": 16, "dropout": True, "dtype": torch.float16},  # the interpreter knows no bfloat16
]


def check_all(device: str) -> None:
    from regard.attention.short_triton import attend_short

    for case in CASES:
        check(device, **case)
    check_mask(device)
    check_fits()
    check_attend(device)
    q, k, v = tensors(device, 1, 2, 3, 4, 8, torch.float32)
    keep, seed = torch.ones(1, 4, dtype=torch.bool, device=device), torch.tensor([3], device=device)
    torch.library.opcheck(attend_short, (q, k, v, keep, seed, True, 0.3, SHARE))


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="CUDA: Triton comes for Linux on x86_64"
)
def test_the_kernel_is_the_reference() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "REGARD_DRAWN": "residual,hidden,attention"}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the kernel is the reference\n"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
def test_the_kernel_is_the_reference_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "PLACES", ["residual", "hidden", "attention"])
    check_all("cuda")
    for size in (64, 128):
        for kind in ({"causal": True}, {"masked": True}):
            check("cuda", m=size, n=size, d=64, B=8, H=8, dropout=True, dtype=torch.bfloat16, **kind)


if __name__ == "__main__":
    check_all("cpu")
    print("the kernel is the reference")
