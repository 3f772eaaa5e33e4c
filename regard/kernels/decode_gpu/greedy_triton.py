"""Greedy search on the GPU, as a kernel: the host takes no part in choosing a token.

E8. The tests run the kernel in Triton's interpreter and compare it with decoding/searches/greedy.py.

    R rows   V vocabulary   T longest text
"""

from __future__ import annotations

from typing import NamedTuple

import triton
from torch import Tensor
from triton import language as tl

from regard.kernels.decode_gpu.dependent_launch_triton import launch_options, wait_for_inputs
from regard.kernels.decode_gpu.sort_keys_triton import LOWEST, index_of, score_of, sort_keys
from regard.text.tokenizers.special_tokens import END

MAX_BLOCK_SCORES = 16384  # that a program reads at once


class GreedyBuffers(NamedTuple):
    """What greedy search keeps for each row."""

    tokens: Tensor  # (R,) read in the next step
    lengths: Tensor  # (R,) tokens read so far, the prefix included
    written: Tensor  # (R,) tokens written so far
    limits: Tensor  # (R,) the most tokens to write
    done: Tensor  # (R,)
    texts: Tensor  # (T, R)
    logps: Tensor  # (T, R)


@triton.jit
def _choose_greedy(
    scores,  # (R, V)
    barred,  # (V,) 0 or -inf
    tokens,
    lengths,
    written,
    limits,
    done,
    texts,
    logps,
    rows,
    vocabulary,
    END: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Find a row's best token and its log-probability, and mark the row as done after its last token."""
    wait_for_inputs(EARLY)
    row = tl.program_id(0)
    row_scores = scores + row.to(tl.int64) * vocabulary
    top = -float("inf")
    sum_exp = 0.0
    best = tl.full((), LOWEST, tl.int64)
    for start in range(0, vocabulary, BLOCK):
        index = start + tl.arange(0, BLOCK)
        x = tl.load(row_scores + index, mask=index < vocabulary, other=-float("inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, 0))
        sum_exp = sum_exp * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), 0)
        top = new_top
        x += tl.load(barred + index, mask=index < vocabulary, other=-float("inf"))
        best = tl.maximum(best, tl.max(sort_keys(x, index), 0))
    token = tl.minimum(index_of(best), vocabulary - 1)  # NaN scores may give any index
    logp = score_of(best) - top - tl.log(sum_exp)
    if tl.load(done + row) == 0:
        count = tl.load(written + row)
        tl.store(texts + count * rows + row, token)
        tl.store(logps + count * rows + row, logp)
        tl.store(written + row, count + 1)
        tl.store(tokens + row, token)
        tl.store(lengths + row, tl.load(lengths + row) + 1)
        if (token == END) | (count + 1 == tl.load(limits + row)):
            tl.store(done + row, 1)


def choose_greedy(scores: Tensor, barred: Tensor, buffers: GreedyBuffers) -> None:
    """Choose the next token of each row from the scores (R, V) plus `barred` (V,), and record it in the buffers."""
    rows, vocabulary = scores.shape
    _choose_greedy[(rows,)](
        scores,
        barred,
        *buffers,
        rows,
        vocabulary,
        END=END,
        BLOCK=min(MAX_BLOCK_SCORES, triton.next_power_of_2(vocabulary)),
        num_warps=16 if vocabulary > 4096 else 8,
        **launch_options(scores),
    )
