"""The batch size that fits: lowers training.batch_tokens until a step fits into memory; checks the disk too.

The wish comes from the task if its `training_defaults` choose training.batch_tokens, as those of images, captions,
series and word vectors do; otherwise from regard/training/recipe/defaults.py, which chooses it from the data and the
machine. `fit_batch` measures a step (memory.py) and lowers that choice where memory is short. What the user has set
stays as it is.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from regard.errors import ResourceError, UsageError
from regard.machine import available_memory, free_disk, is_out_of_memory
from regard.recipes.required import required
from regard.tasks.corpora import Corpora
from regard.tasks.objective import recipe_objective
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.budget.memory import (
    StepMemory,
    format_bytes,
    full_batch,
    measuring_step,
    process_growth,
    size_of,
    step_memory,
)
from regard.training.checkpoint.files import checkpoint_steps, disk_full_reason
from regard.training.recipe.defaults import Choice
from regard.training.recipe.schema import Recipe

SHARE_FOR_CHOICES = 0.8  # of the free memory, for a chosen batch size: a forecast may be wrong by a quarter
SHARE_TO_WARN = 0.95  # of the free memory; settings that take more get a warning
TRIAL_DEVICES = ("cuda",)  # where running out of memory raises an error; elsewhere the system kills the process
BATCH, ACCUMULATE = "training.batch_tokens", "training.accumulate"


@dataclass(frozen=True)
class MemoryBudget:
    """The free memory, and what steps with batches of different sizes take of it."""

    recipe: Recipe
    step: StepMemory
    free: int
    device: torch.device
    world: int = 1  # number of processes; each takes its share of a batch

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The recipe's (batch_tokens, accumulate), then half the tokens twice as often, down to one longest row."""
        training = self.recipe.training
        sizes = [(required(training.batch_tokens), required(training.accumulate))]
        while sizes[-1][0] // 2 >= self.step.length:
            sizes.append((sizes[-1][0] // 2, sizes[-1][1] * 2))
        return sizes

    def needs(self, batch_tokens: int, accumulate: int) -> float:
        """Return the bytes that training takes in addition to the model, in the worst case: all rows are the longest.

        Processes on CPUs are assumed to share one machine's memory. Each process has a GPU of its own.
        """
        training = self.recipe.training
        shards = self.world if training.parallel == "fsdp" else 1
        rows = self.step.rows(batch_tokens, self.world)
        peak = self.step.peak(rows, accumulate=accumulate, shards=shards)
        if training.capture and self.device.type == "cuda":
            peak += self.step.activations(rows)  # captured steps have memory of their own
        growth = process_growth(peak - self.step.weights, self.device)
        return growth if self.device.type == "cuda" else growth * self.world

    def fitting(self) -> tuple[int, int] | None:
        """Return the largest (batch_tokens, accumulate) that fits, None if none does."""
        return next((size for size in self.sizes if self.needs(*size) <= SHARE_FOR_CHOICES * self.free), None)

    def advice(self) -> str:
        """Suggest settings that fit."""
        if (size := self.fitting()) is not None:
            # Where the rows of a batch are compared, a smaller batch is another task.
            same = "" if self.recipe.task.compares_rows else ", and learns the same"
            return f"--set {BATCH}={size[0]} --set {ACCUMULATE}={size[1]} fits{same}"
        length_key = self.recipe.task.length_key
        return f"not even one row of {self.step.length} tokens fits: use a smaller model, or lower {length_key}"

    def describe(self, size: tuple[int, int]) -> str:
        """Give the numbers behind a decision."""
        return f"steps take about {format_bytes(self.needs(*size))} of {format_bytes(self.free)} free"


@dataclass(frozen=True)
class Fit:
    """A recipe whose batches fit, its choices, and a warning if they do not fit after all."""

    recipe: Recipe
    choices: list[Choice]
    warning: str | None = None


def fit_batch(
    recipe: Recipe,
    choices: Sequence[Choice],
    model: nn.Module,
    corpora: Corpora,
    tokenizers: tuple[Tokenizer, Tokenizer],
    *,
    device: torch.device,
    world: int = 1,
) -> Fit:
    """Lower a chosen training.batch_tokens until steps of the longest rows fit, and raise a chosen accumulate as much.

    Settings of the user, which are not among the choices, stay; they only cause a warning. The model is on its device.
    It stays as it is, and so do the random generators.
    """
    length = recipe.task.longest_row(recipe, corpora, tokenizers)
    step = step_memory(model, recipe_objective(model, recipe.training), recipe.training, length=length, device=device)
    budget = MemoryBudget(recipe, step, available_memory(device), device, world)
    first = budget.sizes[0]
    if BATCH not in {choice.key for choice in choices}:
        text = f"{BATCH} = {first[0]} will hardly fit: {budget.describe(first)}; {budget.advice()}"
        is_tight = budget.needs(*first) > SHARE_TO_WARN * budget.free
        return Fit(recipe, list(choices), text if is_tight else None)
    size = budget.fitting() or budget.sizes[-1]
    if device.type in TRIAL_DEVICES and world == 1:
        size = first_that_runs(
            budget.sizes[budget.sizes.index(size) :],
            lambda size: trial_step(model, recipe, rows=step.rows(size[0]), length=length, device=device),
        )
    warning = None if budget.fitting() else f"training will hardly fit: {budget.describe(size)}; {budget.advice()}"
    return _with_size(budget, choices, size, warning)


def _with_size(budget: MemoryBudget, choices: Sequence[Choice], size: tuple[int, int], warning: str | None) -> Fit:
    """Return the recipe and its choices with batches of that size."""
    recipe, wished_tokens = budget.recipe, budget.sizes[0][0]
    reasons = {choice.key: choice.why for choice in choices}
    why = reasons[BATCH] if size[0] == wished_tokens else f"{wished_tokens} would not fit"
    changed = {BATCH: Choice(BATCH, size[0], f"{why}; {budget.describe(size)}")}
    training = dataclasses.replace(recipe.training, batch_tokens=size[0])
    if ACCUMULATE in reasons and size[0] != wished_tokens:
        changed[ACCUMULATE] = Choice(ACCUMULATE, size[1], f"a step still learns from {wished_tokens} tokens")
        training = dataclasses.replace(training, accumulate=size[1])
    new_choices = [changed.get(choice.key, choice) for choice in choices]
    return Fit(dataclasses.replace(recipe, training=training), new_choices, warning)


def first_that_runs(sizes: Sequence[tuple[int, int]], run: Callable[[tuple[int, int]], None]) -> tuple[int, int]:
    """Return the first of the sizes that does not run out of memory; the last one is not tried."""
    for size in sizes[:-1]:
        try:
            run(size)
            return size
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        finally:
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    return sizes[-1]


def trial_step(model: nn.Module, recipe: Recipe, *, rows: int, length: int, device: torch.device) -> None:
    """Allocate everything that a step of such a batch needs, on a copy of the model."""
    training = recipe.training
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        step = measuring_step(model, recipe_objective(model, training), training, device)
        moments = [torch.empty_like(weight) for weight in step.state.trainable for _ in range(3 if training.ema else 2)]
        batch = full_batch(model, rows, length, device)
        for _ in range(2):  # during the second pass, the gradients of the first exist too
            (step.loss(batch).total / batch.tokens).backward()
    del moments


def disk_lines(recipe: Recipe, model: nn.Module, folder: Path) -> list[str]:
    """Return a warning if the disk lacks room for the checkpoints; raise UsageError if the folder is not writable."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        error_class = UsageError if disk_full_reason(error) is None else ResourceError
        raise error_class(f"cannot write to {existing}: {error.strerror}; choose another --out") from error
    training, weights = recipe.training, size_of(model.parameters())
    checkpoint = weights * (4 if training.ema else 3)  # with Adam's two moments and the moving average
    count = max(training.keep, training.average)
    already_there = min(count, len(checkpoint_steps(folder / "training")))
    needed = (count + 1 - already_there) * checkpoint + 2 * weights  # one more of each while it is being written
    free = free_disk(existing)
    if needed <= free:
        return []
    return [
        f"warning: the disk of {folder} has {format_bytes(free)} free, but {count} checkpoints, one more while it is "
        f"written, and the model will take {format_bytes(needed)}: free some space, lower training.keep, or choose "
        f"another --out"
    ]
