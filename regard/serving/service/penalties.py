"""Presence and frequency penalties and biases of tokens, as in OpenAI's API: they are subtracted from the logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.machine.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Penalties:
    """A rule of a search. Only tokens that were written count, not those of the prompt.

    The logit of a token that was written c times becomes: logit - presence · [c > 0] - frequency · c + bias.
    """

    presence: float = 0.0
    frequency: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()  # (token, what is added)

    @property
    def changes_anything(self) -> bool:
        return bool(self.presence or self.frequency or self.bias)

    def __call__(self, logps: Tensor, text: Tensor, written: int) -> None:
        tokens = text[:, text.shape[1] - written :]
        counts = torch.zeros_like(logps).scatter_add_(1, tokens, torch.ones_like(tokens, dtype=logps.dtype))
        logps -= self.presence * (counts > 0) + self.frequency * counts
        for token, value in self.bias:
            if token < logps.shape[1]:
                logps[:, token] += value
        logps.copy_(logps.log_softmax(-1))  # no log-probability may be above 0
