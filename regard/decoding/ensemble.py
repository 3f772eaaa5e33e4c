"""Several models that decode as one: at each step, the mean of their predictions.

Sutskever et al. 2014, section 3.6.

    B batch   m tokens   V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from regard.decoding.requests import translates
from regard.errors import UsageError
from regard.models.protocols import TextModel


class Members:
    """One value for each model of an ensemble: encoded sources, states, or vectors to project."""

    def __init__(self, parts: Iterable[Any]) -> None:
        self.parts = tuple(parts)

    def select(self, rows: Tensor) -> Members:
        """Select these rows of each, in this order."""
        return Members(part.select(rows) for part in self.parts)

    def repeat(self, times: int) -> Members:
        """Repeat each row so many times, side by side."""
        return Members(part.repeat(times) for part in self.parts)

    def keep(self, rows: Tensor, inputs: Tensor | None) -> Members:
        """Continue with these rows, which belong to these inputs."""
        return Members(part.keep(rows, inputs) for part in self.parts)

    @staticmethod
    def join(states: Sequence[Members]) -> Members:
        """Join the rows of all, in this order."""
        return Members(type(parts[0]).join(parts) for parts in zip(*(state.parts for state in states), strict=True))

    def __getitem__(self, index: Any) -> Members:
        return Members(part[index] for part in self.parts)


class Ensemble(TextModel):
    """Models with the same vocabularies, of any architecture, used as one model.

    Each model reads the whole text and predicts the next token. `mean` says what is averaged: their "probabilities", or
    their "logs", with which a token that one model rules out is impossible. Scores are those of the ensemble; its
    attention and its `config` are those of the first model.
    """

    def __init__(
        self, models: Sequence[TextModel], *, mean: Literal["probabilities", "logs"] = "probabilities"
    ) -> None:
        super().__init__()
        if not models:
            raise UsageError("an ensemble needs at least one model")
        if mean not in ("probabilities", "logs"):
            raise UsageError(f"mean must be 'probabilities' or 'logs', got {mean!r}")
        for name in ("vocabulary", "source_vocabulary", "target_vocabulary", "pad_id", "special_tokens"):
            sizes = [getattr(model.config, name, None) for model in models]
            if len({*sizes}) > 1:
                raise UsageError(f"the models of an ensemble must have the same vocabularies, and {name} is {sizes}")
        self.models, self.mean, self.config = nn.ModuleList(models), mean, models[0].config
        if translates(models[0]):
            self.encode = self._encode

    def _encode(self, source: Tensor) -> Members:
        """(B, n) -> the source, encoded by each model."""
        return Members(model.encode(source) for model in self.members)

    def start(self, encoded: Members | int, capacity: int) -> Members:
        """Return the states before the first token, of encoded sources or of a number of texts."""
        sources = [encoded] * len(self.models) if isinstance(encoded, int) else encoded.parts
        return Members(model.start(source, capacity) for model, source in zip(self.members, sources, strict=True))

    def decode(self, target: Tensor, encoded: Members | None = None, *, state: Members | None = None) -> Members:
        """(B, m) -> the vectors of each model: for a whole text, with its source if it has one, or for new tokens."""
        if state is not None:
            pairs = zip(self.members, state.parts, strict=True)
            return Members(model.decode(target, state=part) for model, part in pairs)
        if encoded is not None:
            return Members(model.decode(target, part) for model, part in zip(self.members, encoded.parts, strict=True))
        return Members(model.decode(target) for model in self.members)

    def project(self, hidden: Members) -> Tensor:
        """The vectors of each model -> the joint log-probabilities (…, V); with mean="logs" they are not normalised."""
        logits = [model.project(part) for model, part in zip(self.members, hidden.parts, strict=True)]
        dtype = torch.promote_types(logits[0].dtype, torch.float32)
        logps = torch.stack([torch.log_softmax(x, dim=-1, dtype=dtype) for x in logits])  # (models, …, V)
        return logps.mean(0) if self.mean == "logs" else logps.logsumexp(0) - math.log(len(logits))

    @property
    def members(self) -> list[TextModel]:
        """The models."""
        return [cast(TextModel, model) for model in self.models]
