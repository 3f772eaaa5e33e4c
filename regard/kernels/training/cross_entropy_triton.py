"""Loss and gradient from the scores over the vocabulary in one Triton kernel, for NVIDIA GPUs.

The plain version in cross_entropy.py reads and writes the scores in float32 many times. Here a program reads a row
twice, three times with R-Drop, and overwrites it with the gradient. The last pass runs backwards, because the numbers
that were read last are still in the GPU's cache. The formula is the same; tests compare both in Triton's interpreter.

    n rows   V vocabulary   P, Q the two passes of R-Drop
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton import language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
SCORES_PER_WARP = 256  # processed together


def fused_loss_and_gradient(
    scores: Tensor, labels: Tensor, keep: Tensor | None, smoothing: float, pull: float, *, wanted: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compute the same as cross_entropy.loss_and_gradient; the gradient overwrites the scores."""
    n, vocabulary = scores.shape
    loss, nll = (torch.empty(n, dtype=torch.float32, device=scores.device) for _ in range(2))
    block, warps = score_block(scores, two=pull > 0)
    _loss[(n // 2 if pull else n,)](
        scores,
        labels,
        labels if keep is None else keep,
        loss,
        nll,
        n // 2,
        vocabulary,
        smoothing,
        pull,
        MASKED=keep is not None,
        SMOOTH=smoothing > 0,
        TWO=pull > 0,
        GRADIENT=wanted,
        BLOCK=block,
        num_warps=warps,
    )
    return loss.sum(), nll.sum(), scores if wanted else None


def score_block(scores: Tensor, *, two: bool = False) -> tuple[int, int]:
    """Return how many scores of a row a program processes together, and its warps; `two` if it has a row of Q too."""
    warps = 8 if two else _warps(scores)
    return min(SCORES_PER_WARP * warps, triton.next_power_of_2(scores.shape[1])), warps


def _warps(scores: Tensor) -> int:
    """Of a program, so many that the rows that are gone over at a time fit into the GPU's cache, and are read once.

    Into half of it: 8 warps for a vocabulary of 10,000 in bf16 on an H200, 16 for 16,000 and 32 for 50,000.
    """
    if not scores.is_cuda:
        return 8
    gpu = torch.cuda.get_device_properties(scores.device)
    threads = gpu.multi_processor_count * gpu.max_threads_per_multi_processor
    row = scores.shape[1] * scores.element_size()
    return min(32, max(8, triton.next_power_of_2(triton.cdiv(row * threads // 32, gpu.L2_cache_size // 2))))


@triton.jit
def row_sums(row, vocabulary, BLOCK: tl.constexpr, SMOOTH: tl.constexpr):
    """log sum exp of a row, and the sum of its scores if they are wanted.

    Eight neighbours, which one thread has read, share the highest score so far and sum exp(score - highest): one
    exponential for a score, and one more for all eight. It is taken to base 2, as the GPU computes it, where the
    difference is one instruction with the factor.
    """
    TOGETHER: tl.constexpr = min(8, BLOCK)
    lane = tl.arange(0, BLOCK // TOGETHER)[:, None] * TOGETHER + tl.arange(0, TOGETHER)[None, :]
    top = tl.full((BLOCK // TOGETHER,), -1e30, tl.float32)  # below every score, and finite, because -inf - -inf is NaN
    mass = tl.zeros((BLOCK // TOGETHER,), tl.float32)
    plain = tl.zeros((BLOCK // TOGETHER,), tl.float32)
    for start in range(0, vocabulary, BLOCK):
        inside = start + lane < vocabulary
        x = tl.load(row + start + lane, mask=inside, other=float("-inf")).to(tl.float32)
        above = tl.maximum(top, tl.max(x, 1))
        mass = mass * tl.exp2((top - above) * LOG2_E) + tl.sum(tl.exp2(x * LOG2_E - (above * LOG2_E)[:, None]), 1)
        top = above
        if SMOOTH:
            plain += tl.sum(tl.where(inside, x, 0.0), 1)
    highest = tl.max(top, 0)
    return highest + tl.log2(tl.sum(mass * tl.exp2((top - highest) * LOG2_E), 0)) / LOG2_E, tl.sum(plain, 0)


@triton.jit
def _divergences(p_row, q_row, p_mass, q_mass, vocabulary, BLOCK: tl.constexpr):
    """KL(P || Q) and KL(Q || P)."""
    p_apart = tl.zeros((BLOCK,), tl.float32)
    q_apart = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocabulary, BLOCK):
        at = start + tl.arange(0, BLOCK)
        log_p = tl.load(p_row + at, mask=at < vocabulary, other=0.0).to(tl.float32) - p_mass
        log_q = tl.load(q_row + at, mask=at < vocabulary, other=0.0).to(tl.float32) - q_mass
        p_apart += tl.where(at < vocabulary, tl.exp2(log_p * LOG2_E) * (log_p - log_q), 0.0)
        q_apart += tl.where(at < vocabulary, tl.exp2(log_q * LOG2_E) * (log_q - log_p), 0.0)
    return tl.sum(p_apart, 0), tl.sum(q_apart, 0)


@triton.jit
def _loss(
    scores,
    labels,
    keep,
    loss,
    nll,
    half,  # rows of one pass
    vocabulary,
    smoothing,
    pull,
    MASKED: tl.constexpr,
    SMOOTH: tl.constexpr,
    TWO: tl.constexpr,
    GRADIENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Process one row, or a row of P with its row of Q."""
    i = tl.program_id(0).to(tl.int64)  # scores may be more than 2^31
    label = tl.load(labels + i)
    weight = 1.0
    if MASKED:
        weight = tl.load(keep + i).to(tl.float32)
    p_row = scores + i * vocabulary
    p_mass, p_sum = row_sums(p_row, vocabulary, BLOCK, SMOOTH)
    p_nll = p_mass - tl.load(p_row + label).to(tl.float32)
    p_loss = (1 - smoothing) * p_nll - smoothing * (p_sum / vocabulary - p_mass)
    share = smoothing / vocabulary
    if TWO:
        j = i + half
        q_row = scores + j * vocabulary
        q_mass, q_sum = row_sums(q_row, vocabulary, BLOCK, SMOOTH)
        q_nll = q_mass - tl.load(q_row + label).to(tl.float32)
        q_loss = (1 - smoothing) * q_nll - smoothing * (q_sum / vocabulary - q_mass)
        p_apart, q_apart = _divergences(p_row, q_row, p_mass, q_mass, vocabulary, BLOCK)
        tl.store(loss + i, weight * (p_loss + pull * p_apart))
        tl.store(loss + j, weight * (q_loss + pull * q_apart))
        tl.store(nll + j, weight * q_nll)
    else:
        tl.store(loss + i, weight * p_loss)
    tl.store(nll + i, weight * p_nll)
    if GRADIENT:
        for back in range(tl.cdiv(vocabulary, BLOCK)):
            at = (tl.cdiv(vocabulary, BLOCK) - 1 - back) * BLOCK + tl.arange(0, BLOCK)
            inside = at < vocabulary
            p = tl.load(p_row + at, mask=inside, other=0.0).to(tl.float32)
            if TWO:
                q = tl.load(q_row + at, mask=inside, other=0.0).to(tl.float32)
                tl.store(q_row + at, weight * (_pulled(q, q_mass, p, p_mass, q_apart, pull) - share), mask=inside)
                tl.store(p_row + at, weight * (_pulled(p, p_mass, q, q_mass, p_apart, pull) - share), mask=inside)
            else:
                p = tl.exp2(p * LOG2_E - p_mass * LOG2_E)
                tl.store(p_row + at, weight * (p - share) if SMOOTH or MASKED else p, mask=inside)
        # The gradient of the true token is corrected here, so that not every token is compared with the label.
        tl.debug_barrier()
        true = 1 - smoothing + share
        if TWO:
            tl.store(q_row + label, weight * (_pulled(-q_nll, 0.0, -p_nll, 0.0, q_apart, pull) - true))
            tl.store(p_row + label, weight * (_pulled(-p_nll, 0.0, -q_nll, 0.0, p_apart, pull) - true))
        else:
            tl.store(p_row + label, weight * (tl.exp2(-p_nll * LOG2_E) - true))


@triton.jit
def _pulled(p, p_mass, q, q_mass, apart, pull):
    """P + pull (P (log P - log Q - KL(P || Q)) + P - Q), from scores: the gradient but for the true token's part."""
    log_p, log_q = p - p_mass, q - q_mass
    p = tl.exp2(log_p * LOG2_E)
    return p * (1 + pull + pull * (log_p - log_q - apart)) - pull * tl.exp2(log_q * LOG2_E)
