"""Where a training stands, what it measured since the last report, and what a validation found."""

from __future__ import annotations

import math
from dataclasses import dataclass

from regard.tasks.validation import Validation
from regard.training.parallel.group import Group

__all__ = ["Meter", "Progress", "Validation"]


@dataclass
class Progress:
    """Where a training stands: with weights, optimizer and generators all that resume needs."""

    step: int = 0
    epoch: int = 0
    consumed: int = 0  # samples of this epoch, over all processes
    tokens: int = 0  # target tokens, over all epochs
    # Spent in steps and in waiting for their data: a GPU that is behind holds up whoever asks it for something next.
    seconds: float = 0.0
    preparing: float = 0.0  # of these, in steps of a new shape: kernels are chosen, compiled and recorded
    judged: int = 0  # the step of the last validation
    best: float | None = None
    best_step: int = 0
    stale: int = 0  # validations since the best one
    skipped: int = 0  # steps whose gradients were not finite
    skipped_in_row: int = 0
    ended: str = ""  # why training ended, once it has


@dataclass
class Meter:
    """Sums since the last report, of this process."""

    nll: float = 0.0
    norm: float = 0.0  # of the gradient, the same in all processes, as are counted, tokens and steps
    cells: float = 0.0  # of this process' batches, with padding
    counted: float = 0.0  # what the loss is divided by
    tokens: float = 0.0
    steps: float = 0.0
    seconds: float = 0.0
    waited: float = 0.0  # for data

    def numbers(self) -> list[float]:
        """All sums as plain numbers, in the order of the fields."""
        return [float(value) for value in vars(self).values()]

    def values(self, group: Group) -> dict[str, float]:
        """The means over the interval and all processes."""
        nll, cells = group.sum(self.nll, self.cells)
        loss = nll / self.counted if self.counted else math.nan  # every step was left out
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "gradient_norm": self.norm / max(self.steps, 1),
            "tokens_per_second": self.tokens / max(self.seconds + self.waited, 1e-9),
            "waiting_for_data": self.waited / max(self.seconds + self.waited, 1e-9),
            "padding": 1 - self.tokens / max(cells, 1),
        }
