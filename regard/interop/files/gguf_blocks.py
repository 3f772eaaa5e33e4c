"""The numbers of GGUF files: blocks of small integers with a scale, as llama.cpp defines them.

Each function takes the blocks of a weight, (blocks, bytes), and returns their numbers, (blocks, numbers of a block). A
block of the K types has 256 numbers in groups of 16 or 32, whose scales are small integers themselves.

d scale, m minimum of a block (float16); q integers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[Any]  # uint8
Numbers = NDArray[Any]  # float32
GROUPS = 8  # of 32 numbers, in a block of Q4_K and Q5_K


def _half(blocks: Bytes, at: int) -> Numbers:
    """Return the float16 at a byte of each block, (blocks, 1)."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _nibbles(content: Bytes) -> Bytes:
    """(blocks, n) -> (blocks, 2n): all low halves of the bytes, then all high ones."""
    return np.concatenate([content & 15, content >> 4], axis=1)


def _fifth_bits(content: Bytes) -> Bytes:
    """Return the bits of four bytes, lowest first, as 0 or 16: (blocks, 32)."""
    return np.unpackbits(content, axis=1, bitorder="little") << 4


def q4_0(blocks: Bytes) -> Numbers:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def q4_1(blocks: Bytes) -> Numbers:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def q5_0(blocks: Bytes) -> Numbers:
    q = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return _half(blocks, 0) * (q.astype(np.float32) - 16)


def q5_1(blocks: Bytes) -> Numbers:
    return _half(blocks, 0) * (_nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])) + _half(blocks, 2)


def q8_0(blocks: Bytes) -> Numbers:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8)


def q2_k(blocks: Bytes) -> Numbers:
    scales, content = blocks[:, :16], blocks[:, 16:80]
    q = _pairs_of_bits(content).reshape(len(blocks), 16, 16)
    scaled = _half(blocks, 80)[..., None] * (scales & 15)[..., None] * q
    return (scaled - _half(blocks, 82)[..., None] * (scales >> 4)[..., None]).reshape(len(blocks), 256)


def q3_k(blocks: Bytes) -> Numbers:
    low = _pairs_of_bits(blocks[:, 32:96]).reshape(len(blocks), 256).astype(np.int8)
    masks = (blocks[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None]) & 1  # (blocks, 8, 32)
    q = low - ((masks ^ 1) << 2).reshape(len(blocks), 256).astype(np.int8)
    packed = blocks[:, 96:108]
    halves = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)  # (blocks, 16)
    tops = (packed[:, None, 8:12] >> np.arange(0, 8, 2, dtype=np.uint8)[:, None]) & 3  # (blocks, 4, 4)
    scales = (halves | (tops.reshape(len(blocks), 16) << 4)).astype(np.int8) - 32
    scaled = _half(blocks, 108) * scales
    return (scaled[..., None] * q.reshape(len(blocks), 16, 16)).reshape(len(blocks), 256)


def q4_k(blocks: Bytes) -> Numbers:
    return _with_minima(blocks, _groups_of_nibbles(blocks[:, 16:144]))


def q5_k(blocks: Bytes) -> Numbers:
    bits = (blocks[:, None, 16:48] >> np.arange(GROUPS, dtype=np.uint8)[:, None]) & 1  # (blocks, 8, 32)
    return _with_minima(blocks, _groups_of_nibbles(blocks[:, 48:176]) | bits << 4)


def q6_k(blocks: Bytes) -> Numbers:
    low = blocks[:, :128].reshape(-1, 2, 64)
    low = np.stack([low & 15, low >> 4], axis=2).reshape(-1, 8, 32)  # (blocks, 8, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    q = (low | (high.reshape(-1, 8, 32) & 3) << 4).astype(np.int8) - 32
    scales = _half(blocks, 208) * blocks[:, 192:208].view(np.int8)  # (blocks, 16)
    return (scales[..., None] * q.reshape(-1, 16, 16)).reshape(-1, 256)


def _pairs_of_bits(content: Bytes) -> Bytes:
    """(blocks, 64) -> (blocks, 2, 4, 32): for each half of the bytes, their first two bits, the next two, …"""
    halves = content.reshape(-1, 2, 1, 32)
    return (halves >> np.arange(0, 8, 2, dtype=np.uint8)[:, None]) & 3


def _groups_of_nibbles(content: Bytes) -> Bytes:
    """(blocks, 128) -> (blocks, 8, 32): of each 32 bytes the low halves, then the high ones."""
    quarters = content.reshape(-1, 4, 32)
    return np.stack([quarters & 15, quarters >> 4], axis=2).reshape(-1, GROUPS, 32)


def _with_minima(blocks: Bytes, q: Bytes) -> Numbers:
    """Return d · scale · q - m · minimum, with scales and minima of 6 bits packed into 12 bytes."""
    packed = blocks[:, 4:16]
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6) << 4], axis=1)
    minima = np.concatenate([second & 63, (third >> 4) | (second >> 6) << 4], axis=1)
    d, m = _half(blocks, 0) * scales, _half(blocks, 2) * minima
    return (d[..., None] * q - m[..., None]).reshape(-1, 256)


# By the number of the type in the file: its name, the numbers of a block, its bytes, and the function.
QUANTIZED: dict[int, tuple[str, int, int, Callable[[Bytes], Numbers]]] = {
    2: ("Q4_0", 32, 18, q4_0),
    3: ("Q4_1", 32, 20, q4_1),
    6: ("Q5_0", 32, 22, q5_0),
    7: ("Q5_1", 32, 24, q5_1),
    8: ("Q8_0", 32, 34, q8_0),
    10: ("Q2_K", 256, 84, q2_k),
    11: ("Q3_K", 256, 110, q3_k),
    12: ("Q4_K", 256, 144, q4_k),
    13: ("Q5_K", 256, 176, q5_k),
    14: ("Q6_K", 256, 210, q6_k),
}


def to_q8_0(rows: Numbers) -> Bytes:
    """Return the rows of a matrix in blocks of 32 numbers: 127 is the largest number of a block."""
    blocks = rows.reshape(-1, 32).astype(np.float32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    scaled = blocks * inverse
    q = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8)  # half away from zero
    return np.concatenate([scale.astype(np.float16).view(np.uint8), q.view(np.uint8)], axis=1)
