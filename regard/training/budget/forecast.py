"""What a training will cost, before it starts: memory and time, rehearsed with a copy of the model.

print("\\n".join(forecast(ready).lines()))    # `ready` is what regard.training.run.training_run.prepare gives
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from regard.errors import ResourceError
from regard.machine import (
    is_out_of_memory,
    memory_in_use as held,
    peak_memory as peak_held,
    reset_peak_memory as forget_peak,
)
from regard.training.budget.fit import CROWDED, Space, longest_row
from regard.training.budget.memory import (
    StepMemory,
    as_text,
    recipe_loss,
    room,
    step_memory,
)
from regard.training.budget.trial_run import Few, Rehearsal
from regard.training.loop.loop import needed
from regard.training.loop.report import duration
from regard.training.loop.signals import Interrupted, StopFlag
from regard.training.recipe.schema import TrainingRecipe

if TYPE_CHECKING:
    from regard.training.run.training_run import Prepared

THOROUGH, BRIEF = 2.0, 0.5  # seconds for each part of a rehearsal
SHORT = 200  # steps of a training that is over before a forecast of its time would help
BEST = 0.75  # of the validations, that find a better model than before, which is then kept
LATER = 1.15  # times as much as in the rehearsal a process on a CPU grows later, by benchmarks/forecast.py


@dataclass(frozen=True)
class Counts:
    """How often what is done in the rest of a training."""

    steps: int
    validations: int
    saves: int


def counts_of(training: TrainingRecipe, start: int = 0) -> Counts:
    """From step `start` to the last one, at which the model is validated and saved whatever the intervals."""
    steps = needed(training.steps)

    def times(every: int) -> int:
        return max(0, -(-steps // every) - start // every)

    saves = times(needed(training.save_every)) + (start == 0)  # the first one before the first step
    mean = training.average > 1  # is judged at the end, too
    return Counts(max(0, steps - start), times(needed(training.validate_every)) + mean, saves)


@dataclass(frozen=True)
class Seconds:
    """How long a training takes, by what it does."""

    step: float  # a single one
    tokens: float  # that it learns from
    steps: float  # all of them, as is what follows
    compiling: float
    data: float
    validations: float
    saves: float

    @property
    def total(self) -> float:
        return self.steps + self.compiling + self.data + self.validations + self.saves


@dataclass(frozen=True)
class Forecast:
    """Bytes and seconds of a training. On a CPU the bytes are the whole process', on a GPU its tensors'."""

    parameters: int
    before: int  # bytes in use now, with the weights
    step: StepMemory
    activations: float
    peak: float
    room: int  # that the process may use
    fits: bool  # False: a step was tried, and memory ran out
    advice: str  # what to do where it does not fit
    counts: Counts
    seconds: Seconds | None  # None where nothing was tried
    world: int = 1  # processes; the bytes are those of each

    @property
    def warning(self) -> str | None:
        """What to do when the memory will not do."""
        if self.fits and self.peak <= CROWDED * self.room:
            return None
        verdict = "will hardly fit" if self.fits and self.peak <= self.room else "will not fit"
        return f"training {verdict} into memory: {self.advice}"

    def lines(self) -> list[str]:
        """Memory and time for people, a line each."""
        parts = {"before training": self.before, "gradients": self.step.gradients, "optimizer": self.step.optimizer}
        told = ", ".join(f"{name} {as_text(size)}" for name, size in {**parts, "activations": self.activations}.items())
        each = " for each process" if self.world > 1 else ""
        lines = [f"memory: about {as_text(self.peak)} at the peak, of {as_text(self.room)}{each} ({told})"]
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
    """Memory and time for the beginning of a training, from step `start` on; it takes a few seconds.

    The time is left out where it would take longer: for compiled steps and for several processes. A short training
    needs none. A signal ends it, and nothing is told. `epoch` is the one at hand, whose samples are drawn already.
    """
    training = ready.recipe.training
    if world > 1 and training.parallel == "fsdp":
        return []  # no process has the whole model
    brief = world == 1 and not training.compile and needed(training.steps) - start >= SHORT
    try:
        seconds = BRIEF if brief else 0.0
        return forecast(ready, start=start, epoch=epoch, world=world, seconds=seconds, stop=stop).lines()
    except Interrupted:
        return []


def forecast(
    ready: Prepared,
    *,
    start: int = 0,
    epoch: int = 0,
    world: int = 1,
    seconds: float = THOROUGH,
    stop: StopFlag | None = None,
) -> Forecast:
    """Rehearse the training from step `start` on, each part for about so many seconds; 0: count its tensors only.

    A copy rehearses, so the model is left as it is, and so are the random numbers to come.
    """
    recipe, model, device = ready.recipe, ready.model, ready.device
    training, counts = recipe.training, counts_of(recipe.training, start)
    length = longest_row(recipe, ready.corpora, ready.tokenizers)
    before, free = held(device), room(device) - held(device)
    step = step_memory(model, recipe_loss(model, training), training, length=length, device=device)
    space = Space(recipe, step, free, device, world)
    sharing = 1 if device.type == "cuda" else world  # processes that share what is free
    peak, whole = before + space.needs(*space.sizes[0]) / sharing, before + free // sharing
    fits, spent = True, None
    # Where a CPU's memory runs out the system ends the process, so what may not fit is not tried.
    if seconds and (device.type == "cuda" or peak + step.weights <= whole):
        try:
            spent, most = rehearse(ready, step, counts, epoch=epoch, seconds=seconds, stop=stop)
            peak = before + (most - before) * (1 if device.type == "cuda" else LATER) if most else peak
        except (ResourceError, RuntimeError, MemoryError) as error:
            if not isinstance(error, ResourceError) and not is_out_of_memory(error):
                raise
            peak, fits = max(peak, whole), False
    return Forecast(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        before=before,
        step=step,
        activations=step.activations(step.rows(needed(training.batch_tokens), world)),
        peak=peak,
        room=whole,
        fits=fits,
        advice=space.advice(),
        counts=counts,
        seconds=spent,
        world=world,
    )


def rehearse(
    ready: Prepared, step: StepMemory, counts: Counts, *, epoch: int, seconds: float, stop: StopFlag | None
) -> tuple[Seconds, int]:
    """What the training's parts will take in all, and the most memory held meanwhile; 0 where that is not known."""
    training, device = ready.recipe.training, ready.device
    forget_peak(device)
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        tempfile.TemporaryDirectory() as folder,
    ):
        few = Few(ready.train, epoch)
        rehearsal = Rehearsal(ready, few, seconds=seconds, stop=stop)
        each, compiling = rehearsal.steps()
        validation, choice = rehearsal.validation(Path(folder))
        byte = rehearsal.save(Path(folder))
        most = max(0, peak_held(device) - step.weights)  # the copy's will not be there
    del rehearsal
    if device.type == "cuda":
        torch.cuda.empty_cache()
    batches = counts.steps * needed(training.accumulate)
    making = batches * few.seconds_a_batch
    if device.type == "cuda":  # a thread makes them meanwhile
        making = max(0.0, making - counts.steps * each)
    checkpoint = step.weights + step.optimizer
    spent = Seconds(
        step=each,
        tokens=few.tokens_a_batch * needed(training.accumulate),
        steps=counts.steps * each,
        compiling=compiling,
        data=making + batches / few.count * few.seconds_an_epoch,
        validations=counts.validations * (validation + BEST * choice),
        saves=byte * (counts.saves * checkpoint + BEST * counts.validations * step.weights),
    )
    return spent, most
