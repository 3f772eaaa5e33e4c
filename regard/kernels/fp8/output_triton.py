"""The softmax over the vocabulary, written as 8-bit numbers by Triton kernels for NVIDIA GPUs; see output.py.

One kernel reads each row for its loss. A second one reads the scores again in tiles, so that it can write the softmax
in both orders, as casts_triton.py does. The entries of the true tokens are few: a third kernel clears them afterwards,
so that not every token is compared with the label.

    n rows   V vocabulary   p width
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton import language as tl

from regard.kernels.fp8.casts import E5M2, MULTIPLE, Cast
from regard.kernels.fp8.casts_triton import TILE_COLUMNS, TILE_ROWS, WARPS, to_bytes
from regard.kernels.fp8.output import UNIT, Softmax
from regard.kernels.training.cross_entropy_triton import LOG2_E, row_sums, score_block

LABEL_ROWS = 128  # rows whose labels a program processes


@triton.jit
def _row_losses(
    scores,
    labels,
    keep,
    loss,
    nll,
    mass,
    at_label,
    vocabulary,
    smoothing,
    MASKED: tl.constexpr,
    SMOOTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the loss of a row, log sum exp of its scores, and the gradient of the true token's score."""
    i = tl.program_id(0).to(tl.int64)
    weight = 1.0
    if MASKED:
        weight = tl.load(keep + i).to(tl.float32)
    row = scores + i * vocabulary
    log_sum, plain = row_sums(row, vocabulary, BLOCK, SMOOTH)
    row_nll = log_sum - tl.load(row + tl.load(labels + i)).to(tl.float32)
    tl.store(loss + i, weight * ((1 - smoothing) * row_nll - smoothing * (plain / vocabulary - log_sum)))
    tl.store(nll + i, weight * row_nll)
    tl.store(mass + i, log_sum)
    tl.store(at_label + i, weight * (tl.exp2(-row_nll * LOG2_E) - (1 - smoothing + smoothing / vocabulary)))


@triton.jit
def _softmax_cast(
    scores,
    keep,
    mass,
    straight,  # (R, C)
    transposed,  # (C, padded)
    R,
    C,
    padded,
    share,
    SCALE: tl.constexpr,
    LIMIT: tl.constexpr,
    MASKED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Process a tile."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (r < R)[:, None] & (c < C)[None, :]
    where = r.to(tl.int64)[:, None] * C + c[None, :]
    x = tl.load(scores + where, mask=inside, other=float("-inf")).to(tl.float32)
    log_sum = tl.load(mass + r, mask=r < R, other=0.0)
    if MASKED:
        weight = tl.load(keep + r, mask=r < R, other=0).to(tl.float32)
    else:
        weight = (r < R).to(tl.float32)
    y = ((tl.exp2(x * LOG2_E - (log_sum * LOG2_E)[:, None]) - share) * weight[:, None]).to(tl.bfloat16)
    tl.store(straight + where, to_bytes(y, SCALE, LIMIT, True), mask=inside)
    across = c.to(tl.int64)[:, None] * padded + r[None, :]
    turned = to_bytes(tl.trans(y), SCALE, LIMIT, True)
    tl.store(transposed + across, turned, mask=(c < C)[:, None] & (r < padded)[None, :])


@triton.jit
def _clear_labels(labels, straight, transposed, R, C, padded, ROWS: tl.constexpr):
    """Write 0 to the entries of the true tokens of some rows."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    label = tl.load(labels + r, mask=r < R, other=0).to(tl.int64)
    tl.store(straight + r.to(tl.int64) * C + label, 0, mask=r < R)
    tl.store(transposed + label * padded + r, 0, mask=r < R)


@triton.jit
def _e4m3(numbers, where, mask):
    """Read bytes as numbers of the format e4m3, in float32."""
    return tl.load(numbers + where, mask=mask, other=0).to(tl.float8e4nv, bitcast=True).to(tl.float32)


@triton.jit
def _add_labels(
    product,
    x,  # (n, p), bytes
    x_inverse,
    weight,  # (V, p), bytes
    w_inverse,
    labels,
    at_label,
    d_weight,
    dx,
    width,
    TO_WEIGHT: tl.constexpr,
    P: tl.constexpr,
):
    """Add g_t w[t] to a row of dx, and g_t x to row t of dw."""
    i, c = tl.program_id(0).to(tl.int64), tl.arange(0, P)
    label, step = tl.load(labels + i).to(tl.int64), tl.load(at_label + i)
    w = _e4m3(weight, label * width + c, c < width) * tl.load(w_inverse)
    y = tl.load(product + i * width + c, mask=c < width, other=0.0).to(tl.float32) + step * w
    tl.store(dx + i * width + c, y.to(dx.dtype.element_ty), mask=c < width)
    if TO_WEIGHT:
        term = step * _e4m3(x, i * width + c, c < width) * tl.load(x_inverse)
        tl.atomic_add(d_weight + label * width + c, term, mask=c < width, sem="relaxed")


def launch_softmax_cast(scores: Tensor, labels: Tensor, keep: Tensor | None, smoothing: float) -> Softmax:
    n, V = scores.shape
    loss, nll, mass, at_label = torch.empty(4, n, device=scores.device).unbind()
    padded = triton.cdiv(n, MULTIPLE) * MULTIPLE
    straight = torch.empty(n, V, dtype=torch.uint8, device=scores.device)
    transposed = torch.empty(V, padded, dtype=torch.uint8, device=scores.device)
    mask, masked = labels if keep is None else keep, keep is not None
    block, warps = score_block(scores)
    _row_losses[(n,)](
        scores, labels, mask, loss, nll, mass, at_label, V, smoothing,
        MASKED=masked, SMOOTH=smoothing > 0, BLOCK=block, num_warps=warps,
    )  # fmt: skip
    _softmax_cast[(triton.cdiv(padded, TILE_ROWS), triton.cdiv(V, TILE_COLUMNS))](
        scores, mask, mass, straight, transposed, n, V, padded, smoothing / V,
        SCALE=2.0**UNIT, LIMIT=E5M2.limit, MASKED=masked, ROWS=TILE_ROWS, COLUMNS=TILE_COLUMNS, num_warps=WARPS,
    )  # fmt: skip
    _clear_labels[(triton.cdiv(n, LABEL_ROWS),)](labels, straight, transposed, n, V, padded, ROWS=LABEL_ROWS)
    return Softmax(loss, nll, at_label, straight, transposed)


def launch_add_labels(
    product: Tensor, x: Cast, weight: Cast, labels: Tensor, at_label: Tensor, d_weight: Tensor | None, dx: Tensor
) -> None:
    """Write product + g_t w[t] to dx (n, p), and add g_t x to the rows t of `d_weight` (V, p), if there is one."""
    n, p = dx.shape
    _add_labels[(n,)](
        product, x.straight, x.inverse, weight.straight, weight.inverse, labels, at_label,
        product if d_weight is None else d_weight, dx, p,
        TO_WEIGHT=d_weight is not None, P=triton.next_power_of_2(p), num_warps=4,
    )  # fmt: skip
