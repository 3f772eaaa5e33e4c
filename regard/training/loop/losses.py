"""What training makes smaller: the loss of a batch, with the true likelihood beside it.

E7, C2. Label smoothing and R-Drop change what is trained on, so the perplexity is always taken from `nll`, the
negative log-likelihood without them. Everything is summed, not averaged: sums of micro-batches and of processes add up.
A process whose share of a batch is empty sends one row of nothing through the model: the others may wait for its part
of the work, and not every kernel takes a batch without rows. Its loss and its gradients are 0.

    B batch   b rows of it that this process has   m target tokens   N tokens that are predicted
    p model width
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.kernels.training.cross_entropy import at_least_float32, token_loss
from regard.text.batches.batch import Batch
from regard.text.tokenizers.special_tokens import END, PAD, START


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
    weight, bias = model.output_table
    alpha = r_drop if passes == 2 else 0.0
    total, nll = token_loss(hidden, labels, weight=weight, bias=bias, smoothing=smoothing, r_drop=alpha, keep=keep)
    return Loss(total, nll, batch.tokens)


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
        wide = at_least_float32(sides[0].dtype)
        a, b = (F.normalize(side.to(wide), dim=-1) for side in sides)
        (all_a, first), (all_b, _) = together(a), together(b)  # (B, p)
        ways = [a @ all_b.T / temperature, b @ all_a.T / temperature]  # (b, B)
        right = first + torch.arange(own, device=a.device)
        total = torch.stack([F.cross_entropy(way, right, reduction="sum") for way in ways]).mean()
        found = [way.argmax(1) if own else right for way in ways]  # of nothing at all torch takes no maximum
        correct = torch.stack([(one == right).sum() for one in found]).to(wide).mean()
    return Loss(total, total.detach(), own, correct)
