"""Matrix products of a decoding step on a GPU; for few rows the norm is fused into the product that follows it.

E1, E2, E4. The tests run the kernels in Triton's interpreter and compare them with the modules.

    R rows   p model width
"""

from __future__ import annotations

import triton
from torch import Tensor
from triton import language as tl

from regard.kernels.decode_gpu.dependent_launch_triton import launch_options, wait_for_inputs
from regard.kernels.decode_gpu.norm_triton import NormWeights, load_gain_and_shift, row_statistics

MAX_ROWS = 16  # of a product with a fused norm: the rows that the tensor cores multiply at once
# Columns that one program computes for one row, by the number of columns: enough programs to occupy all cores.
COLUMNS_PER_PROGRAM = {1024: 4, 2048: 8, 2**31: 16}
MAX_SEPARATE_OUTPUTS = 16384  # up to so many results each row reads the weights for itself, from the GPU's cache
MAX_TILE_WEIGHTS = 8192  # that a program holds, unless a single column has more
ACTIVATIONS = ("", "relu", "gelu", "gelu-tanh", "swiglu")  # the kernels know them by their index


@triton.jit
def _activate(x, gate, ACTIVATION: tl.constexpr):
    if ACTIVATION == 1:
        x = tl.maximum(x, 0.0)
    if ACTIVATION == 2:
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    if ACTIVATION == 3:
        x = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    if ACTIVATION == 4:
        x = x * tl.sigmoid(x) * gate
    return x


@triton.jit
def _linear_one_row(
    x,
    weight,
    bias,
    residual,
    gain,
    shift,
    out,
    rows,
    inner,
    outer,
    eps,
    BIAS: tl.constexpr,
    NORM: tl.constexpr,  # 1: of x, 2: of the residual
    RMS: tl.constexpr,
    SHIFT: tl.constexpr,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
    WIDTH: tl.constexpr,  # of the residual
    INNER: tl.constexpr,
    OUTER: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Compute some columns of one row. The weights are read before the wait for the previous kernel."""
    r = tl.program_id(0)
    x += r * inner
    residual += r * outer
    out += r * outer
    column = tl.program_id(1) * OUTER + tl.arange(0, OUTER)
    valid_columns = column < outer
    index = tl.arange(0, INNER)
    valid_index = index < inner
    dtype = x.dtype.element_ty
    tile = weight + column[:, None] * inner + index[None, :]
    valid_weights = valid_columns[:, None] & valid_index[None, :]
    w = tl.load(tile, mask=valid_weights, other=0.0)
    if ACTIVATION == 4:
        gate = tl.load(tile + outer * inner, mask=valid_weights, other=0.0)
    sums = tl.zeros((OUTER,), tl.float32)
    gates = sums
    if BIAS:
        sums = tl.load(bias + column, mask=valid_columns, other=0.0).to(tl.float32)
        if ACTIVATION == 4:
            gates = tl.load(bias + outer + column, mask=valid_columns, other=0.0).to(tl.float32)
    if NORM == 1:
        g, s = load_gain_and_shift(gain, shift, index, valid_index, SHIFT)
    if NORM == 2:
        g, s = load_gain_and_shift(gain, shift, column, valid_columns, SHIFT)
    wait_for_inputs(EARLY)
    v = tl.load(x + index, mask=valid_index, other=0.0).to(tl.float32)
    if RESIDUAL:
        residual_tile = tl.load(residual + column, mask=valid_columns, other=0.0).to(tl.float32)
    if NORM == 2:
        feature = tl.arange(0, WIDTH)
        row = tl.load(residual + feature, mask=feature < outer, other=0.0).to(tl.float32)
        mean, scale = row_statistics(row, feature < outer, outer, eps, RMS)
        residual_tile = ((residual_tile - mean) * scale * g + s).to(dtype).to(tl.float32)
    if NORM == 1:
        mean, scale = row_statistics(v, valid_index, inner, eps, RMS)
        v = ((v - mean) * scale * g + s).to(dtype).to(tl.float32)
    sums += tl.sum(w.to(tl.float32) * v[None, :], 1)
    if ACTIVATION == 4:
        gates += tl.sum(gate.to(tl.float32) * v[None, :], 1)
    y = _activate(sums.to(dtype).to(tl.float32), gates.to(dtype).to(tl.float32), ACTIVATION)
    if RESIDUAL:
        y = y.to(dtype).to(tl.float32) + residual_tile
    tl.store(out + column, y.to(dtype), mask=valid_columns)


@triton.jit
def _linear_all_rows(
    x,
    weight,
    bias,
    residual,
    gain,
    shift,
    out,
    rows,
    inner,
    outer,
    eps,
    BIAS: tl.constexpr,
    NORM: tl.constexpr,  # 1: of x, 2: of the residual
    RMS: tl.constexpr,
    SHIFT: tl.constexpr,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    INNER: tl.constexpr,
    OUTER: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Compute some columns of all rows on the tensor cores, so that the weights are read once."""
    column = tl.program_id(1) * OUTER + tl.arange(0, OUTER)
    valid_columns = column < outer
    row = tl.arange(0, ROWS)
    valid_rows = row < rows
    valid_outputs = valid_rows[:, None] & valid_columns[None, :]
    dtype = x.dtype.element_ty
    wait_for_inputs(EARLY)
    mean = tl.zeros((ROWS,), tl.float32)
    scale = mean
    if NORM != 0:
        width = inner
        norm_input = x
        if NORM == 2:
            width = outer
            norm_input = residual
        feature = tl.arange(0, WIDTH)
        valid_features = valid_rows[:, None] & (feature < width)[None, :]
        s = tl.load(norm_input + row[:, None] * width + feature[None, :], mask=valid_features, other=0.0).to(tl.float32)
        if not RMS:
            mean = tl.sum(s, 1) / width
            s = tl.where(valid_features, s - mean[:, None], 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(s * s, 1) / width + eps)
    sums = tl.zeros((ROWS, OUTER), tl.float32)
    gates = tl.zeros((ROWS, OUTER), tl.float32)
    for start in range(0, inner, INNER):
        index = start + tl.arange(0, INNER)
        valid_index = index < inner
        v = tl.load(
            x + row[:, None] * inner + index[None, :], mask=valid_rows[:, None] & valid_index[None, :], other=0.0
        )
        if NORM == 1:
            v = (v.to(tl.float32) - mean[:, None]) * scale[:, None]
            v *= tl.load(gain + index, mask=valid_index, other=0.0).to(tl.float32)[None, :]
            if SHIFT:
                v += tl.load(shift + index, mask=valid_index, other=0.0).to(tl.float32)[None, :]
            v = v.to(dtype)
        valid_weights = valid_columns[None, :] & valid_index[:, None]
        w = tl.load(weight + column[None, :] * inner + index[:, None], mask=valid_weights, other=0.0)  # transposed
        sums = tl.dot(v, w, sums, input_precision="ieee")
        if ACTIVATION == 4:
            w = tl.load(weight + (outer + column)[None, :] * inner + index[:, None], mask=valid_weights, other=0.0)
            gates = tl.dot(v, w, gates, input_precision="ieee")
    if BIAS:
        sums += tl.load(bias + column, mask=valid_columns, other=0.0).to(tl.float32)[None, :]
        if ACTIVATION == 4:
            gates += tl.load(bias + outer + column, mask=valid_columns, other=0.0).to(tl.float32)[None, :]
    y = _activate(sums.to(dtype).to(tl.float32), gates.to(dtype).to(tl.float32), ACTIVATION)
    if RESIDUAL:
        residual_tile = tl.load(residual + row[:, None] * outer + column[None, :], mask=valid_outputs, other=0.0).to(
            tl.float32
        )
        if NORM == 2:
            residual_tile = (residual_tile - mean[:, None]) * scale[:, None]
            residual_tile *= tl.load(gain + column, mask=valid_columns, other=0.0).to(tl.float32)[None, :]
            if SHIFT:
                residual_tile += tl.load(shift + column, mask=valid_columns, other=0.0).to(tl.float32)[None, :]
            residual_tile = residual_tile.to(dtype).to(tl.float32)
        y = y.to(dtype).to(tl.float32) + residual_tile
    tl.store(out + row[:, None] * outer + column[None, :], y.to(dtype), mask=valid_outputs)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    norm: NormWeights | None = None,
    activation: str = "",
    residual: Tensor | None = None,
) -> Tensor:
    """Return activation(x W + b) + residual for up to MAX_ROWS rows x (R, p).

    The norm applies to the residual if there is one, otherwise to x.
    """
    rows, inner = x.shape
    outer = len(weight) // (2 if activation == "swiglu" else 1)
    out = x.new_empty(rows, outer)
    separate = rows == 1 or rows * outer <= MAX_SEPARATE_OUTPUTS
    if separate:
        inner_block = triton.next_power_of_2(inner)
        columns = next(columns for most, columns in COLUMNS_PER_PROGRAM.items() if outer <= most)
        columns = min(columns, max(1, MAX_TILE_WEIGHTS // inner_block))
    else:
        columns, inner_block = 16 if outer <= 4096 else 32, min(256, max(16, triton.next_power_of_2(inner)))
    kernel = _linear_one_row if separate else _linear_all_rows
    kernel[(rows if separate else 1, triton.cdiv(outer, columns))](
        x,
        weight,
        weight if bias is None else bias,
        x if residual is None else residual,
        weight if norm is None else norm.weight,
        weight if norm is None or norm.bias is None else norm.bias,
        out,
        rows,
        inner,
        outer,
        0.0 if norm is None else norm.eps,
        BIAS=bias is not None,
        NORM=0 if norm is None else 1 if residual is None else 2,
        RMS=norm is not None and norm.rms,
        SHIFT=norm is not None and norm.bias is not None,
        ACTIVATION=ACTIVATIONS.index(activation),
        RESIDUAL=residual is not None,
        WIDTH=triton.next_power_of_2(inner if residual is None else outer),
        INNER=inner_block,
        OUTER=columns,
        num_warps=4,
        **({} if separate else {"ROWS": MAX_ROWS}),
        **launch_options(x),
    )
    return out
