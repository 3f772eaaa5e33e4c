"""Beam search on the GPU, as two kernels: the host takes no part in choosing hypotheses.

E8. The first kernel finds the best tokens of each chunk of a row's scores. The second one does for an input what
BeamRun.choose in decoding/searches/beam.py does. When hypotheses change rows, their keys and values stay where they
are; the kernel reorders `origins`, the table that says in which row of the cache each token lies. The tests run the
kernels in Triton's interpreter and compare them with beam.py.

    R = B·w rows   V vocabulary   B inputs   w beam width   n hypotheses wanted   K = 2w candidates   T longest text
    C capacity
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor
from triton import language as tl

from regard.kernels.decode_gpu.dependent_launch_triton import launch_options, wait_for_inputs
from regard.kernels.decode_gpu.sort_keys_triton import (
    CHUNK_SCORES,
    INDEX_BITS,
    LOWEST,
    LOWEST_SHORT,
    index_of,
    score_of,
    score_of_short,
    short_sort_keys,
    sort_keys,
)
from regard.text.tokenizers.special_tokens import END


class BeamBuffers(NamedTuple):
    """What beam search keeps. A hypothesis is a chain: at each step the slot of its parent, and its token."""

    tokens: Tensor  # (R,) read in the next step
    lengths: Tensor  # (R,) tokens read so far, the prefix included
    origins: Tensor  # (R, C) the row of the cache that holds the keys and values of each token
    written: Tensor  # (B,) tokens written so far
    limits: Tensor  # (B,) the most tokens to write
    done: Tensor  # (B,)
    finished: Tensor  # (B,) how many hypotheses are finished
    scores: Tensor  # (B, w) of the live hypotheses, best first
    rankings: Tensor  # (B, n) of the best finished hypotheses, unordered
    parents: Tensor  # (T, B, w) of the live hypotheses, at each step
    texts: Tensor  # (T, B, w) their tokens
    logps: Tensor  # (T, B, w) and the tokens' log-probabilities
    end_parents: Tensor  # (T, B, w) of the hypotheses that finished at each step, in the order of their scores
    end_scores: Tensor  # (T, B, w) their scores; -inf where none finished
    end_logps: Tensor  # (T, B, w) the log-probability of their END


@triton.jit
def _rank_chunk(
    scores,  # (R, V)
    barred,  # (V,) 0 or -inf
    values,  # (R, chunks, K)
    tokens,  # (R, chunks, K)
    tops,  # (R, chunks)
    sums,  # (R, chunks)
    vocabulary,
    K: tl.constexpr,
    CHUNK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Find the K best tokens of a chunk of a row, best first, and the chunk's highest score and sum of exponentials."""
    wait_for_inputs(EARLY)
    row, c = tl.program_id(0), tl.program_id(1)
    chunk = row * tl.num_programs(1) + c
    index = c * CHUNK + tl.arange(0, CHUNK)
    valid = index < vocabulary
    x = tl.load(scores + row.to(tl.int64) * vocabulary + index, mask=valid, other=-float("inf")).to(tl.float32)
    top = tl.max(x, 0)
    tl.store(tops + chunk, top)
    tl.store(sums + chunk, tl.sum(tl.exp(x - top), 0))
    x += tl.load(barred + index, mask=valid, other=-float("inf"))
    # K maxima over the whole chunk: with 32-bit keys they take a third of the time.
    short: tl.constexpr = scores.dtype.element_ty.primitive_bitwidth == 16
    if short:
        keys = short_sort_keys(x, index - c * CHUNK)
    else:
        keys = sort_keys(x, index)
    for i in range(K):
        best = tl.max(keys, 0)
        if short:
            value, token = score_of_short(best), c * CHUNK + INDEX_BITS - (best & INDEX_BITS)
            keys = tl.where(keys == best, LOWEST_SHORT, keys)
        else:
            value, token = score_of(best), index_of(best)
            keys = tl.where(keys == best, LOWEST, keys)
        tl.store(values + chunk * K + i, value)
        tl.store(tokens + chunk * K + i, tl.minimum(token, vocabulary - 1))


@triton.jit
def _choose_beam(
    values,  # (R, chunks, K), by _rank_chunk, and so are the next three
    candidates,
    tops,
    sums,
    tokens,  # the BeamBuffers
    lengths,
    origins,
    written,
    limits,
    done,
    finished,
    scores,
    rankings,
    parents,
    texts,
    logps,
    end_parents,
    end_scores,
    end_logps,
    inputs,
    capacity,
    length_penalty,
    max_finished,
    chunks,
    w: tl.constexpr,
    n: tl.constexpr,
    K: tl.constexpr,
    END: tl.constexpr,
    W: tl.constexpr,  # w, n, chunks and chunks · K rounded up to powers of two
    N: tl.constexpr,
    CHUNKS: tl.constexpr,
    CANDIDATES: tl.constexpr,
    POSITIONS: tl.constexpr,  # of origins that are copied at once
    EARLY: tl.constexpr,
):
    """Do for one input what BeamRun.choose does: take the best 2w candidates, finish those that end, keep w others."""
    wait_for_inputs(EARLY)
    b = tl.program_id(0)
    if tl.load(done + b) != 0:
        return
    slot = tl.arange(0, W)
    live = slot < w
    chunk = tl.arange(0, CHUNKS)
    valid_chunks = live[:, None] & (chunk < chunks)[None, :]
    chunk_index = (b * w + slot)[:, None] * chunks + chunk[None, :]
    top = tl.load(tops + chunk_index, mask=valid_chunks, other=-1e30)
    row_top = tl.max(top, 1)
    sum_exp = tl.sum(tl.load(sums + chunk_index, mask=valid_chunks, other=0.0) * tl.exp(top - row_top[:, None]), 1)
    log_norm = row_top + tl.log(tl.where(live, sum_exp, 1.0))  # (W,)
    score = tl.load(scores + b * w + slot, mask=live, other=-float("inf"))
    candidate = tl.arange(0, CANDIDATES)
    valid_candidates = live[:, None] & (candidate < chunks * K)[None, :]
    candidate_index = (b * w + slot)[:, None] * (chunks * K) + candidate[None, :]
    value = tl.load(values + candidate_index, mask=valid_candidates, other=-float("inf"))
    total = tl.reshape(score[:, None] + (value - log_norm[:, None]), (W * CANDIDATES,))
    keys = sort_keys(total, tl.arange(0, W * CANDIDATES))

    count = tl.load(written + b)
    limit = tl.load(limits + b)
    length = (count + 1).to(tl.float32)
    step_start = (count * inputs + b) * w
    rank_slot = tl.arange(0, N)
    rank = tl.load(rankings + b * n + rank_slot, mask=rank_slot < n, other=float("inf"))
    new_scores = tl.full((W,), -float("inf"), tl.float32)
    new_parents = tl.zeros((W,), tl.int32)
    new_tokens = tl.zeros((W,), tl.int32)
    new_logps = tl.zeros((W,), tl.float32)
    live_count = 0
    finished_count = tl.load(finished + b)
    for i in range(K):
        best = tl.max(keys, 0)
        keys = tl.where(keys == best, LOWEST, keys)
        best_total, index = score_of(best), index_of(best)
        parent = index // CANDIDATES
        token = tl.load(candidates + (b * w + parent) * (chunks * K) + index % CANDIDATES).to(tl.int32)
        logp = best_total - tl.sum(tl.where(slot == parent, score, 0.0), 0)
        ends = (token == END) & (best_total > -float("inf"))
        if i < w:
            tl.store(end_scores + step_start + i, tl.where(ends, best_total, -float("inf")))
            tl.store(end_parents + step_start + i, parent)
            tl.store(end_logps + step_start + i, logp)
            finished_count += tl.where(ends, 1, 0)
            ranking = tl.where(ends, best_total / tl.exp(length_penalty * tl.log(length)), -float("inf"))
            worst = index_of(tl.max(sort_keys(-rank, rank_slot), 0))
            rank = tl.where((rank_slot == worst) & (ranking > rank), ranking, rank)
        chosen = (slot == live_count) & live & (ends == 0)  # no slot once all w are taken
        new_scores = tl.where(chosen, best_total, new_scores)
        new_parents = tl.where(chosen, parent, new_parents)
        new_tokens = tl.where(chosen, token, new_tokens)
        new_logps = tl.where(chosen, logp, new_logps)
        live_count += tl.where(ends, 0, 1)
    tl.debug_barrier()  # no warp may overwrite what another warp has yet to read
    tl.store(scores + b * w + slot, new_scores, mask=live)
    tl.store(parents + step_start + slot, new_parents, mask=live)
    tl.store(texts + step_start + slot, new_tokens, mask=live)
    tl.store(logps + step_start + slot, new_logps, mask=live)
    tl.store(rankings + b * n + rank_slot, rank, mask=rank_slot < n)
    tl.store(written + b, count + 1)
    best_to_come = tl.max(new_scores, 0) / tl.exp(length_penalty * tl.log(limit.to(tl.float32)))
    tl.store(finished + b, finished_count)
    if (count + 1 == limit) | (best_to_come <= tl.min(rank, 0)) | (finished_count >= max_finished):
        tl.store(done + b, 1)

    # Keys and values stay in place. A hypothesis finds those of its past where its parent finds them.
    position = tl.load(lengths + b * w)
    for start in range(0, position + 1, POSITIONS):
        j = start + tl.arange(0, POSITIONS)
        past = live[:, None] & (j < position)[None, :]
        rows = tl.load(origins + (b * w + new_parents)[:, None] * capacity + j[None, :], mask=past, other=0)
        rows = tl.where((j == position)[None, :], (b * w + new_parents)[:, None], rows)
        tl.debug_barrier()  # all warps read before any warp writes
        tl.store(
            origins + (b * w + slot)[:, None] * capacity + j[None, :],
            rows,
            mask=live[:, None] & (j <= position)[None, :],
        )
        tl.debug_barrier()
    tl.store(tokens + b * w + slot, new_tokens, mask=live)
    tl.store(lengths + b * w + slot, position + 1 + tl.zeros((W,), tl.int32), mask=live)


def choose_beam(scores: Tensor, barred: Tensor, buffers: BeamBuffers, length_penalty: float, max_finished: int) -> None:
    """Choose the next hypotheses of each input from the scores (R, V) plus `barred` (V,), and record them.

    An input is done when `max_finished` hypotheses are finished, or earlier.
    """
    rows, vocabulary = scores.shape
    inputs, w = buffers.scores.shape
    n, K = buffers.rankings.shape[1], 2 * w
    size = min(CHUNK_SCORES, triton.next_power_of_2(vocabulary))
    chunks = triton.cdiv(vocabulary, size)
    values = scores.new_empty(rows, chunks, K, dtype=torch.float32)
    tops, sums = (scores.new_empty(rows, chunks, dtype=torch.float32) for _ in range(2))
    candidates = scores.new_empty(rows, chunks, K, dtype=torch.int32)
    options = launch_options(scores)
    _rank_chunk[(rows, chunks)](
        scores, barred, values, candidates, tops, sums, vocabulary, K=K, CHUNK=size, num_warps=4, **options
    )
    _choose_beam[(inputs,)](
        values,
        candidates,
        tops,
        sums,
        *buffers,
        inputs,
        buffers.origins.shape[1],
        length_penalty,
        max_finished,
        chunks,
        w=w,
        n=n,
        K=K,
        END=END,
        W=triton.next_power_of_2(w),
        N=triton.next_power_of_2(n),
        CHUNKS=triton.next_power_of_2(chunks),
        CANDIDATES=triton.next_power_of_2(chunks * K),
        POSITIONS=64,
        num_warps=4,
        **options,
    )
