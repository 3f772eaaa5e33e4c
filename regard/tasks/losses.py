"""Losses: what training minimises for a batch, and the true likelihood.

E7, C2. Label smoothing and R-Drop change what is trained on, so perplexity is always computed from `nll`, the negative
log-likelihood without them. Everything is summed, not averaged: sums of micro-batches and of processes add up.
A process whose part of a batch is empty passes one dummy row through the model, because other processes may wait for
it and not every kernel accepts an empty batch. Its loss and its gradients are 0.

    B batch   b rows of it that this process has   m target tokens   N tokens that are predicted
    p model width
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.arrays.augment import SHARES
from regard.kernels.fp8.enable import output_scales
from regard.kernels.fp8.output import fp8_token_loss
from regard.kernels.training.cross_entropy import at_least_float32, token_loss
from regard.models.arrays.dlinear import DLinear
from regard.models.arrays.patch_forecaster import PatchForecaster
from regard.models.arrays.speech_recognizers import ListenAttendSpell, SpeechCTC, SpeechTransformer
from regard.models.arrays.vision_transformer import VisionTransformer
from regard.models.decoding_state import Encoded
from regard.models.encoders.text_classifier import TextClassifier
from regard.models.pointer_generator import PointerGenerator
from regard.models.protocols import EncoderDecoder, TextEncoder, TokenPredictor
from regard.text.batches.batch import Batch
from regard.text.tokenizers.special_tokens import END, PAD, SPECIAL_TOKENS, START

SMALLEST_SHARE = 1e-6  # of the attention, where its logarithm is taken
IGNORED = -100  # in place of a label that has no class


class Loss(NamedTuple):
    """The sums over a batch."""

    total: Tensor  # what is trained on; the only one with a gradient
    nll: Tensor  # in nats
    tokens: int  # what was predicted: tokens, or the pairs of a sentence encoder
    correct: Tensor | None = None  # predictions that were right, where they are counted


Objective = Callable[[Any, Batch], Loss]
# This process's rows (b, p) -> the rows (B, p) of all processes, and the index of its first. Differentiable.
Together = Callable[[Tensor], tuple[Tensor, int]]


def translation_loss(
    model: EncoderDecoder, batch: Batch, *, smoothing: float = 0.0, r_drop: float = 0.0, kernels: bool = True
) -> Loss:
    """Predict every next target token from the source and the true tokens before it (teacher forcing); E7.

    Position i of the inputs, which start with the start token, predicts label i; the last label is the end token.
    """
    passes = _passes(model, r_drop)
    special = batch.special
    encoded = model.encode(_repeated(batch.source, special.end, passes))
    hidden = model.decode(_repeated(batch.inputs, special.start, passes), encoded)
    return _next_token_loss(model, hidden, batch, smoothing, r_drop, kernels)


def copying_loss(model: PointerGenerator, batch: Batch, *, smoothing: float = 0.0, pointing: float = 0.0) -> Loss:
    """Predict every next target token as `translation_loss` does, with a model that mixes two distributions; G3.

    Its `decode` returns log-probabilities, whose softmax are the probabilities, so they can stand for logits.
    `pointing` is the weight of a second loss, for batches with `support`: -log of the pointer's attention to it, at all
    tokens but the end token. There the pointer is free: told to copy from the support, it would copy on without an end.
    """
    encoded = model.encode(_repeated(batch.source, END))
    logps, weights = model.decode_and_point(_repeated(batch.inputs, START), encoded)  # (B, m, V), (B, m, n)
    labels = _repeated(batch.labels, PAD)
    loss = _copied_loss(logps.flatten(0, 1), labels.flatten(), smoothing, batch.tokens)
    if not pointing or batch.support is None or not len(batch.ids):
        return loss
    columns = torch.arange(weights.shape[-1], device=weights.device)
    inside = (columns >= batch.support[:, :1]) & (columns < batch.support[:, 1:])  # (B, n)
    share = (weights.float() * inside[:, None]).sum(-1).clamp_min(SMALLEST_SHARE)  # (B, m)
    known = (labels != PAD) & (labels != END) & inside.any(1, keepdim=True)
    return loss._replace(total=loss.total - pointing * (share.log() * known).sum())


def _copied_loss(logps: Tensor, labels: Tensor, smoothing: float, tokens: int) -> Loss:
    nll = F.nll_loss(logps, labels, ignore_index=PAD, reduction="sum")
    if not smoothing:
        return Loss(nll, nll.detach(), tokens)
    total = F.cross_entropy(logps, labels, ignore_index=PAD, reduction="sum", label_smoothing=smoothing)
    return Loss(total, nll.detach(), tokens)


def caption_loss(model: EncoderDecoder, batch: Batch, *, smoothing: float = 0.0, kernels: bool = True) -> Loss:
    """Predict every next word of a caption from the image, or the frames of a video, and the words before it; G4."""
    hidden = model.decode(_repeated(batch.inputs, START), model.encode(_or_dummy(batch.source)))
    return _next_token_loss(model, hidden, batch, smoothing, 0.0, kernels)


def language_model_loss(
    model: TokenPredictor, batch: Batch, *, smoothing: float = 0.0, r_drop: float = 0.0, kernels: bool = True
) -> Loss:
    """Predict every next token from the true tokens before it; E10, C2."""
    passes = _passes(model, r_drop)
    hidden = model.decode(_repeated(batch.inputs, batch.special.start, passes))
    return _next_token_loss(model, hidden, batch, smoothing, r_drop, kernels)


def _passes(model: TokenPredictor, r_drop: float) -> int:
    """Return the number of passes through the model: two for R-Drop, but only while dropout is active."""
    return 2 if r_drop and model.training else 1


def _repeated(tokens: Any, dummy: int, passes: int = 1) -> Tensor:
    """Repeat the rows (B, n) for each pass, (passes B, n); an empty batch becomes one row with the token `dummy`."""
    return (tokens if len(tokens) else tokens.new_full((1, 1), dummy)).repeat(passes, 1)


def _next_token_loss(
    model: TokenPredictor, hidden: Tensor, batch: Batch, smoothing: float, r_drop: float, kernels: bool
) -> Loss:
    """Return the loss of hidden states (passes B, m, p) at the labels that are not ignored; only these are projected.

    A batch of fixed shape keeps its shape: everything is projected, and what is ignored is masked out of the sums.
    """
    passes = _passes(model, r_drop)
    hidden, labels = hidden.flatten(0, 1), _repeated(batch.labels, batch.ignored, passes).flatten()  # (B m, p), (B m,)
    keep = None
    if batch.fixed:
        keep, labels = labels != batch.ignored, labels.clamp_min(0)
    if keep is None and passes * batch.tokens < len(labels):
        # Sort them to the front. The batch knows their number, so there is no need to wait for a GPU to count them.
        rows = (labels == batch.ignored).byte().argsort(stable=True)[: passes * batch.tokens]
        hidden, labels = hidden.index_select(0, rows), labels.index_select(0, rows)  # (N, p), (N,)
    weight, bias = model.output_table
    if passes == 1 and (amax := output_scales(model)) is not None:
        total, nll = fp8_token_loss(hidden, labels, weight=weight, smoothing=smoothing, keep=keep, amax=amax)
        return Loss(total, nll, batch.tokens)
    alpha = r_drop if passes == 2 else 0.0
    total, nll = token_loss(
        hidden, labels, weight=weight, bias=bias, smoothing=smoothing, r_drop=alpha, keep=keep, kernels=kernels
    )
    return Loss(total, nll, batch.tokens)


def classification_loss(model: TextClassifier, batch: Batch, *, smoothing: float = 0.0) -> Loss:
    """Predict the label of each text; many to one. The label is the first target token."""
    count = len(batch.ids)
    logits = model(_repeated(batch.source, END))[:count]  # (b, C)
    return _class_loss(logits, batch.labels[:count, 0] - len(SPECIAL_TOKENS), smoothing)


def image_loss(model: VisionTransformer, batch: Batch, *, smoothing: float = 0.0) -> Loss:
    """Predict the class of each image; G5. The label is the number of the class, below 0 if there is none.

    A mixture of two images has two labels and the weight of the first (ImageData).
    """
    count = len(batch.ids)
    return image_label_loss(model(_or_dummy(batch.source))[:count], batch.labels[:count], smoothing=smoothing)


def image_label_loss(logits: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Loss:
    """Return the cross-entropy of logits (b, K) at the labels (b, 1), or at those of mixtures (b, 3)."""
    if labels.shape[1] == 1:
        return _class_loss(logits, labels[:, 0], smoothing)
    own, other, weight = labels.unbind(1)
    logits, share = logits.to(at_least_float32(logits.dtype)), weight / SHARES

    def total(smoothing: float) -> Tensor:
        of_own, of_other = (
            F.cross_entropy(logits, label, reduction="none", label_smoothing=smoothing) for label in (own, other)
        )
        return torch.lerp(of_other, of_own, share).sum()

    return Loss(total(smoothing), total(0.0).detach(), len(labels), (logits.argmax(1) == own).sum())


def forecast_loss(model: PatchForecaster | DLinear, batch: Batch) -> Loss:
    """Mean squared error of a window's forecast over its columns and points, summed over the windows; G6."""
    count = len(batch.ids)
    forecast = model(_or_dummy(batch.source))[:count]  # (b, C, F)
    total = (forecast.float() - batch.labels[:count]).square().mean((1, 2)).sum()
    return Loss(total, total.detach(), count)


def speech_loss(
    model: SpeechTransformer | ListenAttendSpell | SpeechCTC,
    batch: Batch,
    *,
    smoothing: float = 0.0,
    kernels: bool = True,
) -> Loss:
    """Predict every next token of the transcript from the sound and the true tokens before it; G6.

    A model without a decoder has the loss of CTC, one with both a mean of the two; the likelihood is the decoder's.
    """
    encoded = model.encode(_or_dummy(batch.source))
    if isinstance(model, SpeechCTC):
        return ctc_loss(model.label(encoded), encoded, batch)
    hidden = model.decode(_repeated(batch.inputs, START), encoded)
    loss = _next_token_loss(model, hidden, batch, smoothing, 0.0, kernels)
    if not isinstance(model, SpeechTransformer) or model.labels is None or not model.training:
        return loss
    share = model.config.ctc
    total = (1 - share) * loss.total + share * ctc_loss(model.label(encoded), encoded, batch).total
    return loss._replace(total=total)


def ctc_loss(logits: Tensor, encoded: Encoded, batch: Batch) -> Loss:
    """Sum over all ways to label the vectors of the sound (B, n, V) that give the transcript; Graves et al. 2006.

    The last label of a transcript is END, which CTC does not need.
    """
    count = len(batch.ids)
    with torch.autocast(logits.device.type, enabled=False):
        logps = logits.to(at_least_float32(logits.dtype)).log_softmax(-1)[:count].transpose(0, 1)  # (n, b, V)
        if not count:
            return Loss(logps.sum(), logps.detach().sum(), 0)
        lengths, target_lengths = encoded.keep.sum(1), (batch.labels != PAD).sum(1) - 1
        total = F.ctc_loss(logps, batch.labels, lengths, target_lengths, blank=PAD, reduction="sum", zero_infinity=True)
    return Loss(total, total.detach(), batch.tokens)


def _or_dummy(samples: Any) -> Tensor:
    """Return arrays (B, …); of an empty batch, one sample of zeros."""
    return samples if len(samples) else samples.new_zeros(1, *samples.shape[1:])


def _class_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Loss:
    """Return the cross-entropy of logits (b, C) at the classes (b,); below 0, a label has no class.

    Training never saw such a label: it is counted as wrong, and its likelihood is left out.
    """
    count = len(labels)
    logits = logits.to(at_least_float32(logits.dtype))
    labels = torch.where(labels < 0, IGNORED, labels)
    total = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing, ignore_index=IGNORED)
    nll = F.cross_entropy(logits.detach(), labels, reduction="sum", ignore_index=IGNORED)
    chosen = logits.argmax(1) if count else labels  # PyTorch has no argmax of an empty tensor
    return Loss(total, nll, count, (chosen == labels).sum())


def alone(rows: Tensor) -> tuple[Tensor, int]:
    """Return the rows unchanged: a single process has all of them."""
    return rows, 0


def contrastive_loss(
    model: TextEncoder, batch: Batch, *, temperature: float = 0.05, together: Together = alone
) -> Loss:
    """Find the target of each source in the batch, and the other way round, by their cosine.

    van den Oord et al. 2018, eq. 4; Reimers & Gurevych 2019. The other sentences of the batch are the negatives, with
    `together` those of the other processes too; the loss and the right answers are means over both directions.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    count = len(batch.ids)
    sides = [model(_repeated(tokens, batch.special.end))[:count] for tokens in (batch.source, batch.labels)]  # (b, p)
    with torch.autocast(sides[0].device.type, enabled=False):
        wide = at_least_float32(sides[0].dtype)
        a, b = (F.normalize(side.to(wide), dim=-1) for side in sides)
        (all_a, first), (all_b, _) = together(a), together(b)  # (B, p)
        directions = [a @ all_b.T / temperature, b @ all_a.T / temperature]  # (b, B)
        right = first + torch.arange(count, device=a.device)
        total = torch.stack([F.cross_entropy(scores, right, reduction="sum") for scores in directions]).mean()
        # PyTorch has no argmax of an empty tensor.
        chosen = [scores.argmax(1) if count else right for scores in directions]
        correct = torch.stack([(answers == right).sum() for answers in chosen]).to(wide).mean()
    return Loss(total, total.detach(), count, correct)
