"""Sort keys for the search kernels: a score and its index in one integer, ordered by score and then by index.

The searches break ties by the lower index. With these keys a plain maximum does so too.
"""

from __future__ import annotations

import triton
from triton import language as tl

CHUNK_SCORES = 4096  # that one program of beam search ranks
INDEX_BITS = tl.constexpr(CHUNK_SCORES - 1)  # the bits of an index within a chunk
LOWEST = tl.constexpr(-(2**63))  # below all keys
LOWEST_SHORT = tl.constexpr(-(2**31))  # below all short keys


@triton.jit
def sort_keys(x, index):
    """Integers in the order of x; among equal scores the lower index has the higher key, so one maximum finds both."""
    bits = x.to(tl.int32, bitcast=True)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (order.to(tl.int64) << 32) | (0x7FFFFFFF - index).to(tl.int64)


@triton.jit
def score_of(key):
    order = (key >> 32).to(tl.int32)
    return (order ^ ((order >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def index_of(key):
    return 0x7FFFFFFF - (key & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def short_sort_keys(x, index):
    """The same in 32 bits for 16-bit scores: as float32 they end in at least 13 zero bits, which hold the index."""
    bits = x.to(tl.int32, bitcast=True)
    return ((bits ^ ((bits >> 31) & 0x7FFFFFFF)) & ~INDEX_BITS) | (INDEX_BITS - index)


@triton.jit
def score_of_short(key):
    return ((key ^ ((key >> 31) & 0x7FFFFFFF)) & ~INDEX_BITS).to(tl.float32, bitcast=True)
