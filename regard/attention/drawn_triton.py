"""Dropout masks inside Triton's kernels: the same numbers each time for the same seed.

Salmon et al. 2011: Philox with 4 words of 32 bits, of which 7 rounds are the fewest without a flaw that tests can find.
Each call of it gives 8 numbers of 16 bits: a kernel that drew one number a call would wait for its arithmetic and not
for the memory.
"""

from __future__ import annotations

import triton
from triton import language as tl


def share(dropout: float) -> tuple[int, float]:
    """How many of 65536 are dropped, and what the others are multiplied by."""
    dropped = round(dropout * 65536)
    return dropped, 65536 / (65536 - dropped)


@triton.jit
def kept(seed, row, dropped, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Which numbers stay, (ROWS, COLUMNS), in the rows of these numbers (ROWS,)."""
    eighth: tl.constexpr = COLUMNS // 8
    call = row.to(tl.uint32)[:, None] * eighth + tl.arange(0, eighth).to(tl.uint32)[None, :]
    a, b, c, d = tl.randint4x(seed, call, n_rounds=7)
    words = tl.join(tl.join(a, b), tl.join(c, d))  # (ROWS, COLUMNS/8, 2, 2)
    halves = tl.join(words & 0xFFFF, words >> 16)
    return tl.reshape(halves, (ROWS, COLUMNS)) >= dropped
