"""Matrices in the layout that the C code reads (regard/kernels/native/product.h), and their product with rows.

r rows   i features in   o features out
"""

from __future__ import annotations

from ctypes import POINTER, Structure, byref, c_int, c_void_p
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.kernels.native.compiler import ROOT as SOURCES, load_library, pointer
from regard.kernels.native.linear_step import STEP

SOURCE = SOURCES / "decoder.c"
PRODUCT = SOURCES / "product.h"
INTEGERS_PER_GROUP = 4  # inputs that the CPU multiplies and adds at once


class MatrixStruct(Structure):
    """The struct Matrix of product.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("weight", "numbers", "scales", "sums", "bias")),
        ("out", c_int),
        ("columns", c_int),
    )


class CMatrix:
    """A matrix (o, i) as product.h reads it: blocks of outputs, and within a block one input after another.

    It holds float32 numbers, or int8 numbers with one scale for each row, (o,).
    """

    def __init__(self, library: Any, numbers: Tensor, scales: Tensor | None = None) -> None:
        self.library, block = library, library.outputs_of_a_block()
        self.out, self.columns = numbers.shape
        parts = {"weight": to_blocks(numbers, block)}
        if scales is not None:
            # C adds 128 to the rows that the matrix is multiplied by; these sums take that off again.
            sums = -128 * numbers.sum(1, dtype=torch.int32)
            per_row = {"scales": scales.float(), "sums": sums}
            parts = {name: F.pad(part, (0, -len(part) % block)) for name, part in per_row.items()}
            parts["numbers"] = to_blocks(numbers, block, INTEGERS_PER_GROUP)
        self.parts = {name: part.contiguous() for name, part in parts.items()}  # keeps alive what the struct points to
        pointers = {name: part.data_ptr() for name, part in self.parts.items()}
        self.struct = MatrixStruct(**pointers, out=self.out, columns=self.columns)

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """(…, i) -> (…, o)."""
        rows = x.reshape(-1, self.columns).contiguous()
        y = x.new_empty(len(rows), self.out)
        pointers = map(pointer, (bias, rows, y))
        if len(rows) and self.library.multiply(byref(self.struct), *pointers, len(rows), torch.get_num_threads()):
            raise MemoryError(f"no memory for a product of {len(rows)} rows")
        return y.view(*x.shape[:-1], self.out)


def to_blocks(numbers: Tensor, outputs: int, inputs: int = 1) -> Tensor:
    """(o, i) -> (blocks of outputs, groups of inputs, outputs, inputs), padded with zeros."""
    o, i = numbers.shape
    padded = F.pad(numbers, (0, -i % inputs, 0, -o % outputs))
    return padded.view(-1, outputs, padded.shape[1] // inputs, inputs).transpose(1, 2).contiguous()


@cache
def compiled() -> Any:
    """Compile and load decoder.c; None where that is not possible."""
    library = load_library(SOURCE, PRODUCT, STEP)
    return None if library is None else declare(library)


def declare(library: Any) -> Any:
    """Declare the argument types of the library's functions."""
    library.multiply.argtypes = [POINTER(MatrixStruct), *[c_void_p] * 3, c_int, c_int]
    library.decode_step.argtypes = [*[c_void_p] * 4, *[c_int] * 3, *[c_void_p] * 4, c_int]
    return library
