"""What training makes smaller: the loss of a batch, with the true likelihood beside it.

E7, C2. Label smoothing changes what is trained on, so the perplexity is always taken from `nll`, the negative
log-likelihood without it. Everything is summed, not averaged: sums of micro-batches and of processes add up.

    B batch   m target tokens   N tokens that are predicted   p model width   V vocabulary
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
from regard.text.special import PAD


class Loss(NamedTuple):
    """The sums over a batch."""

    total: Tensor  # what is trained on; the only one with a gradient
    nll: Tensor  # in nats
    tokens: int  # what was predicted: tokens, or the pairs of a sentence encoder
    correct: Tensor | None = None  # predictions that were right, where they are counted


Objective = Callable[[Any, Batch], Loss]


def objective(model: nn.Module, *, smoothing: float = 0.0, temperature: float = 0.05) -> Objective:
    """The loss that this kind of model is trained with, as a function of (model, batch).

    `temperature` is for sentence encoders, `smoothing` for the models that predict tokens.
    """
    kind = getattr(getattr(model, "config", None), "kind", None)
    match kind:
        case "transformer" | "rnn-seq2seq" | "rnn-attention":
            return partial(translation_loss, smoothing=smoothing)
        case "transformer-lm" | "rnn-lm":
            return partial(language_model_loss, smoothing=smoothing)
        case "encoder":
            return partial(contrastive_loss, temperature=temperature)
    raise TypeError(f"model must be one of regard's models, got {type(model).__name__}")


def translation_loss(model: Any, batch: Batch, *, smoothing: float = 0.0) -> Loss:
    """Every next target token from the source and the true tokens before it (teacher forcing); E7.

    Position i of the inputs, which start with the start token, predicts label i; the last label is the end token.
    """
    return _next_token_loss(model, model.decode(batch.inputs, model.encode(batch.source)), batch, smoothing)


def language_model_loss(model: Any, batch: Batch, *, smoothing: float = 0.0) -> Loss:
    """Every next token from the true tokens before it; E10, C2."""
    return _next_token_loss(model, model.decode(batch.inputs), batch, smoothing)


def _next_token_loss(model: Any, hidden: Tensor, batch: Batch, smoothing: float) -> Loss:
    """hidden (B, m, p) -> the loss at the labels that are not padding; only those are projected to the vocabulary."""
    hidden, labels = hidden.flatten(0, 1), batch.labels.flatten()  # (B m, p), (B m,)
    if batch.tokens < len(labels):
        # Sorted to the front in their order: the batch knows their number, so nobody waits for a GPU to count them.
        rows = (labels == PAD).byte().argsort(stable=True)[: batch.tokens]
        hidden, labels = hidden.index_select(0, rows), labels.index_select(0, rows)  # (N, p), (N,)
    return Loss(*token_loss(model.project(hidden), labels, smoothing=smoothing), batch.tokens)


def token_loss(logits: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """logits (N, V), labels (N,) -> cross-entropy with label smoothing, and without it; both summed.

    Szegedy et al. 2016, section 7: the true token keeps 1 - smoothing, all V tokens share the rest.
    """
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"smoothing must be a share from 0 up to, but not including, 1; got {smoothing}")
    with torch.autocast(logits.device.type, enabled=False):  # a sum of thousands of terms wants float32
        total, nll = _CrossEntropy.apply(logits.to(_at_least_float32(logits)), labels, smoothing)
    return total, nll


class _CrossEntropy(torch.autograd.Function):
    """Smoothed and plain cross-entropy with a gradient in closed form: softmax(logits) minus the smoothed target.

    torch's would build the gradient of each term in a tensor (N, V) of its own, and these are a step's largest.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        log_p = F.log_softmax(logits, dim=-1)  # (N, V)
        nll = F.nll_loss(log_p, labels, reduction="sum")
        total = nll.clone() if smoothing == 0.0 else (1 - smoothing) * nll - smoothing / logits.shape[-1] * log_p.sum()
        ctx.save_for_backward(log_p, labels)
        ctx.smoothing = smoothing
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        log_p, labels = ctx.saved_tensors
        grad = log_p.exp()  # (N, V)
        if ctx.smoothing:
            grad -= ctx.smoothing / log_p.shape[-1]
        grad[torch.arange(len(labels), device=labels.device), labels] -= 1 - ctx.smoothing
        return grad.mul_(upstream), None, None


def contrastive_loss(model: Any, batch: Batch, *, temperature: float = 0.05) -> Loss:
    """Which of the batch's targets belongs to this source, and the other way round, by their cosine.

    van den Oord et al. 2018, eq. 4; Reimers & Gurevych 2019. The other sentences of the batch are the wrong answers;
    loss and right answers are the mean of both directions.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    source, target = model(batch.source), model(batch.labels)  # (B, p) each; both end with the end token
    with torch.autocast(source.device.type, enabled=False):
        wide = _at_least_float32(source)
        a, b = F.normalize(source.to(wide), dim=-1), F.normalize(target.to(wide), dim=-1)
        similarity = a @ b.T / temperature  # (B, B)
        own = torch.arange(len(a), device=a.device)
        ways = (similarity, similarity.T)
        total = torch.stack([F.cross_entropy(way, own, reduction="sum") for way in ways]).mean()
        correct = torch.stack([(way.argmax(1) == own).sum() for way in ways]).to(wide).mean()
    return Loss(total, total.detach(), len(a), correct)


def _at_least_float32(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
