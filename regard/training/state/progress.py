"""How far a training run is, and what it measured since the last report."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from regard.training.parallel.group import Group


@dataclass
class Progress:
    """How far a training run is. Checkpoints store these fields under these names."""

    step: int = 0
    epoch: int = 0
    consumed: int = 0  # samples of this epoch, over all processes
    tokens: int = 0  # target tokens, over all epochs
    # Seconds spent in steps and in waiting for their data: a GPU that is behind delays whoever needs it next.
    seconds: float = 0.0
    preparing: float = 0.0  # part of `seconds`: steps of a new shape, whose kernels are selected, compiled, captured
    judged: int = 0  # step of the last validation
    best: float | None = None
    best_step: int = 0
    stale: int = 0  # validations since the best one
    skipped: int = 0  # steps whose gradients were not finite
    skipped_in_row: int = 0
    ended: str = ""  # why the training ended, once it has

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Progress:
        """Read the fields back from a checkpoint; raise ValueError for impossible values."""
        progress = cls(**values)
        for field in dataclasses.fields(cls):
            value = getattr(progress, field.name)
            match field.name:
                case "ended":
                    is_valid = isinstance(value, str)
                case "best":
                    is_valid = value is None or isinstance(value, float)
                case "seconds" | "preparing":
                    is_valid = isinstance(value, int | float) and value >= 0
                case _:
                    is_valid = type(value) is int and value >= 0
            if not is_valid:
                raise ValueError(f"{field.name} is {value!r}")
        return progress


@dataclass
class Meter:
    """Sums since the last report, of this process. Checkpoints store them as a list, in the order of the fields."""

    nll: float = 0.0  # negative log-likelihood, without label smoothing
    norm: float = 0.0  # gradient norms; equal in all processes, as are counted, tokens and steps
    cells: float = 0.0  # tokens of this process's batches, padding included
    counted: float = 0.0  # tokens or samples that the loss is divided by
    tokens: float = 0.0
    steps: float = 0.0
    seconds: float = 0.0
    waited: float = 0.0  # seconds of waiting for data

    def to_list(self) -> list[float]:
        """Return all sums as plain numbers, in the order of the fields."""
        return [float(value) for value in vars(self).values()]

    @classmethod
    def from_lists(cls, meters: list[list[float]], group: Group) -> Meter:
        """Return this process's sums; with another number of processes than before, the first one takes all."""
        restored = [cls(**dict(zip(_METER_FIELDS, map(float, values), strict=True))) for values in meters]
        if len(restored) == group.world:
            return restored[group.rank]
        common = restored[0]
        common.nll, common.cells = (
            (math.fsum(meter.nll for meter in restored), math.fsum(meter.cells for meter in restored))
            if group.first
            else (0.0, 0.0)
        )
        return common

    def values(self, group: Group) -> dict[str, float]:
        """Return means over the interval and over all processes."""
        nll, cells = group.sum(self.nll, self.cells)
        loss = nll / self.counted if self.counted else math.nan  # every step was skipped
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "gradient_norm": self.norm / max(self.steps, 1),
            "tokens_per_second": self.tokens / max(self.seconds + self.waited, 1e-9),
            "waiting_for_data": self.waited / max(self.seconds + self.waited, 1e-9),
            "padding": 1 - self.tokens / max(cells, 1),
        }


_METER_FIELDS = [field.name for field in dataclasses.fields(Meter)]
