"""The scores over the vocabulary to loss and gradient in one Triton kernel, for NVIDIA GPUs.

The plain way in cross_entropy.py reads and writes the scores in float32 again and again; here a program goes over a row
twice, three times with R-Drop, and writes the gradient over it. It is the same formula, and
tests hold the two against each other with Triton's interpreter.

    n rows   V vocabulary   P, Q the two passes of R-Drop
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton import language as tl

BLOCK = 2048  # scores that a program looks at together; larger ones were slower for vocabularies of 8,000 to 50,000


def fused_loss_and_gradient(
    scores: Tensor, labels: Tensor, keep: Tensor | None, smoothing: float, pull: float, *, wanted: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As cross_entropy.loss_and_gradient; the gradient takes the place of the scores."""
    n, vocabulary = scores.shape
    loss, nll = (torch.empty(n, dtype=torch.float32, device=scores.device) for _ in range(2))
    _kernel[(n // 2 if pull else n,)](
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
        BLOCK=min(BLOCK, triton.next_power_of_2(vocabulary)),
        num_warps=8,
    )
    return loss.sum(), nll.sum(), scores if wanted else None


@triton.jit
def _row_sums(row, vocabulary, BLOCK: tl.constexpr, SMOOTH: tl.constexpr):
    """log sum exp of a row, and the sum of its scores if they are wanted.

    Each lane keeps the highest of its scores so far and sum exp(score - highest). Whichever of the old and the new
    score is higher, one exponential does: exp(-|difference|).
    """
    top = tl.full((BLOCK,), -1e30, tl.float32)  # below every score, and finite: -inf - -inf would be no number
    mass = tl.zeros((BLOCK,), tl.float32)
    plain = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocabulary, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(row + at, mask=at < vocabulary, other=float("-inf")).to(tl.float32)
        gap = x - top
        less = tl.exp(-tl.abs(gap))
        mass = tl.where(gap > 0, mass * less + 1.0, mass + less)
        top = tl.maximum(top, x)
        if SMOOTH:
            plain += tl.where(at < vocabulary, x, 0.0)
    highest = tl.max(top, 0)
    return highest + tl.log(tl.sum(mass * tl.exp(top - highest), 0)), tl.sum(plain, 0)


@triton.jit
def _divergences(p_row, q_row, p_mass, q_mass, vocabulary, BLOCK: tl.constexpr):
    """KL(P || Q) and KL(Q || P)."""
    p_apart = tl.zeros((BLOCK,), tl.float32)
    q_apart = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocabulary, BLOCK):
        at = start + tl.arange(0, BLOCK)
        log_p = tl.load(p_row + at, mask=at < vocabulary, other=0.0).to(tl.float32) - p_mass
        log_q = tl.load(q_row + at, mask=at < vocabulary, other=0.0).to(tl.float32) - q_mass
        p_apart += tl.where(at < vocabulary, tl.exp(log_p) * (log_p - log_q), 0.0)
        q_apart += tl.where(at < vocabulary, tl.exp(log_q) * (log_q - log_p), 0.0)
    return tl.sum(p_apart, 0), tl.sum(q_apart, 0)


@triton.jit
def _kernel(
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
    """One row, or a row of P with its row of Q."""
    i = tl.program_id(0).to(tl.int64)  # scores may be more than 2^31
    label = tl.load(labels + i)
    weight = 1.0
    if MASKED:
        weight = tl.load(keep + i).to(tl.float32)
    p_row = scores + i * vocabulary
    p_mass, p_sum = _row_sums(p_row, vocabulary, BLOCK, SMOOTH)
    p_nll = p_mass - tl.load(p_row + label).to(tl.float32)
    p_loss = (1 - smoothing) * p_nll - smoothing * (p_sum / vocabulary - p_mass)
    share = smoothing / vocabulary
    if TWO:
        j = i + half
        q_row = scores + j * vocabulary
        q_mass, q_sum = _row_sums(q_row, vocabulary, BLOCK, SMOOTH)
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
        for start in range(0, vocabulary, BLOCK):
            at = start + tl.arange(0, BLOCK)
            inside = at < vocabulary
            true = tl.where(at == label, 1 - smoothing, 0.0) + share
            log_p = tl.load(p_row + at, mask=inside, other=0.0).to(tl.float32) - p_mass
            p = tl.exp(log_p)
            if TWO:
                log_q = tl.load(q_row + at, mask=inside, other=0.0).to(tl.float32) - q_mass
                q = tl.exp(log_q)
                p_step = p * (1 + pull + pull * (log_p - log_q - p_apart)) - pull * q - true
                q_step = q * (1 + pull + pull * (log_q - log_p - q_apart)) - pull * p - true
                tl.store(q_row + at, weight * q_step, mask=inside)
                tl.store(p_row + at, weight * p_step, mask=inside)
            else:
                tl.store(p_row + at, weight * (p - true), mask=inside)
