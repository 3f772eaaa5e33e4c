"""The C of this folder, and matrices in the order in which it reads them: their product with rows of numbers.

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
GROUP = 4  # whole numbers of a row that are multiplied at once


class Matrix(Structure):
    """As in product.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("weight", "numbers", "worth", "sums", "bias")),
        ("out", c_int),
        ("columns", c_int),
    )


class LaidOut:
    """A matrix (o, i) as product.h reads it: blocks of outputs, and in each the inputs one after the other.

    Of float32, or of whole numbers of eight bits with the worth of one in each row, (o,).
    """

    def __init__(self, code: Any, numbers: Tensor, worth: Tensor | None = None) -> None:
        self.code, width = code, code.outputs_of_a_block()
        self.out, self.columns = numbers.shape
        parts = {"weight": blocks(numbers, width)}
        if worth is not None:
            # The rows that they are multiplied by have 128 added to each number: what that adds is taken off again.
            sums = -128 * numbers.sum(1, dtype=torch.int32)
            rows = {"worth": worth.float(), "sums": sums}
            parts = {name: F.pad(part, (0, -len(part) % width)) for name, part in rows.items()}
            parts["numbers"] = blocks(numbers, width, GROUP)
        self.parts = {name: part.contiguous() for name, part in parts.items()}  # what the pointers point to
        pointers = {name: part.data_ptr() for name, part in self.parts.items()}
        self.matrix = Matrix(**pointers, out=self.out, columns=self.columns)

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """(…, i) -> (…, o)."""
        rows = x.reshape(-1, self.columns).contiguous()
        y = x.new_empty(len(rows), self.out)
        numbers = map(pointer, (bias, rows, y))
        if len(rows) and self.code.multiply(byref(self.matrix), *numbers, len(rows), torch.get_num_threads()):
            raise MemoryError(f"no memory for a product of {len(rows)} rows")
        return y.view(*x.shape[:-1], self.out)


def blocks(numbers: Tensor, outputs: int, inputs: int = 1) -> Tensor:
    """(o, i) -> (blocks of outputs, groups of inputs, outputs, inputs), with zeros where there is nothing."""
    o, i = numbers.shape
    padded = F.pad(numbers, (0, -i % inputs, 0, -o % outputs))
    return padded.view(-1, outputs, padded.shape[1] // inputs, inputs).transpose(1, 2).contiguous()


@cache
def compiled() -> Any:
    """The functions of native.c; None where they cannot be had."""
    code = load_library(SOURCE, PRODUCT, STEP)
    return None if code is None else declare(code)


def declare(code: Any) -> Any:
    """The library, with what its functions take."""
    code.multiply.argtypes = [POINTER(Matrix), *[c_void_p] * 3, c_int, c_int]
    code.decode_step.argtypes = [*[c_void_p] * 4, *[c_int] * 3, *[c_void_p] * 4, c_int]
    return code
