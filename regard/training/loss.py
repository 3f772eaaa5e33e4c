"""What training makes smaller: the loss of a batch, with the true likelihood beside it.

E7, C2. Label smoothing and R-Drop change what is trained on, so the perplexity is always taken from `nll`, the
negative log-likelihood without them. Everything is summed, not averaged: sums of micro-batches and of processes add up.
A process whose share of a batch is empty sends one row of nothing through the model: the others may wait for its part
of the work, and not every kernel takes a batch without rows. Its loss and its gradients are 0.

    B batch   b rows of it that this process has   m target tokens   N tokens that are predicted
    p model width   V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.text.batching import Batch
from regard.text.special import END, PAD, START


class Loss(NamedTuple):
    """The sums over a batch."""

    total: Tensor  # what is trained on; the only one with a gradient
    nll: Tensor  # in nats
    tokens: int  # what was predicted: tokens, or the pairs of a sentence encoder
    correct: Tensor | None = None  # predictions that were right, where they are counted


Objective = Callable[[Any, Batch], Loss]
# This process's rows (b, p) -> the rows (B, p) of all processes, and which of them is its first. Differentiable.
Together = Callable[[Tensor], tuple[Tensor, int]]


def objective(
    model: nn.Module,
    *,
    smoothing: float = 0.0,
    temperature: float = 0.05,
    r_drop: float = 0.0,
    together: Together | None = None,
) -> Objective:
    """The loss that this kind of model is trained with, as a function of (model, batch).

    `smoothing` and `r_drop` are for the models that predict tokens, `temperature` and `together` for sentence encoders.
    """
    kind = getattr(getattr(model, "config", None), "kind", None)
    match kind:
        case "transformer" | "rnn-seq2seq" | "rnn-attention":
            return partial(translation_loss, smoothing=smoothing, r_drop=r_drop)
        case "transformer-lm" | "rnn-lm":
            return partial(language_model_loss, smoothing=smoothing, r_drop=r_drop)
        case "encoder":
            return partial(contrastive_loss, temperature=temperature, together=together or _alone)
    raise TypeError(f"model must be one of regard's models, got {type(model).__name__}")


def translation_loss(model: Any, batch: Batch, *, smoothing: float = 0.0, r_drop: float = 0.0) -> Loss:
    """Every next target token from the source and the true tokens before it (teacher forcing); E7.

    Position i of the inputs, which start with the start token, predicts label i; the last label is the end token.
    """
    passes = _passes(model, r_drop)
    encoded = model.encode(_shown(batch.source, END, passes))
    hidden = model.decode(_shown(batch.inputs, START, passes), encoded)
    return _next_token_loss(model, hidden, batch, smoothing, r_drop)


def language_model_loss(model: Any, batch: Batch, *, smoothing: float = 0.0, r_drop: float = 0.0) -> Loss:
    """Every next token from the true tokens before it; E10, C2."""
    passes = _passes(model, r_drop)
    hidden = model.decode(_shown(batch.inputs, START, passes))
    return _next_token_loss(model, hidden, batch, smoothing, r_drop)


def _passes(model: Any, r_drop: float) -> int:
    """R-Drop looks twice, but only while dropout makes a difference."""
    return 2 if r_drop and model.training else 1


def _shown(tokens: Any, nothing: int, passes: int = 1) -> Tensor:
    """tokens (B, n) -> the same rows for each pass, (passes B, n); where there are none, one of the token `nothing`."""
    return (tokens if len(tokens) else tokens.new_full((1, 1), nothing)).repeat(passes, 1)


def _next_token_loss(model: Any, hidden: Tensor, batch: Batch, smoothing: float, r_drop: float) -> Loss:
    """hidden (passes B, m, p) -> the loss at the labels that are not padding; nothing else is projected to words.

    A batch of fixed shape keeps its shape: everything is projected, and padding is masked out of the sums.
    """
    passes = _passes(model, r_drop)
    hidden, labels = hidden.flatten(0, 1), _shown(batch.labels, PAD, passes).flatten()  # (B m, p), (B m,)
    keep = labels != PAD if batch.fixed else None
    if keep is None and passes * batch.tokens < len(labels):
        # Sorted to the front in their order: the batch knows their number, so nobody waits for a GPU to count them.
        rows = (labels == PAD).byte().argsort(stable=True)[: passes * batch.tokens]
        hidden, labels = hidden.index_select(0, rows), labels.index_select(0, rows)  # (N, p), (N,)
    weight = r_drop if passes == 2 else 0.0
    total, nll = token_loss(model.project(hidden), labels, smoothing=smoothing, r_drop=weight, keep=keep)
    return Loss(total, nll, batch.tokens)


def token_loss(
    logits: Tensor, labels: Tensor, *, smoothing: float = 0.0, r_drop: float = 0.0, keep: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """logits (N, V), labels (N,) -> cross-entropy with label smoothing, and without it; both summed.

    Szegedy et al. 2016, section 7: the true token keeps 1 - smoothing, all V tokens share the rest. Rows where `keep`
    (N,) is False do not count.

    With `r_drop`, alpha of Liang et al. 2021, the first half of the rows is one pass and the second half the same
    tokens in another pass, with other units dropped. Their predictions shall agree: the loss is half of eq. 4,

        1/2 (L(P) + L(Q)) + alpha/4 (KL(P || Q) + KL(Q || P)),    L the cross-entropy, P and Q the passes,

    half, so that it is the plain loss where the passes agree, and the learning rate keeps its meaning.
    """
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"smoothing must be a share from 0 up to, but not including, 1; got {smoothing}")
    if r_drop < 0.0:
        raise ValueError(f"r_drop must be a number from 0, got {r_drop}")
    with torch.autocast(logits.device.type, enabled=False):  # a sum of thousands of terms wants float32
        wide = logits.to(_at_least_float32(logits))
        total, nll = _CrossEntropy.apply(wide, labels, keep, smoothing, r_drop / 2)
    return (total / 2, nll / 2) if r_drop else (total, nll)


class _CrossEntropy(torch.autograd.Function):
    """Smoothed and plain cross-entropy with a gradient in closed form: softmax(logits) minus the smoothed target.

    torch's would build the gradient of each term in a tensor (N, V) of its own, and these are a step's largest.
    With a weight `pull`, the rows are two passes, and pull (KL(P || Q) + KL(Q || P)) is part of the total.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, keep: Tensor | None, smoothing: float, pull: float
    ) -> tuple[Tensor, Tensor]:
        log_p = F.log_softmax(logits, dim=-1)  # (N, V)
        nll = -log_p.gather(-1, labels[:, None])  # (N, 1)
        total = nll
        if smoothing:
            total = (1 - smoothing) * nll - smoothing * log_p.mean(-1, keepdim=True)
        apart = None
        if pull:
            apart = _divergences(log_p)  # (N, 1)
            total = total + pull * apart
        if keep is not None:
            total, nll = (rows.masked_fill(~keep[:, None], 0.0) for rows in (total, nll))
        ctx.save_for_backward(log_p, labels, keep, apart)
        ctx.smoothing, ctx.pull = smoothing, pull
        total, nll = total.sum(), nll.sum()
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor, None, None, None, None]:
        log_p, labels, keep, apart = ctx.saved_tensors
        grad = log_p.exp()  # (N, V)
        if ctx.pull:
            _add_pull(grad, log_p, apart, ctx.pull)
        if ctx.smoothing:
            grad -= ctx.smoothing / log_p.shape[-1]
        grad[torch.arange(len(labels), device=labels.device), labels] -= 1 - ctx.smoothing
        return grad.mul_(upstream if keep is None else upstream * keep[:, None]), None, None, None, None


def _divergences(log_p: Tensor) -> Tensor:
    """log_p (N, V), two passes P and Q of N/2 tokens -> (N, 1): KL(P || Q) of each token, then KL(Q || P)."""
    p, q = log_p.chunk(2)
    gap = p - q  # (N/2, V)
    return torch.cat([p.exp().mul_(gap).sum(-1, keepdim=True), -q.exp().mul_(gap).sum(-1, keepdim=True)])


def _add_pull(grad: Tensor, log_p: Tensor, apart: Tensor, pull: float) -> None:
    """Add the gradient of pull (KL(P || Q) + KL(Q || P)) to grad (N, V), which holds softmax(logits).

    For P's logits it is pull (P (log P - log Q - KL(P || Q)) + P - Q), and for Q's the same with the names changed.
    Half by half and in place, to hold no more of these tensors at a time than must be.
    """
    halves = log_p.chunk(2)
    for mine, other, kl, half in zip(halves, halves[::-1], apart.chunk(2), grad.chunk(2), strict=True):
        half.mul_((mine - other).mul_(pull).add_(1 + pull - pull * kl))
        half.sub_(other.exp(), alpha=pull)


def _alone(rows: Tensor) -> tuple[Tensor, int]:
    """One process has all rows."""
    return rows, 0


def contrastive_loss(model: Any, batch: Batch, *, temperature: float = 0.05, together: Together = _alone) -> Loss:
    """Which of the batch's targets belongs to this source, and the other way round, by their cosine.

    van den Oord et al. 2018, eq. 4; Reimers & Gurevych 2019. The other sentences of the batch are the wrong answers,
    with `together` those of the other processes too; loss and right answers are the mean of both directions.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    own = len(batch.ids)
    sides = [model(_shown(tokens, END))[:own] for tokens in (batch.source, batch.labels)]  # (b, p); both end with END
    with torch.autocast(sides[0].device.type, enabled=False):
        wide = _at_least_float32(sides[0])
        a, b = (F.normalize(side.to(wide), dim=-1) for side in sides)
        (all_a, first), (all_b, _) = together(a), together(b)  # (B, p)
        ways = [a @ all_b.T / temperature, b @ all_a.T / temperature]  # (b, B)
        right = first + torch.arange(own, device=a.device)
        total = torch.stack([F.cross_entropy(way, right, reduction="sum") for way in ways]).mean()
        found = [way.argmax(1) if own else right for way in ways]  # of nothing at all torch takes no maximum
        correct = torch.stack([(one == right).sum() for one in found]).to(wide).mean()
    return Loss(total, total.detach(), own, correct)


def _at_least_float32(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
