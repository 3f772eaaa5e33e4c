"""Length buckets: batches with few different shapes, because each shape is captured in a CUDA graph or compiled once.

Lengths are rounded up to the length of a bucket, and batches are padded to the number of rows of that bucket.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.text.batches.batch import Batch

MAX_BUCKETS = 16
STEP_TOKENS = 2  # between two candidate lengths of a bucket; a multiple of it if sentences are long
MAX_CANDIDATES = 64  # lengths from which those of the buckets are chosen


def choose_buckets(lengths: NDArray[np.int64], *, limit: int) -> list[int]:
    """Choose the few bucket lengths, at most `limit`, that need the least padding; the last one fits the longest."""
    longest = int(lengths.max())
    step = STEP_TOKENS * -(-longest // (STEP_TOKENS * MAX_CANDIDATES))
    ends = np.arange(0, longest + step, step)  # 0, and the candidate lengths
    counts = np.searchsorted(np.sort(lengths), ends, side="right")  # samples that are not longer
    # cost[a, b]: the cells of samples longer than ends[a] in a bucket of length ends[b]
    cost = np.where(ends[:, None] < ends, (counts - counts[:, None]) * ends, np.inf)
    best = np.where(ends == 0, 0.0, np.inf)  # the fewest cells of samples up to each length, with the buckets so far
    previous: list[NDArray[np.int64]] = []  # the next smaller bucket, for each
    for _ in range(MAX_BUCKETS):
        candidates = best[:, None] + cost
        candidates[:, 0] = np.where(ends == 0, 0.0, np.inf)  # fewer buckets are allowed
        previous.append(candidates.argmin(axis=0))
        best = candidates.min(axis=0)
    buckets, current = [], len(ends) - 1
    for choice in reversed(previous):
        if current:
            buckets.append(min(int(ends[current]), limit))
        current = int(choice[current])
    return buckets[::-1]


def pad_rows(batch: Batch, rows: int) -> Batch:
    """Append rows of padding until there are `rows`. Each has one token, so that no softmax is over nothing."""
    special = batch.special
    return replace(
        batch,
        source=None if batch.source is None else _padded(batch.source, rows, special.end, special.pad),
        inputs=_padded(batch.inputs, rows, special.start, special.pad),
        labels=_padded(batch.labels, rows, batch.ignored, batch.ignored),
        support=None if batch.support is None else _padded(batch.support, rows, 0, 0),
        fixed=True,
    )


def _padded(tensor: Tensor, rows: int, token: int, pad: int) -> Tensor:
    padded = F.pad(tensor, (0, 0, 0, rows - len(tensor)), value=pad)
    padded[len(tensor) :, 0] = token
    return padded
