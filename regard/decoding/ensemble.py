"""Several models that write as one: at each step the mean of what they predict.

Sutskever et al. 2014, section 3.6.

    B batch   m tokens   V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.decoding.requests import TextModel
from regard.errors import UsageError


class Together:
    """What each model of an ensemble has, side by side: encoded sources, states, or vectors to project."""

    def __init__(self, parts: Iterable[Any]) -> None:
        self.parts = tuple(parts)

    def select(self, rows: Tensor) -> Together:
        """The given rows of each, in the given order."""
        return Together(part.select(rows) for part in self.parts)

    def repeat(self, times: int) -> Together:
        """Each row so many times, side by side."""
        return Together(part.repeat(times) for part in self.parts)

    def keep(self, rows: Tensor, inputs: Tensor | None) -> Together:
        """Go on with the given rows, which belong to the given inputs."""
        return Together(part.keep(rows, inputs) for part in self.parts)

    @staticmethod
    def join(states: Sequence[Together]) -> Together:
        """The rows of all, in this order."""
        return Together(type(parts[0]).join(parts) for parts in zip(*(state.parts for state in states), strict=True))

    def __getitem__(self, places: Any) -> Together:
        return Together(part[places] for part in self.parts)


class Ensemble(nn.Module):
    """Models with the same vocabularies, of any architecture, used as if they were one.

    Each reads all that was written and predicts the next token. `mean` says what is averaged: their "probabilities",
    or the "logs" of them, where what one model rules out is out. Scores are those of the ensemble; its attention is
    that of the first model, and so is its `config`.
    """

    def __init__(
        self, models: Sequence[TextModel], *, mean: Literal["probabilities", "logs"] = "probabilities"
    ) -> None:
        super().__init__()
        if not models:
            raise UsageError("an ensemble needs at least one model")
        if mean not in ("probabilities", "logs"):
            raise UsageError(f"mean must be 'probabilities' or 'logs', got {mean!r}")
        for name in ("vocabulary", "source_vocabulary", "target_vocabulary", "pad_id"):
            found = [getattr(model.config, name, None) for model in models]
            if len({*found}) > 1:
                raise UsageError(f"the models of an ensemble must have the same vocabularies, and {name} is {found}")
        self.models, self.mean, self.config = nn.ModuleList(models), mean, models[0].config
        if hasattr(models[0], "encode"):  # which tells translators from language models
            self.encode = self._encode

    def _encode(self, source: Tensor) -> Together:
        """(B, n) -> the source as each model sees it."""
        return Together(model.encode(source) for model in self._all)

    def start(self, encoded: Together | int, capacity: int) -> Together:
        """The states before the first token: of encoded sources, or of so many texts."""
        each = [encoded] * len(self.models) if isinstance(encoded, int) else encoded.parts
        return Together(model.start(one, capacity) for model, one in zip(self._all, each, strict=True))

    def decode(self, target: Tensor, encoded: Together | None = None, *, state: Together | None = None) -> Together:
        """(B, m) -> the vectors of each model: for a whole text, beside its source if it has one, or for new tokens."""
        if state is not None:
            each = zip(self._all, state.parts, strict=True)
            return Together(model.decode(target, state=one) for model, one in each)
        if encoded is not None:
            return Together(model.decode(target, one) for model, one in zip(self._all, encoded.parts, strict=True))
        return Together(model.decode(target) for model in self._all)

    def project(self, hidden: Together) -> Tensor:
        """The vectors of each model -> the joint log-probabilities (…, V); those of mean="logs" do not sum to 1 yet."""
        logits = [model.project(one) for model, one in zip(self._all, hidden.parts, strict=True)]
        dtype = torch.promote_types(logits[0].dtype, torch.float32)
        logps = torch.stack([torch.log_softmax(one, dim=-1, dtype=dtype) for one in logits])  # (models, …, V)
        return logps.mean(0) if self.mean == "logs" else logps.logsumexp(0) - math.log(len(logits))

    @property
    def _all(self) -> list[TextModel]:
        return list(self.models)
