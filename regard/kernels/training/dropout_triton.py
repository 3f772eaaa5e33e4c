"""Dropout masks inside Triton kernels: the same seed always gives the same mask.

Salmon et al. 2011: Philox with 4 words of 32 bits and 7 rounds, the fewest that pass all statistical tests. Each call
returns 8 numbers of 16 bits: with one number per call, a kernel would be limited by arithmetic instead of by memory.
"""

from __future__ import annotations

import triton
from triton import language as tl


def share(dropout: float) -> tuple[int, float]:
    """Return how many of 65536 numbers are dropped, and the factor of the others."""
    dropped = round(dropout * 65536)
    return dropped, 65536 / (65536 - dropped)


@triton.jit
def kept(seed, row, dropped, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return which numbers are kept, (ROWS, COLUMNS), in the rows with these indices (ROWS,)."""
    eighth: tl.constexpr = COLUMNS // 8
    call = row.to(tl.uint32)[:, None] * eighth + tl.arange(0, eighth).to(tl.uint32)[None, :]
    a, b, c, d = tl.randint4x(seed, call, n_rounds=7)
    words = tl.join(tl.join(a, b), tl.join(c, d))  # (ROWS, COLUMNS/8, 2, 2)
    halves = tl.join(words & 0xFFFF, words >> 16)
    return tl.reshape(halves, (ROWS, COLUMNS)) >= dropped


@triton.jit
def kept_of_product(seed, row, dropped, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the same for the result of a matrix product, where a thread has two adjacent numbers of every eight.

    So that it needs no other thread's, the four words of a call are for columns 8 apart: number e of word w of call 4 h
    + t is for column 32 h + 8 w + 2 t + e.
    """
    call = tl.arange(0, COLUMNS // 32)[:, None] * 4 + tl.arange(0, 4)[None, :]  # h, t
    call = row.to(tl.uint32)[:, None, None] * (COLUMNS // 8) + call.to(tl.uint32)[None, :, :]
    a, b, c, d = tl.randint4x(seed, call, n_rounds=7)
    w, e = tl.arange(0, 4)[None, None, :, None, None], tl.arange(0, 2)[None, None, None, None, :]
    # The position of a thread's numbers is known at compile time, so these selections cost nothing.
    first, second = tl.where(w == 0, _wide(a), _wide(b)), tl.where(w == 2, _wide(c), _wide(d))
    word = tl.where(w < 2, first, second)  # (ROWS, COLUMNS/32, 4, 4, 1)
    return tl.reshape(tl.where(e == 0, word & 0xFFFF, word >> 16), (ROWS, COLUMNS)) >= dropped


@triton.jit
def _wide(word):
    return word[:, :, None, :, None]
