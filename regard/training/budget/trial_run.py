"""A training in small: some real steps, a validation on a sample, a file saved, each with its seconds.

All of it happens to a copy of the model; the model itself stays as it is.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.files import fingerprint, write_synced
from regard.tasks.validation import Validator
from regard.text.batches.batch import Batch
from regard.training.budget.memory import recipe_loss
from regard.training.loop.loop import Loop, needed
from regard.training.loop.signals import StopFlag
from regard.training.loop.torch_compile import uncompiled
from regard.training.run.prepare import Data

if TYPE_CHECKING:
    from regard.training.run.training_run import Prepared

LARGEST = 2  # batches of the longest rows: one of them may be the rest of an epoch
SPREAD = 8  # batches from long rows to short ones, whose mean is the epoch's
FEWEST, MOST = 3, 32  # steps that are timed
SAMPLE = 8 << 20  # bytes that stand for a checkpoint


class Few:
    """Some batches that stand for those of an epoch."""

    def __init__(self, data: Data, epoch: int = 0) -> None:
        began = time.perf_counter()
        plan = data.plan(epoch)
        self.seconds_an_epoch = time.perf_counter() - began  # to draw and sort its samples
        self.count = len(plan)
        by_rows = sorted(plan, key=len)  # all are about as full, so those of few rows have long ones
        began = time.perf_counter()
        self.largest = [data.collate(ids, epoch) for ids in by_rows[:LARGEST]]
        self.spread = [data.collate(by_rows[(2 * i + 1) * len(plan) // (2 * SPREAD)], epoch) for i in range(SPREAD)]
        self.seconds_a_batch = (time.perf_counter() - began) / len(self.largest + self.spread)
        self.tokens_a_batch = sum(batch.tokens for batch in self.spread) / SPREAD

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """What a validation asks for."""
        return iter(self.spread)


class Rehearsal:
    """A copy of a training; each part of it is tried for about so many seconds."""

    def __init__(self, ready: Prepared, few: Few, *, seconds: float, stop: StopFlag | None = None) -> None:
        self.ready, self.few, self.seconds, self.stop = ready, few, seconds, stop or StopFlag()
        self.training, self.device = ready.recipe.training, ready.device
        self.model = copy.deepcopy(ready.model)
        loss = recipe_loss(self.model, self.training)
        self.loop = Loop(self.model, ready.train, loss, self.training, device=self.device)

    def timed(self, work: Callable[..., object], *arguments: Any) -> float:
        """Seconds until it is done, on the device too. A signal that came before is obeyed."""
        self.stop.check()
        began = time.perf_counter()
        work(*arguments)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - began

    def steps(self) -> tuple[float, float]:
        """Mean seconds of a step, over batches of all lengths, and what compiling took before.

        The longest batches come first, for they take the most memory.
        """
        accumulate = needed(self.training.accumulate)
        spread = [batch.to(self.device) for batch in self.few.spread]
        new = [batch.to(self.device) for batch in self.few.largest]
        if self.device.type == "cuda" or self.training.compile:
            new += spread  # the first batch of a shape chooses kernels, or has them compiled
        if self.training.capture:
            new += spread  # and the second is recorded
        first = [self.timed(self.loop.train_step, [batch] * accumulate) for batch in new]
        taken: list[float] = []
        while len(taken) < FEWEST or (len(taken) < MOST and sum(taken) < self.seconds):
            at = 3 * len(taken)  # long ones and short ones in turn; in the end all have had theirs
            taken.append(self.timed(self.loop.train_step, [spread[(at + i) % SPREAD] for i in range(accumulate)]))
        mean = sum(taken) / len(taken)
        return mean, max(0.0, sum(first) - len(first) * mean) if self.training.fixed_shapes else 0.0

    def validation(self, folder: Path) -> tuple[float, float]:
        """Seconds of a validation, and of choosing the alignment head where it is the best one so far."""
        with uncompiled(self.training.compile):
            return self._validation(Few(self.ready.validation), folder)

    def _validation(self, few: Few, folder: Path) -> tuple[float, float]:
        validator = self.validator(few, folder)
        self.model.eval()
        with torch.inference_mode():
            seconds = self.timed(validator.likelihood) * few.count / SPREAD
        judging, choosing_head = validator.rehearse(self.timed, seconds=self.seconds)
        return seconds + judging, choosing_head

    def validator(self, few: Few, folder: Path) -> Validator:
        """One that judges the copy by few batches. A validation measures the plain likelihood."""
        ready, plain = self.ready, dataclasses.replace(self.training, r_drop=0.0)
        return ready.recipe.task.validator(
            self.model,
            ready.recipe,
            ready.corpora,
            few,
            ready.tokenizers,
            recipe_loss(self.model, plain),
            folder=folder,
            device=self.device,
            info={},
            stop=self.stop,
        )

    def save(self, folder: Path) -> float:
        """Seconds a byte: to write it and wait for the disk, and to read it for its checksum and once more after."""
        path, content = folder / "sample", os.urandom(SAMPLE)
        return (self.timed(write_synced, path, content) + 2 * self.timed(fingerprint, path)) / SAMPLE
