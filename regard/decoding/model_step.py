"""What a search asks of a model: encode the sources, prefill what precedes the text, then step token by token.

E8, E10. The search chooses between two steps (searches/search.py). `_advance` picks the decoder that takes a step: the
C decoder of a model with packed weights, the captured step on a GPU, or the model's own modules.

    B inputs   R rows (hypotheses in the decoder)   n source tokens   m prefix tokens   V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.decoding.decoder_layout import all_modules
from regard.decoding.gpu.captured_step import step_captured
from regard.decoding.requests import Tokens
from regard.models.decoding_state import Encoded
from regard.models.protocols import PadsSources, TextModel
from regard.text.tokenizers.special_tokens import SpecialTokens, pad_batch


def encode(model: TextModel, sources: Sequence[Tokens]) -> Encoded:
    """Pad the sources to one length and encode them; a model whose source is no text pads it itself."""
    device = next(model.parameters()).device
    if isinstance(model, PadsSources):
        return model.encode(model.pad_sources(sources).to(device))
    return model.encode(pad_batch(sources, pad_id=model.config.pad_id).to(device))


def prefill(
    model: TextModel, prefix: Tensor, encoded: Encoded | None, *, capacity: int, cached: bool = True
) -> tuple[Tensor, Any]:
    """Read the prefixes (B, m) in one pass; return the log-probabilities of the next token (B, V) and the state.

    The state has room for `capacity` tokens. The keys and values of the source are computed here, once for all steps.
    """
    if not cached:
        state: Any = RecomputedState(prefix[:, :0], encoded)
    else:
        state = model.start(len(prefix) if encoded is None else encoded, capacity)
    return _advance(model, state, prefix), state


def step(model: TextModel, state: Any, tokens: Tensor) -> Tensor:
    """Feed each row its token (R,), return the log-probabilities of the next one (R, V), and advance the state."""
    return _advance(model, state, tokens[:, None])


def _advance(model: TextModel, state: Any, tokens: Tensor) -> Tensor:
    c_decoder = getattr(model, "c_decoder", None)  # of models with packed weights
    if c_decoder is not None and c_decoder.why_not(state, tokens) is None:
        return log_probabilities(c_decoder.step(state, tokens))
    if tokens.is_cuda and (scores := step_captured(model, state, tokens)) is not None:
        return log_probabilities(scores)
    if isinstance(state, RecomputedState):
        hidden = state.decode(model, tokens)
    else:
        hidden = model.decode(tokens, state=state)
    return log_probabilities(model.project(hidden[:, -1]))


class RecomputedState:
    """A state without a cache: it keeps the tokens and recomputes everything. The caches are tested against it."""

    def __init__(self, tokens: Tensor, encoded: Encoded | None) -> None:
        self.tokens, self.encoded = tokens, encoded

    def decode(self, model: TextModel, tokens: Tensor) -> Tensor:
        self.tokens = torch.cat([self.tokens, tokens], dim=1)
        return model.decode(self.tokens) if self.encoded is None else model.decode(self.tokens, self.encoded)

    def select(self, rows: Tensor) -> RecomputedState:
        return RecomputedState(self.tokens[rows], None if self.encoded is None else self.encoded.select(rows))

    def repeat(self, times: int) -> RecomputedState:
        return self.select(torch.arange(len(self.tokens), device=self.tokens.device).repeat_interleave(times))

    def keep(self, rows: Tensor, inputs: Tensor | None) -> RecomputedState:
        return self.select(rows)


def log_probabilities(logits: Tensor) -> Tensor:
    """Return log softmax over the vocabulary, at least in float32; E6."""
    return torch.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def bar_special_tokens(logps: Tensor, special: SpecialTokens, allow_unknown: bool) -> Tensor:
    """Set the log-probabilities (R, V) of tokens that must not be chosen to -inf, in place; the others stay."""
    for token in special.never_chosen(allow_unknown):
        logps[:, token] = float("-inf")
    if special.tokenizer_size is not None:
        logps[:, special.tokenizer_size :] = float("-inf")
    return logps


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into eval mode inside the block, and exactly the modules that were in training mode back after it."""
    training = [module for module in all_modules(model) if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
