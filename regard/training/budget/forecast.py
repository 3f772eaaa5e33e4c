"""The cost of a training run before it starts: memory and time, from a short trial run with a copy of the model.

print("\\n".join(forecast(ready).lines()))    # `ready` comes from regard.training.run.prepare
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.errors import ResourceError
from regard.machine import available_memory, is_out_of_memory, memory_in_use, peak_memory, reset_peak_memory
from regard.recipes.required import required
from regard.tasks.objective import recipe_objective
from regard.training.budget.fit import SHARE_TO_WARN, MemoryBudget
from regard.training.budget.memory import StepMemory, format_bytes, step_memory
from regard.training.budget.trial_run import BatchSample, TrialRun
from regard.training.loop.report import duration
from regard.training.prepared import Prepared
from regard.training.recipe.schema import TrainingRecipe
from regard.training.signals import Interrupted, StopFlag

THOROUGH_SECONDS, BRIEF_SECONDS = 2.0, 0.5  # for each part of a trial run
SHORT_TRAINING = 200  # steps; a shorter training is over before a forecast of its time would help
SHARE_OF_BEST = 0.75  # of the validations find a better model than before, which is then saved
LATER_GROWTH = 1.15  # a process on a CPU grows by this factor after the trial run, by benchmarks/train/forecast.py


@dataclass(frozen=True)
class Counts:
    """How often the rest of a training run does what."""

    steps: int
    validations: int
    saves: int


def counts_of(training: TrainingRecipe, start: int = 0) -> Counts:
    """Count from step `start` to the last one, where the model is always validated and saved."""
    steps = required(training.steps)

    def times(every: int) -> int:
        return max(0, -(-steps // every) - start // every)

    saves = times(required(training.save_every)) + (start == 0)  # the first one is before the first step
    averages = training.average > 1  # the average of the checkpoints is validated at the end, too
    return Counts(max(0, steps - start), times(required(training.validate_every)) + averages, saves)


@dataclass(frozen=True)
class Seconds:
    """How long a training run takes, by what it does."""

    step: float  # one step
    tokens: float  # of one step
    steps: float  # all steps; the following are totals, too
    compiling: float
    data: float
    validations: float
    saves: float

    @property
    def total(self) -> float:
        return self.steps + self.compiling + self.data + self.validations + self.saves


@dataclass(frozen=True)
class RunForecast:
    """Bytes and seconds of a training run. On a CPU bytes count the whole process, on a GPU its tensors."""

    parameters: int
    before: int  # bytes in use now, weights included
    step: StepMemory
    activations: float
    peak: float
    room: int  # bytes that the process may use
    fits: bool  # False: a trial step ran out of memory
    advice: str  # what to do if it does not fit
    counts: Counts
    seconds: Seconds | None  # None without a trial run
    world: int = 1  # number of processes; bytes are per process

    @property
    def warning(self) -> str | None:
        """What to do if memory is short; None if it is not."""
        if self.fits and self.peak <= SHARE_TO_WARN * self.room:
            return None
        verdict = "will hardly fit" if self.fits and self.peak <= self.room else "will not fit"
        return f"training {verdict} into memory: {self.advice}"

    def lines(self) -> list[str]:
        """Describe memory and time, one line each."""
        parts: dict[str, float] = {
            "before training": self.before,
            "gradients": self.step.gradients,
            "optimizer": self.step.optimizer,
        }
        parts |= {"activations": self.activations}
        listed = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items())
        each = " for each process" if self.world > 1 else ""
        lines = [f"memory: about {format_bytes(self.peak)} at the peak, of {format_bytes(self.room)}{each} ({listed})"]
        if (spent := self.seconds) is not None:
            counts, speed = self.counts, f"{spent.tokens / spent.step:,.0f} tokens a second"
            lines.append(
                f"time: about {duration(spent.total)}: {duration(spent.steps)} for {counts.steps:,} steps "
                f"({spent.step:.3g} s each, {speed})"
                + (f", {duration(spent.compiling)} to compile them" if spent.compiling else "")
                + f", {duration(spent.data)} for data, {duration(spent.validations)} for {counts.validations:,} "
                f"validations, {duration(spent.saves)} for {counts.saves:,} saves"
            )
        return [*lines, f"warning: {self.warning}"] if self.warning else lines


def forecast_lines(
    ready: Prepared, *, start: int = 0, epoch: int = 0, world: int = 1, stop: StopFlag | None = None
) -> list[str]:
    """Describe memory and time when a training run begins at step `start`; this takes a few seconds.

    The time is left out for short trainings, and for compiled steps and several processes, where a trial would take
    longer. Return nothing if a signal arrives. `epoch` is the current one, whose samples are drawn already.
    """
    training = ready.recipe.training
    if world > 1 and training.parallel == "fsdp":
        return []  # no process has the whole model
    use_trial = world == 1 and not training.compile and required(training.steps) - start >= SHORT_TRAINING
    try:
        seconds = BRIEF_SECONDS if use_trial else 0.0
        return forecast(ready, start=start, epoch=epoch, world=world, seconds=seconds, stop=stop).lines()
    except Interrupted:
        return []


def forecast(
    ready: Prepared,
    *,
    start: int = 0,
    epoch: int = 0,
    world: int = 1,
    seconds: float = THOROUGH_SECONDS,
    stop: StopFlag | None = None,
) -> RunForecast:
    """Forecast the training from step `start` on; try each part for about `seconds`, with 0 only count its tensors.

    The trial uses a copy, so the model and the random generators stay as they are.
    """
    recipe, model, device = ready.recipe, ready.model, ready.device
    training, counts = recipe.training, counts_of(recipe.training, start)
    length = recipe.task.longest_row(recipe, ready.corpora, ready.tokenizers)
    before, free = memory_in_use(device), available_memory(device)
    step = step_memory(model, recipe_objective(model, training), training, length=length, device=device)
    budget = MemoryBudget(recipe, step, free, device, world)
    sharing = 1 if device.type == "cuda" else world  # processes that share the free memory
    peak, room = before + budget.needs(*budget.sizes[0]) / sharing, before + free // sharing
    fits, spent = True, None
    # When main memory runs out, the system kills the process, so a step that may not fit is not tried on a CPU.
    if seconds and (device.type == "cuda" or peak + step.weights <= room):
        try:
            spent, measured = try_training(ready, step, counts, epoch=epoch, seconds=seconds, stop=stop)
            growth = 1 if device.type == "cuda" else LATER_GROWTH
            peak = before + (measured - before) * growth if measured else peak
        except (ResourceError, RuntimeError, MemoryError) as error:
            if not isinstance(error, ResourceError) and not is_out_of_memory(error):
                raise
            peak, fits = max(peak, room), False
    return RunForecast(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        before=before,
        step=step,
        activations=step.activations(step.rows(required(training.batch_tokens), world)),
        peak=peak,
        room=room,
        fits=fits,
        advice=budget.advice(),
        counts=counts,
        seconds=spent,
        world=world,
    )


def try_training(
    ready: Prepared, step: StepMemory, counts: Counts, *, epoch: int, seconds: float, stop: StopFlag | None
) -> tuple[Seconds, int]:
    """Return the total seconds of each part of the training, and the peak memory of the trial (0 if unknown)."""
    training, device = ready.recipe.training, ready.device
    reset_peak_memory(device)
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        tempfile.TemporaryDirectory() as folder,
    ):
        sample = BatchSample(ready.train, epoch)
        trial = TrialRun(ready, sample, seconds=seconds, stop=stop)
        step_seconds, compiling = trial.steps()
        validation, alignment_head = trial.validation(Path(folder))
        save_seconds_per_byte = trial.save(Path(folder))
        peak = max(0, peak_memory(device) - step.weights)  # the training itself needs no copy of the weights
    del trial
    if device.type == "cuda":
        torch.cuda.empty_cache()
    batches = counts.steps * required(training.accumulate)
    collating = batches * sample.seconds_a_batch
    if device.type == "cuda":  # a thread does it during the steps
        collating = max(0.0, collating - counts.steps * step_seconds)
    checkpoint = step.weights + step.optimizer
    spent = Seconds(
        step=step_seconds,
        tokens=sample.tokens_a_batch * required(training.accumulate),
        steps=counts.steps * step_seconds,
        compiling=compiling,
        data=collating + batches / sample.count * sample.seconds_an_epoch,
        validations=counts.validations * (validation + SHARE_OF_BEST * alignment_head),
        saves=save_seconds_per_byte * (counts.saves * checkpoint + SHARE_OF_BEST * counts.validations * step.weights),
    )
    return spent, peak
