"""The kernel for short texts, run by Triton's interpreter on a CPU, against the reference in float64.

The interpreter is chosen when a kernel is defined, so a process of its own runs this file as a script; on a GPU it is
the kernel itself.

    B batch   H heads   m queries   n keys   d width of a head
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from regard import MultiHeadAttention, masks
from regard.attention import multihead
from regard.attention.reference import attend_reference
from regard.attention.sdpa import mask_matrix
from regard.kernels import fuse
from regard.kernels.training import fused_attention
from regard.kernels.training.fused_attention import FusedMultiHeadAttention, why_not_short

ROUNDING = {torch.float32: 1e-5, torch.float16: 2**-9, torch.bfloat16: 2**-6}
SHARE = 0.3


def tensors(
    device: str, B: int, H: int, m: int, n: int, d: int, dtype: torch.dtype, *, apart: bool = False
) -> list[Tensor]:
    """q, k, v as a layer cuts them from one tensor, the heads of a token side by side; of two texts, q lies apart."""
    draw = torch.Generator().manual_seed(m * n + d)
    counts = ((m, H), (n, 2 * H)) if apart or m != n else ((n, 3 * H),)
    rows = [torch.randn(B, length, count, d, generator=draw).to(device, dtype) for length, count in counts]
    return [part.transpose(1, 2).requires_grad_() for x in rows for part in x.split(H, dim=2)]


def by_hand(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, scale: float, mask: Tensor | None) -> Tensor:
    """softmax(q k^T scale) v in float64; with dropout by a mask of zeros and what the others are multiplied by."""
    if mask is None:
        return attend_reference(
            q.double(), k.double(), v.double(), mask=allowed, bias=None, score=None, scale=scale, dropout=0.0
        )[0]
    scores = scale * q.double() @ k.double().mT
    weights = (scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)).softmax(-1).nan_to_num()
    return (weights * mask.double()) @ v.double()


def philox(seed: int, calls: np.ndarray) -> list[np.ndarray]:
    """Salmon et al. 2011: the four words of 32 bits of each call, with 7 rounds."""
    low, a, b = np.uint64(2**32 - 1), np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
    c0, c1, c2, c3 = calls.astype(np.uint64), *np.zeros((3, *calls.shape), np.uint64)
    for turn in range(7):
        k0, k1 = np.uint64((seed + turn * 0x9E3779B9) % 2**32), np.uint64(((seed >> 32) + turn * 0xBB67AE85) % 2**32)
        one, other = a * c0, b * c2  # of 64 bits
        c0, c1, c2, c3 = (other >> 32) ^ c1 ^ k0, other & low, (one >> 32) ^ c3 ^ k1, one & low
    return [c0, c1, c2, c3]


def mask_by_hand(seed: Tensor, B: int, H: int, m: int, n: int) -> Tensor:
    """What the kernel shall multiply the weights by, in float64: each head's tile draws its rows by eights.

    Four calls make 32 numbers of a row, in the order of words, calls and halves of words.
    """
    from regard.kernels.training.short_attention_triton import MIN_TILE

    M, N = (max(MIN_TILE, 1 << (length - 1).bit_length()) for length in (m, n))
    words = np.stack(philox(int(seed), np.arange(B * H * M * N // 8).reshape(-1, 4)), axis=1)  # (…, words, calls)
    halves = np.stack([words & np.uint64(0xFFFF), words >> np.uint64(16)], axis=-1)
    dropped = round(SHARE * 65536)
    stays = torch.from_numpy(halves.astype(np.int64) >= dropped).view(B, H, M, N)[:, :, :m, :n]
    return (stays.double() * 65536 / (65536 - dropped)).to(seed.device)


def masks_of(seed: Tensor, B: int, H: int, m: int, n: int, dtype: torch.dtype) -> list[Tensor]:
    """What the kernels do multiply by, forward and backward: equal weights, unit vectors for values and gradients."""
    from regard.kernels.training.short_attention_triton import attend_short

    q, k, v, upstream = torch.zeros(4, B, H, max(m, n), max(m, n), device=seed.device, dtype=dtype)
    for units in (v, upstream):
        units.diagonal(dim1=-2, dim2=-1).fill_(n)
    v = v[:, :, :n].requires_grad_()
    y = attend_short(q[:, :, :m], k[:, :, :n], v, None, None, seed, False, 1.0, SHARE)
    return [y[..., :n], torch.autograd.grad(y, v, upstream[:, :, :m])[0][..., :m].mT]


def check_masks(seed: Tensor, B: int, H: int, m: int, n: int, dtype: torch.dtype) -> Tensor:
    """The mask; that a kernel draws another, or loses its way in it, is told before any product is looked at."""
    wanted = mask_by_hand(seed, B, H, m, n)
    for way, found in zip(("forward", "backward"), masks_of(seed, B, H, m, n, dtype), strict=True):
        wrong = int(((found > 0) != (wanted > 0)).sum())
        assert not wrong, f"{way}, {m} x {n}, {dtype}: {wrong} of {wanted.numel()} numbers of the mask are others"
        torch.testing.assert_close(found.double(), wanted, rtol=ROUNDING[dtype], atol=0.0)
    return wanted


def close(what: str, found: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    torch.testing.assert_close(
        found.double(),
        wanted.double(),
        rtol=ROUNDING[dtype],
        atol=4 * ROUNDING[dtype],
        msg=lambda text: f"{what}: {text}",
    )


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
    apart: bool = False,
    dtype: torch.dtype = torch.float32,
    B: int = 2,
    H: int = 2,
) -> None:
    """Output and gradients; the first sentence has no keys if `masked`."""
    from regard.kernels.training.short_attention_triton import attend_short

    q, k, v = given = tensors(device, B, H, m, n, d, dtype, apart=apart)
    keep = torch.arange(n, device=device) % 3 > 0
    keep = keep.expand(1 if one_mask else B, n).clone() if masked else None
    if keep is not None and not one_mask:
        keep[0] = False
    seed = torch.tensor([m], device=device) if dropout else None
    bias = torch.zeros(3 * H * d, device=device, requires_grad=True)
    y = attend_short(q, k, v, bias, keep, seed, causal, 0.3, SHARE if dropout else 0.0)
    assert y.shape == q.shape and y.dtype == dtype and y.transpose(1, 2).is_contiguous()
    allowed = None if keep is None else keep[:, None, None]
    allowed = mask_matrix(allowed, causal, q, k)
    mask = None if seed is None else check_masks(seed, B, H, m, n, dtype)
    wanted = by_hand(q, k, v, allowed, 0.3, mask)
    upstream = torch.randn(y.shape, device=device).to(dtype)
    *found, to_bias = torch.autograd.grad(y, [*given, bias], upstream)
    exact = (wanted, *torch.autograd.grad(wanted, given, upstream.double()))
    tokens = (B * max(m, n)) ** 0.5
    sums = torch.cat([one.double().sum((0, 2)).flatten() for one in exact[1:]])
    close("the bias", to_bias / tokens, sums / tokens, dtype)
    for name, one, other in zip(("y", "dq", "dk", "dv"), (y, *found), exact, strict=True):
        close(f"{name}, {m} x {n} x {d}, {dtype}", one, other, dtype)
    assert [one.stride() for one in found] == [one.stride() for one in given]  # gradients lie as what they are of
    if keep is not None and not one_mask:
        assert not any(one[0].any() for one in (y, *found))  # exactly zero


def check_mask(device: str) -> None:
    """The share of weights that are dropped, and what it hangs on."""
    seeds = [torch.tensor([number], device=device) for number in (1, 2)]
    one, other = (check_masks(seed, 4, 4, 16, 32, torch.float32) for seed in seeds)
    shares = torch.tensor([0.0, 1 / (1 - SHARE)], device=device, dtype=torch.float64)
    torch.testing.assert_close(one.unique(), shares, rtol=1e-4, atol=0.0)
    differ = 2 * SHARE * (1 - SHARE)  # as two masks do that know nothing of each other
    heads = one[:, 0] != one[:, 1]
    for dropped, share in ((one == 0, SHARE), (one != other, differ), (heads, differ), (one[0] != one[1], differ)):
        assert abs(dropped.double().mean() - share) < 4 * (share * (1 - share) / dropped.numel()) ** 0.5
    for m, n in ((5, 5), (6, 20), (20, 6)):
        check_masks(torch.tensor([2**40 + m], device=device), 2, 3, m, n, torch.float16)


def fused(**options: Any) -> FusedMultiHeadAttention:
    layer = fuse(MultiHeadAttention(dim=16, heads=2, **{"dropout": SHARE, **options}).half())
    assert isinstance(layer, FusedMultiHeadAttention)
    return layer


def check_attend(device: str) -> None:
    """The layer attends with the kernel under the masks that it knows. (Compiled: test_residual_triton.py.)"""
    B, H, n = 2, 2, 5
    layer = fused().to(device)
    q, k, v = tensors(device, B, H, n, n, 8, torch.float16)
    seed, lengths = torch.tensor([4], device=device), torch.tensor([5, 3], device=device)
    keep = torch.arange(n, device=device) < lengths[:, None]
    mask = check_masks(seed, B, H, n, n, torch.float16)
    with patch.object(fused_attention, "draw_seed", lambda like: seed), patch.object(multihead, "attend") as other:
        for padding in (masks.padding(keep), masks.padding(lengths), keep[:, None, None], None):
            for causal in (False, True):
                found = layer._attend(q, k, v, padding, None, causal, SHARE)
                allowed = mask_matrix(None if padding is None else keep[:, None, None], causal, q, k)
                wanted = by_hand(q, k, v, allowed, 8**-0.5, mask)
                close(f"{padding}, causal {causal}", found, wanted, torch.float16)
        both = layer._attend(q, k, v, masks.causal() & masks.padding(keep), None, False, SHARE)
        torch.testing.assert_close(both, layer._attend(q, k, v, keep[:, None, None], None, True, SHARE))
        assert not other.called
        layer._attend(q, k, v, masks.window(2), None, False, SHARE)
        layer._attend(q, k, v, None, torch.zeros(n, device=device), False, SHARE)
        layer._attend(q, k, v, None, None, False, 0.0)
        assert other.call_count == 3


def check_layer(device: str) -> None:
    """The layer leaves its bias' gradient to the kernel; the result is as if q, k and v came through `_attend`."""
    B, n, seed = 2, 5, torch.tensor([4], device=device)
    layer = fused().to(device)
    torch.nn.init.normal_(layer.input.bias)
    x, memory = torch.randn(2, B, n, 16, device=device, dtype=torch.float16, requires_grad=True).unbind()
    keep = (torch.arange(n, device=device) < torch.tensor([[5], [3]], device=device))[:, None, None]
    inputs = [x, memory, *layer.parameters()]
    with patch.object(fused_attention, "draw_seed", lambda like: seed):
        for key, causal in ((None, True), (memory, False), (memory[:, :4], False)):
            mask = keep if key is None else keep[..., : key.shape[1]]
            with patch.object(multihead, "attend") as other:
                found = layer(x, key, mask=mask, causal=causal)
            assert not other.called
            with patch.object(type(layer), "_short_heads", lambda *_, **__: None):
                wanted = layer(x, key, mask=mask, causal=causal)
            assert torch.equal(found, wanted)
            upstream = torch.randn_like(found)
            one, two = (torch.autograd.grad(y, inputs, upstream, allow_unused=True) for y in (found, wanted))
            torch.testing.assert_close(one, two, rtol=2**-8, atol=2**-7)
        with pytest.raises(ValueError, match="mask"):
            layer(x, mask=torch.ones(3, 1, 1, n, dtype=torch.bool, device=device))
    assert layer.why_not(x, x, None) is None
    for options in (
        {"position": "rotary"},
        {"bias": False},
        {"qk_norm": True},
        {"kv_heads": 1},
        {"window": 2},
        {"backend": "sdpa"},
        {"dropout": 0.0},
    ):
        assert fused(**options).to(device).why_not(x, x, None) is not None
    assert layer.eval().why_not(x, x, None) is not None


def check_fits() -> None:
    """It is for short texts and masks of keys, in half precision."""

    def fits(q: Tensor, k: Tensor, mask: Any = None, v: Tensor | None = None) -> bool:
        return why_not_short(q, k, k if v is None else v, mask) is None

    def heads(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.empty(shape, device="meta", dtype=dtype)

    q, k, keep = heads(2, 4, 9, 64), heads(2, 4, 7, 64), torch.ones(2, 7, dtype=torch.bool)
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
    assert fits(heads(2, 4, 128, 128), heads(2, 4, 128, 128))
    for shape, other in (
        ((2, 4, 129, 64), (2, 4, 7, 64)),
        ((2, 4, 9, 64), (2, 4, 129, 64)),
        ((2, 4, 9, 64), (2, 2, 7, 64)),
    ):
        assert not fits(heads(*shape), heads(*other))
    assert not fits(heads(2, 4, 9, 130), heads(2, 4, 7, 130)) and not fits(q, k, v=heads(2, 4, 7, 32))
    assert not fits(heads(2, 4, 9, 64, dtype=torch.float32), k)  # its products would be slow


CASES: list[dict[str, Any]] = [
    {"m": 5, "n": 7, "d": 8, "masked": True},
    {"m": 7, "n": 7, "d": 16, "masked": True, "causal": True, "dropout": True},
    {"m": 6, "n": 6, "d": 8, "apart": True, "dropout": True},
    {"m": 9, "n": 4, "d": 20, "causal": True},  # queries before the first key see nothing
    {"m": 3, "n": 17, "d": 8, "causal": True, "dropout": True},
    {"m": 17, "n": 33, "d": 4, "one_mask": True, "masked": True},
    {"m": 6, "n": 20, "d": 16, "dropout": True, "dtype": torch.float16},  # the interpreter knows no bfloat16
]


def check_operator(device: str) -> None:
    from regard.kernels.training.short_attention_triton import attend_short

    q, k, v = tensors(device, 1, 2, 3, 4, 8, torch.float32)
    keep, seed = torch.ones(1, 4, dtype=torch.bool, device=device), torch.tensor([3], device=device)
    bias = torch.zeros(3 * 2 * 8, device=device, requires_grad=True)
    torch.library.opcheck(attend_short, (q, k, v, bias, keep, seed, True, 0.3, SHARE))
    torch.library.opcheck(attend_short, (q, k, v, None, keep, seed, True, 0.3, SHARE))


def test_the_kernel_is_the_reference(interpret: Callable[..., None]) -> None:
    interpret(__file__, "the kernel is the reference")


LARGE: list[dict[str, Any]] = [
    {"m": size, "n": size, "d": 64, "B": 8, "H": 8, "dropout": True, "dtype": torch.bfloat16, kind: True}
    for size in (16, 32, 64, 128)
    for kind in ("causal", "masked")
]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
@pytest.mark.parametrize("case", [*CASES, *LARGE], ids=str)
def test_the_kernel_is_the_reference_cuda(case: dict[str, Any]) -> None:
    check("cuda", **case)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
@pytest.mark.parametrize("part", [check_mask, check_attend, check_layer, check_operator])
def test_the_kernel_in_its_place_cuda(part: Callable[[str], None]) -> None:
    part("cuda")


if __name__ == "__main__":
    for case in CASES:
        check("cpu", **case)
    for part in (check_mask, check_attend, check_layer, check_operator):
        part("cpu")
    check_fits()
    print("the kernel is the reference")
