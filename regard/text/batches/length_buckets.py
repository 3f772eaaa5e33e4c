"""Few shapes of batches, for steps that a GPU repeats from a recording: one recording a shape.

Lengths are rounded up to the rungs of a short ladder, and rows are filled up to as many as a batch of that length has.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.text.batches.batch import Batch
from regard.text.tokenizers.special_tokens import END, PAD, START

MOST_RUNGS = 16
STEP = 2  # tokens between two lengths that a rung can have, more where sentences are long
CANDIDATES = 64  # among which the rungs are chosen


def ladder(lengths: NDArray[np.int64], *, limit: int) -> list[int]:
    """The few lengths, at most `limit`, to which rounding up costs least padding; the last takes the longest."""
    longest = int(lengths.max())
    step = STEP * -(-longest // (STEP * CANDIDATES))
    ends = np.arange(0, longest + step, step)  # 0, and the lengths that a rung can have
    below = np.searchsorted(np.sort(lengths), ends, side="right")  # how many are not longer
    # cost[a, b]: the cells of those longer than ends[a] in batches of length ends[b]
    cost = np.where(ends[:, None] < ends, (below - below[:, None]) * ends, np.inf)
    best = np.where(ends == 0, 0.0, np.inf)  # the fewest cells of all up to each length, with the rungs so far
    before: list[NDArray[np.int64]] = []  # the rung below, for each
    for _ in range(MOST_RUNGS):
        candidates = best[:, None] + cost
        candidates[:, 0] = np.where(ends == 0, 0.0, np.inf)  # fewer rungs are fine
        before.append(candidates.argmin(axis=0))
        best = candidates.min(axis=0)
    rungs, at = [], len(ends) - 1
    for choice in reversed(before):
        if at:
            rungs.append(min(int(ends[at]), limit))
        at = int(choice[at])
    return rungs[::-1]


def filled(batch: Batch, rows: int) -> Batch:
    """The batch with rows of padding below, `rows` in all. They read one token, so that no softmax is empty."""
    return replace(
        batch,
        source=None if batch.source is None else _filled(batch.source, rows, END),
        inputs=_filled(batch.inputs, rows, START),
        labels=_filled(batch.labels, rows, PAD),
        fixed=True,
    )


def _filled(tensor: Tensor, rows: int, token: int) -> Tensor:
    more = F.pad(tensor, (0, 0, 0, rows - len(tensor)), value=PAD)
    more[len(tensor) :, 0] = token
    return more
