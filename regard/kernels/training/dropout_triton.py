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


@triton.jit
def kept_of_product(seed, row, dropped, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The same for the result of a matrix product, of which a thread holds two numbers of every eight side by side.

    So that it needs no other thread's, the four words of a call are for columns 8 apart: number e of word w of call 4 h
    + t is for column 32 h + 8 w + 2 t + e.
    """
    call = tl.arange(0, COLUMNS // 32)[:, None] * 4 + tl.arange(0, 4)[None, :]  # h, t
    call = row.to(tl.uint32)[:, None, None] * (COLUMNS // 8) + call.to(tl.uint32)[None, :, :]
    a, b, c, d = tl.randint4x(seed, call, n_rounds=7)
    w, e = tl.arange(0, 4)[None, None, :, None, None], tl.arange(0, 2)[None, None, None, None, :]
    # Where a thread's numbers lie is known when the kernel is compiled: of these choices nothing is left to do.
    first, second = tl.where(w == 0, _wide(a), _wide(b)), tl.where(w == 2, _wide(c), _wide(d))
    word = tl.where(w < 2, first, second)  # (ROWS, COLUMNS/32, 4, 4, 1)
    return tl.reshape(tl.where(e == 0, word & 0xFFFF, word >> 16), (ROWS, COLUMNS)) >= dropped


@triton.jit
def _wide(word):
    return word[:, :, None, :, None]
