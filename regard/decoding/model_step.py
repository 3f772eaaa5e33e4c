"""The phases of decoding, as free functions: encode the sources, prefill what stands before the text, step.

E8, E10. The fourth, to choose, is the search's (search.py). A model's own fast step is taken where it has one.

    B inputs   R rows (hypotheses in the decoder)   n source tokens   m prefix tokens   V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.decoding.gpu.cuda_graphs import step_captured
from regard.decoding.requests import TextModel, Tokens
from regard.models.decoding_state import Encoded
from regard.text.tokenizers.special_tokens import PAD, START, UNKNOWN, pad_batch


def encode(model: TextModel, sources: Sequence[Tokens]) -> Encoded:
    """The sources, padded to one length, as the decoder sees them."""
    device = next(model.parameters()).device
    return model.encode(pad_batch(sources, pad_id=model.config.pad_id).to(device))


def prefill(
    model: TextModel, prefix: Tensor, encoded: Encoded | None, *, capacity: int, cached: bool = True
) -> tuple[Tensor, Any]:
    """Read the prefixes (B, m) at once: the log-probabilities of the next token (B, V), and the state for what follows.

    Here the source's keys and values are made, once for all steps.
    """
    if not cached:
        state: Any = Recomputed(prefix[:, :0], encoded)
    else:
        state = model.start(len(prefix) if encoded is None else encoded, capacity)
    return _advance(model, state, prefix), state


def step(model: TextModel, state: Any, tokens: Tensor) -> Tensor:
    """Feed each row its next token (R,): the log-probabilities of the one after it (R, V). The state moves on."""
    return _advance(model, state, tokens[:, None])


def _advance(model: TextModel, state: Any, tokens: Tensor) -> Tensor:
    native = getattr(model, "native", None)  # of models with packed weights
    if native is not None and native.fits(state, tokens):
        return log_probabilities(native.step(state, tokens))
    if tokens.is_cuda and (scores := step_captured(model, state, tokens)) is not None:
        return log_probabilities(scores)
    hidden = state.decode(model, tokens) if isinstance(state, Recomputed) else model.decode(tokens, state=state)
    return log_probabilities(model.project(hidden[:, -1]))


class Recomputed:
    """A state without a cache, the oracle for those with one: it keeps the tokens and computes all of them anew."""

    def __init__(self, tokens: Tensor, encoded: Encoded | None) -> None:
        self.tokens, self.encoded = tokens, encoded

    def decode(self, model: TextModel, tokens: Tensor) -> Tensor:
        self.tokens = torch.cat([self.tokens, tokens], dim=1)
        return model.decode(self.tokens) if self.encoded is None else model.decode(self.tokens, self.encoded)

    def select(self, rows: Tensor) -> Recomputed:
        return Recomputed(self.tokens[rows], None if self.encoded is None else self.encoded.select(rows))

    def repeat(self, times: int) -> Recomputed:
        return self.select(torch.arange(len(self.tokens), device=self.tokens.device).repeat_interleave(times))

    def keep(self, rows: Tensor, inputs: Tensor | None) -> Recomputed:
        return self.select(rows)


def log_probabilities(logits: Tensor) -> Tensor:
    """log softmax over the whole vocabulary, in float32 at least; E6."""
    return torch.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def barred(logps: Tensor, allow_unknown: bool) -> Tensor:
    """The log-probabilities with -inf for what must not be chosen; the others stay as the model gave them."""
    for token in (PAD, START) if allow_unknown else (PAD, START, UNKNOWN):
        logps[:, token] = float("-inf")
    return logps


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside the block, for every part that was in training mode, and training mode again after it."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
