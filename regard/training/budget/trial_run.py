"""A short trial of a training run, timed: some real steps, a validation on a sample, a file saved.

The trial uses a copy of the model, and leaves the model itself as it is.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from regard.recipes.required import required
from regard.system.files import fingerprint, write_synced
from regard.tasks.objective import recipe_objective
from regard.tasks.task import Data
from regard.tasks.validation import Validator
from regard.text.batches.batch import Batch
from regard.training.loop.torch_compile import uncompiled
from regard.training.loop.train_step import TrainStep
from regard.training.prepared import Prepared
from regard.training.signals import StopFlag
from regard.training.state.train_state import TrainState

LARGEST_BATCHES = 2  # batches of the longest rows; one of them may be the incomplete last batch of an epoch
SPREAD_BATCHES = 8  # batches from long rows to short ones; their mean stands for the epoch's
MIN_STEPS, MAX_STEPS = 3, 32  # steps that are timed
SAMPLE_BYTES = 8 << 20  # size of the file that stands for a checkpoint


class BatchSample:
    """A few batches that stand for those of an epoch."""

    def __init__(self, data: Data, epoch: int = 0) -> None:
        started = time.perf_counter()
        plan = data.plan(epoch)
        self.seconds_an_epoch = time.perf_counter() - started  # to draw and sort an epoch's samples
        self.count = len(plan)
        by_rows = sorted(plan, key=len)  # batches are about equally full, so those with few rows have long ones
        middles = [(2 * i + 1) * len(plan) // (2 * SPREAD_BATCHES) for i in range(SPREAD_BATCHES)]
        started = time.perf_counter()
        self.largest = [data.collate(ids, epoch) for ids in by_rows[:LARGEST_BATCHES]]
        self.spread = [data.collate(by_rows[middle], epoch) for middle in middles]
        self.seconds_a_batch = (time.perf_counter() - started) / len(self.largest + self.spread)
        self.tokens_a_batch = sum(batch.tokens for batch in self.spread) / SPREAD_BATCHES

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the sampled batches; a validation asks for them."""
        return iter(self.spread)


class TrialRun:
    """A copy of a training run; each part of it is timed for about `seconds`."""

    def __init__(self, ready: Prepared, sample: BatchSample, *, seconds: float, stop: StopFlag | None = None) -> None:
        self.ready, self.sample, self.seconds, self.stop = ready, sample, seconds, stop or StopFlag()
        self.training, self.device = ready.recipe.training, ready.device
        self.model = copy.deepcopy(ready.model)
        self.step = TrainStep(
            TrainState(self.model, self.training, device=self.device),
            recipe_objective(self.model, self.training),
            self.training,
            loss_unit=ready.recipe.task.loss_unit,
            one_shape=ready.train.one_shape,
            update=ready.recipe.task.update(self.model, self.training),
        )

    def time(self, work: Callable[..., object], *arguments: Any) -> float:
        """Return the seconds until the work is done, also on the device; raise Interrupted if a signal has arrived."""
        self.stop.check()
        started = time.perf_counter()
        work(*arguments)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - started

    def steps(self) -> tuple[float, float]:
        """Return the mean seconds of a step over batches of all lengths, and the seconds of compiling before.

        The longest batches come first, because they take the most memory.
        """
        accumulate = required(self.training.accumulate)
        spread = [batch.to(self.device) for batch in self.sample.spread]
        warmup = [batch.to(self.device) for batch in self.sample.largest]
        if self.device.type == "cuda" or self.training.compile:
            warmup += spread  # the first batch of a shape selects or compiles kernels
        if self.training.capture:
            warmup += spread  # the second one is captured
        warmup_seconds = [self.time(self.step, [batch] * accumulate) for batch in warmup]
        step_seconds: list[float] = []
        while len(step_seconds) < MIN_STEPS or (len(step_seconds) < MAX_STEPS and sum(step_seconds) < self.seconds):
            first = 3 * len(step_seconds)  # alternates between long and short batches, and covers all of them
            micro_batches = [spread[(first + i) % SPREAD_BATCHES] for i in range(accumulate)]
            step_seconds.append(self.time(self.step, micro_batches))
        mean = sum(step_seconds) / len(step_seconds)
        compiling = max(0.0, sum(warmup_seconds) - len(warmup_seconds) * mean)
        return mean, compiling if self.training.fixed_shapes else 0.0

    def validation(self, folder: Path) -> tuple[float, float]:
        """Return the seconds of a validation, and of choosing the alignment head when it is the best one so far."""
        with uncompiled(self.training.compile):
            return self._validation(BatchSample(self.ready.validation), folder)

    def _validation(self, sample: BatchSample, folder: Path) -> tuple[float, float]:
        validator = self.validator(sample, folder)
        self.model.eval()
        with torch.inference_mode():
            seconds = self.time(validator.likelihood) * sample.count / SPREAD_BATCHES
        judging, choosing_head = validator.rehearse(self.time, seconds=self.seconds)
        return seconds + judging, choosing_head

    def validator(self, sample: BatchSample, folder: Path) -> Validator:
        """Return a validator of the copy that uses the sampled batches. Validation measures the plain likelihood."""
        ready, plain = self.ready, dataclasses.replace(self.training, r_drop=0.0)
        return ready.recipe.task.validator(
            self.model,
            ready.recipe,
            ready.corpora,
            sample,
            ready.tokenizers,
            recipe_objective(self.model, plain),
            folder=folder,
            device=self.device,
            info={},
            stop=self.stop,
        )

    def save(self, folder: Path) -> float:
        """Return the seconds per byte to write and sync a file, and to read it twice for its checksum."""
        path, content = folder / "sample", os.urandom(SAMPLE_BYTES)
        return (self.time(write_synced, path, content) + 2 * self.time(fingerprint, path)) / SAMPLE_BYTES
