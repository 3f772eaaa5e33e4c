"""Weights in forms that a CPU multiplies by faster: int8 numbers, or float32 numbers packed for its kernels.

One token at a time, a decoder does little but read its weights. In int8 they are a quarter of the bytes. Each row of
the weights has a scale, and so has each row of the activations: y = s_x s_w (q_x q_w), with integers q up to 127. The
rows of a batch are scaled independently, so the result for a sentence does not depend on its neighbours.
Integers in groups of 32 inputs, with a scale for each group, are in grouped_weight.py.

    r rows   i features in   o features out
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decoding.cpu.c_matrix import CMatrix, compiled
from regard.machine import one_thread

MAX_INTEGER = 127  # -128 has no opposite
NEW_TENSOR_METHODS = (Tensor.new_empty, Tensor.new_zeros, Tensor.new_ones, Tensor.new_full)


class Weight(Tensor):
    """A matrix (o, i) in a form of its own, which models use like a plain one.

    `F.linear`, `F.embedding` and slices of rows have methods here. All other operations see the plain matrix.
    """

    row_slices: dict[tuple[int | None, int | None, int | None], Weight]  # made so far
    cached_c_matrix: CMatrix | None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.linear:
            return args[1].product(args[0], *args[2:], **kwargs) if isinstance(args[1], Weight) else NotImplemented
        if func is F.embedding:
            return args[1].look_up(args[0])
        if func is Tensor.__getitem__ and isinstance(args[1], slice):
            weight, rows = args
            if (key := (rows.start, rows.stop, rows.step)) not in weight.row_slices:
                weight.row_slices[key] = weight.select_rows(rows)  # the next step asks for the same rows
            return weight.row_slices[key]
        with torch._C.DisableTorchFunctionSubclass():  # shape, dtype, device
            if func in NEW_TENSOR_METHODS:  # which read only the dtype and the device
                return func(torch.empty(0, dtype=args[0].dtype), *args[1:], **kwargs)
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Run any other operation on the plain matrix."""
        plain = [arg.plain() if isinstance(arg, Weight) else arg for arg in args]
        return func(*plain, **(kwargs or {}))

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """(…, i) -> (…, o), in C where possible."""
        suits_c = type(x) is Tensor and x.dtype is torch.float32 and not x.requires_grad
        library = compiled() if suits_c else None
        return self.torch_product(x, bias) if library is None else self.c_matrix(library).product(x, bias)

    def c_matrix(self, library: Any) -> CMatrix:
        """Return the matrix as C reads it. It is made on first use, since of some matrices only slices are used."""
        if self.cached_c_matrix is None:
            with one_thread():  # one matrix is too little work for several
                self.cached_c_matrix = self.make_c_matrix(library)
        return self.cached_c_matrix

    def make_c_matrix(self, library: Any) -> CMatrix:
        raise NotImplementedError

    def torch_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError

    def plain(self) -> Tensor:
        """Return the matrix as a plain tensor of floating-point numbers."""
        raise NotImplementedError

    def select_rows(self, rows: slice) -> Weight:
        """Return some of the rows, without a copy where possible."""
        raise NotImplementedError

    def look_up(self, tokens: Tensor) -> Tensor:
        """(…) -> (…, i): the rows of an embedding."""
        raise NotImplementedError


class Int8Weight(Weight):
    """Integers (o, i) with a scale for each row (o,)."""

    numbers: Tensor
    scales: Tensor
    product_scales: Tensor  # scales / 127, which includes the 127 of the activations

    @classmethod
    def of(cls, weight: Tensor) -> Int8Weight:
        """Round a matrix: the number of largest magnitude in each row becomes 127 or -127."""
        magnitudes, numbers = quantize_rows(weight)
        return cls.make(numbers, magnitudes[:, 0] / MAX_INTEGER)

    @classmethod
    def make(cls, numbers: Tensor, scales: Tensor) -> Int8Weight:
        self = Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scales.dtype, device=numbers.device)
        self.row_slices, self.cached_c_matrix = {}, None
        self.numbers, self.scales, self.product_scales = numbers, scales, scales / MAX_INTEGER
        return self

    def make_c_matrix(self, library: Any) -> CMatrix:
        return CMatrix(library, self.numbers, self.scales)

    def torch_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        magnitudes, numbers = quantize_rows(x.reshape(-1, x.shape[-1]))
        y = x.new_empty(len(numbers), len(self.numbers))  # contiguous, whatever the layout of the product
        torch.mul(int_product(numbers, self.numbers), magnitudes, out=y)
        y = y.mul_(self.product_scales) if bias is None else torch.addcmul(bias, y, self.product_scales)
        return y.view(*x.shape[:-1], y.shape[-1])

    def plain(self) -> Tensor:
        return self.numbers * self.scales[:, None]

    def select_rows(self, rows: slice) -> Int8Weight:
        return Int8Weight.make(self.numbers[rows], self.scales[rows])

    def look_up(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.numbers) * F.embedding(tokens, self.scales[:, None])


class PackedWeight(Weight):
    """The same numbers in the layout in which kernels read them; plain ones remain for look-ups and slices."""

    numbers: Tensor
    packed: Tensor | None  # as oneDNN's kernels read them, where there is no C

    @classmethod
    def of(cls, weight: Tensor) -> PackedWeight:
        self = Tensor._make_wrapper_subclass(cls, weight.shape, dtype=weight.dtype, device=weight.device)
        self.row_slices, self.cached_c_matrix, self.numbers, self.packed = {}, None, weight, None
        return self

    def make_c_matrix(self, library: Any) -> CMatrix:
        return CMatrix.of_floats(library, self.numbers)

    def torch_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        if self.packed is None:
            self.packed = pack(self.numbers)
        return packed_product(x, self.packed, bias)

    def plain(self) -> Tensor:
        return self.numbers

    def select_rows(self, rows: slice) -> PackedWeight:
        return PackedWeight.of(self.numbers[rows])

    def look_up(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.numbers)


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """(r, i) -> the largest magnitude of each row (r, 1), and int8 numbers (r, i) in which it is 127.

    A row with NaN or infinity has no such integers: its magnitude is NaN, and so are all its products.
    """
    magnitudes = x.abs().amax(1, keepdim=True).clamp_min_(torch.finfo(x.dtype).tiny)  # also for a row of zeros
    magnitudes.masked_fill_(magnitudes.isinf(), torch.nan)
    return magnitudes, (x / magnitudes).mul_(MAX_INTEGER).round_().nan_to_num_().to(torch.int8)


def int_product(x: Tensor, weight: Tensor) -> Tensor:
    """(r, i) times (o, i), int8 -> (r, o) in int32, exact; in floating point where the CPU has no fast kernel."""
    return int_kernel()(x, weight)


@cache
def int_kernel() -> Callable[[Tensor, Tensor], Tensor]:
    """Choose how to multiply integers: by torch's kernel, which has no public name, if it exists and is correct."""

    def numbers(rows: int) -> Tensor:
        return torch.arange(rows * 96).reshape(rows, 96).remainder(255).sub(127).to(torch.int8)

    weight = numbers(32)
    try:
        if all(
            torch.equal(_int_product(numbers(rows), weight), (numbers(rows).long() @ weight.long().T).int())
            for rows in (1, 3, 20)  # one for each branch of _int_product
        ):
            return _int_product
        reason = "its result is wrong"
    except (AttributeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
    warnings.warn(f"torch's integer product cannot be used here ({reason}): int8 is not faster", stacklevel=2)
    return lambda x, weight: x.float() @ weight.float().T


def _int_product(x: Tensor, weight: Tensor) -> Tensor:
    if x.shape[1] == 1:  # torch 2.13 computes this case wrongly
        return x.int() * weight.T.int()
    # oneDNN is faster with the larger matrix first, except for few rows; the result is the same.
    if len(x) >= 16 or (len(x) > 1 and x.shape[1] > 1024):
        return torch._int_mm(weight, x.T).T
    return torch._int_mm(x, weight.T)


def pack(weight: Tensor) -> Tensor:
    """Return the matrix as `packed_product` reads it; unchanged where oneDNN has no such product for its dtype."""
    return weight if why_not_pack(weight.dtype) else torch.ops.mkldnn._reorder_linear_weight(weight)


def packed_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(…, i) times a packed matrix (o, i)."""
    if why_not_pack(x.dtype):
        return F.linear(x, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


@cache
def why_not_pack(dtype: torch.dtype) -> str | None:
    """Return the reason why oneDNN's product, which has no public name, cannot be used for this dtype, or None."""
    x, weight = (torch.linspace(-1, 1, n * 32).reshape(n, 32).to(dtype) for n in (3, 8))
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        product = torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
        if torch.allclose(product, F.linear(x, weight), rtol=1e-2, atol=1e-2):
            return None
        reason = "its result is wrong"
    except (AttributeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
    warnings.warn(f"oneDNN's product cannot be used for {dtype} here ({reason}): weights stay unpacked", stacklevel=2)
    return reason
