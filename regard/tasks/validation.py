"""Validation during training: the loss on the validation part, and the scores of the task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from regard.recipes.tables import RecipeTables
from regard.tasks.corpora import Corpora
from regard.tasks.losses import Objective
from regard.tasks.precision import autocast
from regard.text.batches.batch import Batch
from regard.text.tokenizers.tokenizer import Tokenizer

LOSS_OF_EQUALS = 1e-9  # weight of the loss beside a share of samples: too small to outweigh one sample


@dataclass(frozen=True)
class Measure:
    """The score of a validation that selects the best model."""

    key: str  # of the scores of a validation
    label: str
    lower_is_better: bool = False
    why: str = ""  # this one and not another
    share: bool = False  # a share of all samples, shown in percent
    newest: bool = False  # the newest model is kept, and the value is only shown

    def value(self, scores: Mapping[str, Any]) -> float:
        """Return the measured value; BLEU and chrF are stored with their signatures."""
        value = scores[self.key]
        return float(value["value"] if isinstance(value, Mapping) else value)

    def rank(self, scores: Mapping[str, Any]) -> float:
        """Return the value as a number that is higher for a better model; of equal shares, that of the lower loss."""
        rank = -self.value(scores) if self.lower_is_better else self.value(scores)
        if self.share and "loss" in scores:
            rank -= LOSS_OF_EQUALS * min(float(scores["loss"]), 1 / LOSS_OF_EQUALS)
        return rank

    def describe(self, scores: Mapping[str, Any]) -> str:
        """Return the name and the value, such as "chrF 21.3"."""
        digits = ".1%" if self.share else ".3f" if self.lower_is_better else ".1f"
        return f"{self.label} {self.value(scores):{digits}}"


LOSS = Measure("loss", "validation loss", lower_is_better=True)


class Validation(NamedTuple):
    """The result of a validation. `score` selects the best model; higher is better."""

    score: float
    values: dict[str, Any]
    line: str


class Stop(Protocol):
    """A request to stop, for example by a signal; `check` raises an exception once there is one."""

    signal: int | None

    def check(self) -> None: ...


class NoStop:
    """A stop request that never comes."""

    signal: int | None = None

    def check(self) -> None:
        return


class ValidationData(Protocol):
    """The batches of the validation part."""

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]: ...


class Validator:
    """Evaluate the model on the validation part. Perplexity uses the true likelihood, without label smoothing.

    A task that measures more overrides `quality`, `summary` or `more_scores`. `measure` names the score that selects
    the best model.
    """

    measure: Measure = LOSS

    def __init__(
        self,
        model: nn.Module,
        recipe: RecipeTables,
        corpora: Corpora,
        data: ValidationData,
        tokenizers: tuple[Tokenizer, Tokenizer],
        objective: Objective,
        *,
        folder: Path,
        device: torch.device,
        info: dict[str, Any],
        stop: Stop | None = None,
    ) -> None:
        self.stop: Stop = stop or NoStop()  # a signal ends a validation midway
        self.model, self.recipe, self.corpus = model, recipe, corpora.validation
        self.data, self.objective, self.folder, self.device = data, objective, folder, device
        self.tokenizers, self.info = tokenizers, info
        self.scores: dict[str, Any] = {}  # of the last validation
        self.samples: list[tuple[str, str, str]] = []  # source, reference and output

    def __call__(self, step: int) -> Validation:
        """Compute all scores of the current model, without using the random generators of training."""
        self.model.eval()
        with torch.inference_mode():
            self.scores = self.likelihood()
        line = f"validation: loss {self.scores['loss']:.3f}  {self.summary()}"
        line += self.more_scores(step)
        score = float(step) if self.measure.newest else self.measure.rank(self.scores)
        return Validation(score, {**self.scores, "samples": self.samples}, line)

    def likelihood(self) -> dict[str, float]:
        """Return the loss per token (or sample) in nats, and scores derived from it."""
        nll = correct = 0.0
        count = 0
        for batch in self.data.batches(0):
            self.stop.check()
            with autocast(self.device, self.recipe.training.precision):
                loss = self.objective(self.model, batch.to(self.device))
            nll, count = nll + float(loss.nll), count + loss.tokens
            correct += 0.0 if loss.correct is None else float(loss.correct)
        mean = nll / max(count, 1)
        return {"loss": mean, **self.quality(mean, correct / max(count, 1))}

    def quality(self, loss: float, accuracy: float) -> dict[str, float]:
        """Return the scores besides the loss; `accuracy` is the fraction of right predictions, if they are counted."""
        return {"perplexity": math.exp(min(loss, 700.0))}

    def summary(self) -> str:
        """Return these scores as text."""
        return f"perplexity {self.scores['perplexity']:.2f}"

    def more_scores(self, step: int) -> str:
        """Add scores that need more than the likelihood to `scores`; return text to add to the report."""
        return ""

    def alignment_head(self) -> dict[str, Any] | None:
        """Return the attention head that aligns words best, for config.json; None without one."""
        return None

    def rehearse(self, timed: Callable[..., float], *, seconds: float) -> tuple[float, float]:
        """Estimate the seconds that `more_scores` and `alignment_head` take, from trials with a few samples.

        `timed` calls a function and returns its seconds; each trial takes about `seconds`.
        """
        return 0.0, 0.0
