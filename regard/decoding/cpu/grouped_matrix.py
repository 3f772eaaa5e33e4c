"""Matrices of integers in groups in the layout that C reads (regard/kernels/native/decoder/group_product.h).

b blocks of outputs   B outputs of a block   G groups of inputs
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from regard.decoding.cpu.c_matrix import CMatrix, MatrixStruct, as_array, empty_aligned
from regard.models.folder.integer_groups import GROUP, IntegerGroups, integers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


class GroupedMatrix(CMatrix):
    """A matrix (o, i) in groups: for each block of outputs and each group its scales, its minima, and its integers."""

    def __init__(self, library: Any, groups: IntegerGroups, bits: int, columns: int) -> None:
        self.library, self.columns = library, columns
        plain, scales, minima = map(as_array, groups)
        self.out, block = len(plain), library.outputs_of_a_block()
        numbers = _integers_in_blocks(integers(plain, bits, columns), bits, block)
        rates = [_pad(rates, block).reshape(-1, block, rates.shape[1]).swapaxes(1, 2) for rates in (scales, minima)]
        parts = [*(np.ascontiguousarray(each).view(np.uint8) for each in rates), numbers]
        self.numbers = empty_aligned((*numbers.shape[:2], sum(part.shape[2] for part in parts)), np.dtype(np.uint8))
        np.concatenate(parts, axis=2, out=self.numbers)
        self.arrays = {}
        self.struct = MatrixStruct(grouped=self.numbers.ctypes.data, out=self.out, columns=columns, bits=bits)


def _integers_in_blocks(numbers: Array, bits: int, block: int) -> Array:
    """(o, i) -> bytes (b, G, bytes of a group): four inputs after four; of 4 bits, the second half above the first."""
    padded = _pad(numbers, block, GROUP)
    fours = padded.reshape(-1, block, padded.shape[1] // GROUP, 8, 4)  # (b, B, G, 8, 4)
    if bits == 4:
        fours = fours[:, :, :, :4] | fours[:, :, :, 4:] << 4  # (b, B, G, 4, 4)
    ordered = fours.transpose(0, 2, 3, 1, 4)  # (b, G, fours, B, 4)
    return ordered.reshape(*ordered.shape[:2], -1)


def _pad(numbers: Array, rows: int, columns: int = 1) -> Array:
    o, i = numbers.shape
    return np.pad(numbers, ((0, -o % rows), (0, -i % columns)))
