"""The kernels that choose what comes next on a GPU, in Triton: greedy search and beam search without the host.

E8. A row's place, what it has written and whether it is done are all on the GPU. Tests run the kernels by Triton's
interpreter and hold them against greedy.py and beam.py.

    R rows   V vocabulary   B inputs   w rows of an input, its beam   K = 2w candidates   T longest text   C capacity
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor
from triton import language as tl

from regard.kernels.decode_gpu.linear_triton import early, wait
from regard.text.tokenizers.special_tokens import END

WHOLE = 16384  # scores that one program of greedy search reads at once
CHUNK = 4096  # scores of which one program of a beam finds the best
PLACE = tl.constexpr(CHUNK - 1)  # the bits of a place in a chunk
NOTHING = tl.constexpr(-(2**63))  # below all keys
NOTHING_SHORT = tl.constexpr(-(2**31))


class GreedySlots(NamedTuple):
    """What greedy search knows of each row."""

    tokens: Tensor  # (R,) what is read next
    lengths: Tensor  # (R,) tokens read
    written: Tensor  # (R,)
    limits: Tensor  # (R,)
    done: Tensor  # (R,)
    texts: Tensor  # (T, R)
    logps: Tensor  # (T, R)


class BeamSlots(NamedTuple):
    """What a beam knows. A hypothesis is a chain of slots: at each step the slot it came from, and its token."""

    tokens: Tensor  # (B·w,) what is read next
    lengths: Tensor  # (B·w,) tokens read
    table: Tensor  # (B·w, C) the row that holds the keys of each place
    written: Tensor  # (B,)
    limits: Tensor  # (B,)
    done: Tensor  # (B,)
    scores: Tensor  # (B, w) of the live ones, best first
    rankings: Tensor  # (B, n) of the best finished ones, in no order
    parents: Tensor  # (T, B, w) of the live ones
    texts: Tensor  # (T, B, w) their tokens
    logps: Tensor  # (T, B, w)
    endings: Tensor  # (T, B, w) the slots of those that ended, in the order of their scores
    totals: Tensor  # (T, B, w) and their scores; -inf: none
    last: Tensor  # (T, B, w) and the log-probability of their END


@triton.jit
def _keys(x, place):
    """Whole numbers that are in the order of x, of equals the earlier place higher: one maximum finds both."""
    bits = x.to(tl.int32, bitcast=True)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (order.to(tl.int64) << 32) | (0x7FFFFFFF - place).to(tl.int64)


@triton.jit
def _value_of(key):
    order = (key >> 32).to(tl.int32)
    return (order ^ ((order >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _place_of(key):
    return 0x7FFFFFFF - (key & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def _short_keys(x, place):
    """The same for scores of 16 bits: as fp32 they end in 13 zeros or more, and there the place in a chunk has room."""
    bits = x.to(tl.int32, bitcast=True)
    return ((bits ^ ((bits >> 31) & 0x7FFFFFFF)) & ~PLACE) | (PLACE - place)


@triton.jit
def _value_of_short(key):
    return ((key ^ ((key >> 31) & 0x7FFFFFFF)) & ~PLACE).to(tl.float32, bitcast=True)


@triton.jit
def _take_best(
    scores,  # (R, V)
    barred,  # (V,) 0 or -inf
    tokens,  # (R,) the next
    lengths,  # (R,)
    written,  # (R,) tokens written so far
    limits,  # (R,)
    done,  # (R,)
    texts,  # (T, R)
    logps,  # (T, R)
    rows,
    vocabulary,
    END: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Greedy search: a row's best token, its log-probability, and whether that was the last."""
    wait(EARLY)
    r = tl.program_id(0)
    row = scores + r.to(tl.int64) * vocabulary
    top = -float("inf")
    mass = 0.0
    best = tl.full((), NOTHING, tl.int64)
    for start in range(0, vocabulary, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(row + at, mask=at < vocabulary, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, 0))
        mass = mass * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), 0)
        top = higher
        x += tl.load(barred + at, mask=at < vocabulary, other=-float("inf"))
        best = tl.maximum(best, tl.max(_keys(x, at), 0))
    token = tl.minimum(_place_of(best), vocabulary - 1)  # the place of what is no number may be anywhere
    logp = _value_of(best) - top - tl.log(mass)
    if tl.load(done + r) == 0:
        count = tl.load(written + r)
        tl.store(texts + count * rows + r, token)
        tl.store(logps + count * rows + r, logp)
        tl.store(written + r, count + 1)
        tl.store(tokens + r, token)
        tl.store(lengths + r, tl.load(lengths + r) + 1)
        if (token == END) | (count + 1 == tl.load(limits + r)):
            tl.store(done + r, 1)


def take_best(scores: Tensor, barred: Tensor, slots: GreedySlots) -> None:
    rows, vocabulary = scores.shape
    _take_best[(rows,)](
        scores,
        barred,
        slots.tokens,
        slots.lengths,
        slots.written,
        slots.limits,
        slots.done,
        slots.texts,
        slots.logps,
        rows,
        vocabulary,
        END=END,
        BLOCK=min(WHOLE, triton.next_power_of_2(vocabulary)),
        num_warps=16 if vocabulary > CHUNK else 8,
        **early(scores),
    )


@triton.jit
def _best_of_chunk(
    scores,
    barred,
    values,
    tokens,
    tops,
    masses,
    vocabulary,
    K: tl.constexpr,
    CHUNK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The K best of a part of a row, best first, and the part's highest score and sum of exponentials."""
    wait(EARLY)
    r, c = tl.program_id(0), tl.program_id(1)
    part = r * tl.num_programs(1) + c
    at = c * CHUNK + tl.arange(0, CHUNK)
    inside = at < vocabulary
    x = tl.load(scores + r.to(tl.int64) * vocabulary + at, mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.max(x, 0)
    tl.store(tops + part, top)
    tl.store(masses + part, tl.sum(tl.exp(x - top), 0))
    x += tl.load(barred + at, mask=inside, other=-float("inf"))
    # K times a maximum of the whole part: numbers of 32 bits take a third of the time.
    short: tl.constexpr = scores.dtype.element_ty.primitive_bitwidth == 16
    if short:
        keys = _short_keys(x, at - c * CHUNK)
    else:
        keys = _keys(x, at)
    for i in range(K):
        best = tl.max(keys, 0)
        if short:
            value, place = _value_of_short(best), c * CHUNK + PLACE - (best & PLACE)
            keys = tl.where(keys == best, NOTHING_SHORT, keys)
        else:
            value, place = _value_of(best), _place_of(best)
            keys = tl.where(keys == best, NOTHING, keys)
        tl.store(values + part * K + i, value)
        tl.store(tokens + part * K + i, tl.minimum(place, vocabulary - 1))


@triton.jit
def _go_on(
    values,
    candidates,
    tops,
    masses,
    tokens,
    lengths,
    table,
    written,
    limits,
    done,
    scores,
    rankings,
    parents,
    texts,
    logps,
    endings,
    totals,
    last,
    inputs,
    capacity,
    penalty,
    chunks,
    w: tl.constexpr,
    n: tl.constexpr,
    K: tl.constexpr,
    END: tl.constexpr,
    W: tl.constexpr,  # powers of two from w,
    N: tl.constexpr,  # n,
    PARTS: tl.constexpr,  # chunks,
    MANY: tl.constexpr,  # chunks · K
    PLACES: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Beam.choose for one input: of all candidates the best 2w, of which those that end are finished."""
    wait(EARLY)
    b = tl.program_id(0)
    if tl.load(done + b) != 0:
        return
    slot = tl.arange(0, W)
    live = slot < w
    part = tl.arange(0, PARTS)
    here = live[:, None] & (part < chunks)[None, :]
    at = (b * w + slot)[:, None] * chunks + part[None, :]
    top = tl.load(tops + at, mask=here, other=-1e30)
    highest = tl.max(top, 1)
    mass = tl.sum(tl.load(masses + at, mask=here, other=0.0) * tl.exp(top - highest[:, None]), 1)
    norm = highest + tl.log(tl.where(live, mass, 1.0))  # (W,)
    score = tl.load(scores + b * w + slot, mask=live, other=-float("inf"))
    many = tl.arange(0, MANY)
    there = live[:, None] & (many < chunks * K)[None, :]
    at = (b * w + slot)[:, None] * (chunks * K) + many[None, :]
    value = tl.load(values + at, mask=there, other=-float("inf"))
    total = tl.reshape(score[:, None] + (value - norm[:, None]), (W * MANY,))
    keys = _keys(total, tl.arange(0, W * MANY))

    count = tl.load(written + b)
    limit = tl.load(limits + b)
    length = (count + 1).to(tl.float32)
    after = (count * inputs + b) * w
    rank_at = tl.arange(0, N)
    rank = tl.load(rankings + b * n + rank_at, mask=rank_at < n, other=float("inf"))
    new_scores = tl.full((W,), -float("inf"), tl.float32)
    new_parents = tl.zeros((W,), tl.int32)
    new_tokens = tl.zeros((W,), tl.int32)
    new_logps = tl.zeros((W,), tl.float32)
    found = 0
    for i in range(K):
        best = tl.max(keys, 0)
        keys = tl.where(keys == best, NOTHING, keys)
        most, place = _value_of(best), _place_of(best)
        parent = place // MANY
        token = tl.load(candidates + (b * w + parent) * (chunks * K) + place % MANY).to(tl.int32)
        logp = most - tl.sum(tl.where(slot == parent, score, 0.0), 0)
        ends = (token == END) & (most > -float("inf"))
        if i < w:
            tl.store(totals + after + i, tl.where(ends, most, -float("inf")))
            tl.store(endings + after + i, parent)
            tl.store(last + after + i, logp)
            ranking = tl.where(ends, most / tl.exp(penalty * tl.log(length)), -float("inf"))
            worst = _place_of(tl.max(_keys(-rank, rank_at), 0))
            rank = tl.where((rank_at == worst) & (ranking > rank), ranking, rank)
        chosen = (slot == found) & live & (ends == 0)  # no slot once all w are taken
        new_scores = tl.where(chosen, most, new_scores)
        new_parents = tl.where(chosen, parent, new_parents)
        new_tokens = tl.where(chosen, token, new_tokens)
        new_logps = tl.where(chosen, logp, new_logps)
        found += tl.where(ends, 0, 1)
    tl.debug_barrier()  # what was read is written now: by no warp before all have read it
    tl.store(scores + b * w + slot, new_scores, mask=live)
    tl.store(parents + after + slot, new_parents, mask=live)
    tl.store(texts + after + slot, new_tokens, mask=live)
    tl.store(logps + after + slot, new_logps, mask=live)
    tl.store(rankings + b * n + rank_at, rank, mask=rank_at < n)
    tl.store(written + b, count + 1)
    hope = tl.max(new_scores, 0) / tl.exp(penalty * tl.log(limit.to(tl.float32)))
    if (count + 1 == limit) | (hope <= tl.min(rank, 0)):
        tl.store(done + b, 1)

    # Keys stay where they are; what a row has written before is where its parent has it.
    place = tl.load(lengths + b * w)
    for start in range(0, place + 1, PLACES):
        j = start + tl.arange(0, PLACES)
        known = live[:, None] & (j < place)[None, :]
        rows = tl.load(table + (b * w + new_parents)[:, None] * capacity + j[None, :], mask=known, other=0)
        rows = tl.where((j == place)[None, :], (b * w + new_parents)[:, None], rows)
        tl.debug_barrier()  # all of them are read before any is written
        tl.store(
            table + (b * w + slot)[:, None] * capacity + j[None, :], rows, mask=live[:, None] & (j <= place)[None, :]
        )
        tl.debug_barrier()
    tl.store(tokens + b * w + slot, new_tokens, mask=live)
    tl.store(lengths + b * w + slot, place + 1 + tl.zeros((W,), tl.int32), mask=live)


def go_on(scores: Tensor, barred: Tensor, slots: BeamSlots, penalty: float) -> None:
    """Choose and write down what comes next, for rows side by side that are the beams of inputs."""
    rows, vocabulary = scores.shape
    inputs, w = slots.scores.shape
    n, K = slots.rankings.shape[1], 2 * w
    size = min(CHUNK, triton.next_power_of_2(vocabulary))
    chunks = triton.cdiv(vocabulary, size)
    values, tops, masses = (scores.new_empty(rows, chunks, *more, dtype=torch.float32) for more in ((K,), (), ()))
    candidates = scores.new_empty(rows, chunks, K, dtype=torch.int32)
    _best_of_chunk[(rows, chunks)](
        scores, barred, values, candidates, tops, masses, vocabulary, K=K, CHUNK=size, num_warps=4, **early(scores)
    )
    many = triton.next_power_of_2(chunks * K)
    _go_on[(inputs,)](
        values,
        candidates,
        tops,
        masses,
        *slots,
        inputs,
        slots.table.shape[1],
        penalty,
        chunks,
        w=w,
        n=n,
        K=K,
        END=END,
        W=triton.next_power_of_2(w),
        N=triton.next_power_of_2(n),
        PARTS=triton.next_power_of_2(chunks),
        MANY=many,
        PLACES=64,
        num_warps=4,
        **early(scores),
    )
