"""Matrices in the layout that the C code reads (regard/kernels/native/decoder/product.h), and their product with rows.

Matrices come as tensors or as arrays, which C reads without torch.

    r rows   i features in   o features out
"""

from __future__ import annotations

from ctypes import POINTER, Structure, byref, c_int, c_void_p
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.kernels.native.compiler import ROOT as SOURCES, load_library, pointer
from regard.machine import threads_in_use

if TYPE_CHECKING:
    from torch import Tensor

SOURCE = SOURCES / "decoder" / "decoder.c"
CACHE_LINE = 64  # bytes
# Of decoder weights. Threads share the operations of a step with a model of this size. With a smaller one, each thread
# takes rows or texts of its own, because waiting for each other after each operation takes microseconds.
SHARED_BYTES = 2**24
PRODUCTS_OF_A_THREAD = 2**22  # of numbers: to start a thread takes as long as some millions of them
MAX_INTEGER = 127
FLOAT_PARTS = 3  # of 8 bits: together they have as many bits as a float32 number
MAX_ROUNDING = 2e-5  # of a scale: how far integers times scales may be from float32 numbers, which have 24 bits


class MatrixStruct(Structure):
    """The struct Matrix of product.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("weight", "numbers", "scales", "sums", "bias", "by_input", "grouped")),
        *((name, c_int) for name in ("out", "columns", "parts", "bits")),
    )


class CMatrix:
    """A matrix (o, i) as product.h reads it: blocks of outputs, and within a block one input after another.

    It holds float32 numbers, or int8 numbers with one scale for each row, (o,). C multiplies int8 numbers by integers
    of 8 bits, or of several such parts.
    """

    def __init__(
        self,
        library: Any,
        numbers: Tensor | np.ndarray,
        scales: Tensor | np.ndarray | None = None,
        parts: int = 1,
    ) -> None:
        self.library, self.numbers = library, as_array(numbers)
        self.out, self.columns = self.numbers.shape
        self.group = 1 if scales is None else library.inputs_of_a_group()
        blocks = to_blocks(self.numbers, library.outputs_of_a_block(), self.group)
        arrays = {"weight" if scales is None else "numbers": blocks}
        if scales is not None:
            # C adds a constant to the rows that the matrix is multiplied by; these sums take that off again.
            sums = -library.integer_for_zero() * self.numbers.sum(1, dtype=np.int32)
            padding = (0, -self.out % library.outputs_of_a_strip())
            arrays |= {"scales": np.pad(as_array(scales).astype(np.float32), padding), "sums": np.pad(sums, padding)}
        self.arrays = arrays  # keeps alive what the struct points to
        pointers = {name: array.ctypes.data for name, array in arrays.items()}
        parts = 0 if scales is None else parts
        self.struct = MatrixStruct(**pointers, out=self.out, columns=self.columns, parts=parts)

    @classmethod
    def of_floats(cls, library: Any, weight: Tensor | np.ndarray) -> CMatrix:
        """Return the C form of a float32 matrix: of int8 numbers if it consists of such numbers times row scales.

        C rounds what it multiplies them by to 24 bits, so the products are as exact as in float32.
        """
        integers = find_integers(as_array(weight)) if library.has_fast_parts() else None
        return cls(library, weight) if integers is None else cls(library, *integers, FLOAT_PARTS)

    def by_input(self) -> np.ndarray:
        """Return a copy in which the outputs of an input are adjacent, for rows with many zeros; made on first use."""
        if "by_input" not in self.arrays:
            strip = self.library.outputs_of_a_strip()
            padded = self.out + -self.out % strip
            self.arrays["by_input"] = to_blocks(self.numbers, padded, self.group)
        return self.arrays["by_input"]

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """(…, i) -> (…, o)."""
        rows = x.reshape(-1, self.columns).contiguous()
        y = x.new_empty(len(rows), self.out)
        pointers = map(pointer, (bias, rows, y))
        threads = min(threads_in_use(), 1 + len(rows) * self.out * self.columns // PRODUCTS_OF_A_THREAD)
        if len(rows) and self.library.multiply(byref(self.struct), *pointers, len(rows), threads):
            raise MemoryError(f"no memory for a product of {len(rows)} rows")
        return y.view(*x.shape[:-1], self.out)


def find_integers(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return int8 numbers (o, i) and scales (o,) whose products are the float32 matrix, or None if there are none.

    The largest number of each row has magnitude 127, as regard rounds matrices.
    """
    for rows in (weight[:1], weight):  # one row suffices to recognize most matrices that are not rounded
        scales = np.abs(rows).max(1) / np.float32(MAX_INTEGER)
        scales[scales == 0] = 1
        with np.errstate(invalid="ignore"):
            exact = rows / scales[:, None]
            numbers = np.rint(exact)
            is_rounded = np.abs(exact - numbers) <= MAX_ROUNDING  # False where a number is not finite
        if not is_rounded.all():
            return None
    return numbers.astype(np.int8), scales


def as_array(numbers: Tensor | np.ndarray) -> np.ndarray:
    """Return a tensor on the CPU as an array with the same memory, and an array as it is."""
    return numbers if isinstance(numbers, np.ndarray) else numbers.detach().numpy()


def to_blocks(numbers: np.ndarray, outputs: int, inputs: int = 1) -> np.ndarray:
    """(o, i) -> (blocks of outputs, groups of inputs, outputs, inputs), padded with zeros."""
    o, i = numbers.shape
    padded = np.pad(numbers, ((0, -o % outputs), (0, -i % inputs)))
    blocks = padded.reshape(-1, outputs, padded.shape[1] // inputs, inputs).swapaxes(1, 2)
    aligned = empty_aligned(blocks.shape, blocks.dtype)
    aligned[...] = blocks
    return aligned


def empty_aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return a new array that begins with a line of the cache: a vector in two lines takes twice as long to read."""
    bytes_ = np.empty(int(np.prod(shape)) * dtype.itemsize + CACHE_LINE, np.uint8)
    start = -bytes_.ctypes.data % CACHE_LINE
    return bytes_[start : start + len(bytes_) - CACHE_LINE].view(dtype).reshape(shape)


@cache
def compiled() -> Any:
    """Compile and load decoder.c; None where that is not possible."""
    library = load_library(SOURCE)
    return None if library is None else declare(library)


def declare(library: Any) -> Any:
    """Declare the argument types of the library's functions."""
    library.multiply.argtypes = [POINTER(MatrixStruct), *[c_void_p] * 3, c_int, c_int]
    library.decode_step.argtypes = [*[c_void_p] * 5, *[c_int] * 3, *[c_void_p] * 4, c_int, c_int]
    library.read_texts.argtypes = [*[c_void_p] * 7, c_int, c_int]
    library.begin_run.argtypes, library.begin_run.restype = [c_void_p] * 4, c_void_p
    library.advance_runs.argtypes = [c_void_p, *[c_int] * 4]
    library.read_run.argtypes, library.read_run.restype = [c_void_p] * 2, None
    library.free_run.argtypes, library.free_run.restype = [c_void_p], None
    return library
