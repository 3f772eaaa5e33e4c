"""The input of the first block from tokens, in one Triton kernel, for NVIDIA GPUs.

Vaswani et al. 2017, sections 3.4, 3.5 and 5.4; A1, B2. The kernel computes a token's row of the table, times a factor,
plus the vector of its position, with dropout; as separate operations, each would read and write everything in float32.
In the backward pass one kernel applies the mask again, and PyTorch sums the rows of each token. Tests compare the
kernels with the modules in Triton's interpreter.

    R rows: all tokens   T length of a text   V vocabulary   p width
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.library import custom_op
from triton import language as tl

from regard.kernels.training.dropout_triton import kept, share

NUMBERS_PER_WARP = 512  # 16 per thread


@triton.jit
def _embed(
    tokens,
    table,
    places,
    seed,
    out,
    rows,
    length,
    vocabulary,
    width,
    factor,
    dropped,
    inverse_keep,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
    P: tl.constexpr,
):
    """Compute some rows of dropout(factor table[tokens] + places)."""
    r, at = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, P)
    inside = (r < rows)[:, None] & (at < width)[None, :]
    token = tl.load(tokens + r, mask=r < rows, other=0).to(tl.int64)
    known = ((token >= 0) & (token < vocabulary))[:, None]
    x = tl.load(table + token[:, None] * width + at[None, :], mask=inside & known, other=0.0).to(tl.float32) * factor
    x = tl.where(known, x, float("nan"))  # make a token without a row visible
    if PLACES:
        x += tl.load(places + (r % length)[:, None] * width + at[None, :], mask=inside, other=0.0).to(tl.float32)
    x = tl.where(kept(tl.load(seed), r, dropped, ROWS, P), x * inverse_keep, 0.0)
    tl.store(out + r.to(tl.int64)[:, None] * width + at[None, :], x.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _embed_back(grad_out, seed, out, rows, width, dropped, inverse_keep, ROWS: tl.constexpr, P: tl.constexpr):
    """Compute some rows of the gradient, with the same mask; `grown` includes the factor."""
    r, at = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, P)
    inside = (r < rows)[:, None] & (at < width)[None, :]
    where = r.to(tl.int64)[:, None] * width + at[None, :]
    step = tl.load(grad_out + where, mask=inside, other=0.0).to(tl.float32)
    step = tl.where(kept(tl.load(seed), r, dropped, ROWS, P), step * inverse_keep, 0.0)
    tl.store(out + where, step.to(out.dtype.element_ty), mask=inside)


@custom_op("regard::embed_dropped", mutates_args=())
def embed_dropped(
    tokens: Tensor,
    table: Tensor,
    places: Tensor | None,
    seed: Tensor,
    factor: float,
    dropout: float,
    pad_id: int,
    dtype: torch.dtype,
) -> Tensor:
    """Return dropout(factor table[tokens] + places), (B, T, p) in `dtype`.

    tokens (B, T), table (V, p), places (T, p) the vectors of the positions, which are constants and get no gradient.
    Nor does the row of `pad_id`; -1 means that there is none.
    """
    tokens, table = tokens.contiguous(), table.contiguous()
    out, (grid, options) = _empty(tokens, table, dtype), _tiling(tokens, table.shape[1])
    _embed[grid](
        tokens,
        table,
        table if places is None else places.contiguous(),
        seed,
        out,
        tokens.numel(),
        tokens.shape[1],
        *table.shape,
        factor,
        *share(dropout),
        PLACES=places is not None,
        **options,
    )
    return out


@custom_op("regard::embed_dropped_back", mutates_args=())
def embed_dropped_back(
    grad_out: Tensor,
    tokens: Tensor,
    seed: Tensor,
    vocabulary: int,
    dtype: torch.dtype,
    factor: float,
    dropout: float,
    pad_id: int,
) -> Tensor:
    """Return the gradient of the table, (V, p). All sums are in its dtype, because there may be thousands of terms."""
    grad_out = grad_out.contiguous()
    steps, (grid, options) = torch.empty_like(grad_out, dtype=dtype), _tiling(tokens, grad_out.shape[-1])
    dropped, inverse_keep = share(dropout)
    _embed_back[grid](
        grad_out, seed, steps, tokens.numel(), grad_out.shape[-1], dropped, inverse_keep * factor, **options
    )
    return torch.ops.aten.embedding_dense_backward(steps, tokens, vocabulary, pad_id, False)


def _tiling(tokens: Tensor, width: int) -> tuple[tuple[int], dict[str, int]]:
    """Return the number of programs and the tile sizes."""
    P = max(16, triton.next_power_of_2(width))
    rows = max(1, NUMBERS_PER_WARP // P)
    return (triton.cdiv(tokens.numel(), rows),), {
        "ROWS": rows,
        "P": P,
        "num_warps": min(32, max(1, P // NUMBERS_PER_WARP)),
    }


def _empty(tokens: Tensor, table: Tensor, dtype: torch.dtype) -> Tensor:
    return table.new_empty(*tokens.shape, table.shape[1], dtype=dtype)


@embed_dropped.register_fake
def _(tokens: Tensor, table: Tensor, *others: Any) -> Tensor:
    return _empty(tokens, table, others[-1])


@embed_dropped_back.register_fake
def _(grad_out: Tensor, tokens: Tensor, seed: Tensor, vocabulary: int, dtype: torch.dtype, *_: object) -> Tensor:
    return grad_out.new_empty(vocabulary, grad_out.shape[-1], dtype=dtype)


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    tokens, table, _, seed, *settings, _ = inputs
    ctx.settings = len(table), table.dtype, *settings
    ctx.save_for_backward(tokens, seed)


def _gradients(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
    return None, embed_dropped_back(grad_out, *ctx.saved_tensors, *ctx.settings), *(None,) * 6


embed_dropped.register_autograd(_gradients, setup_context=_save_inputs)
