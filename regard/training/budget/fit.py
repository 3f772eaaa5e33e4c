"""Does it fit? Batches that memory has room for, and checkpoints that the disk has room for."""

from __future__ import annotations

import copy
import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from regard.errors import ResourceError, UsageError
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.budget.memory import (
    StepMemory,
    as_text,
    full_batch,
    grown,
    held,
    recipe_loss,
    room,
    size_of,
    step_memory,
)
from regard.training.budget.out_of_memory import is_out_of_memory
from regard.training.checkpoint.files import checkpoint_steps, disk_is_full
from regard.training.loop.loop import needed
from regard.training.loop.optimizer import freeze
from regard.training.loop.train_step import autocast
from regard.training.recipe.defaults import Choice
from regard.training.recipe.schema import Recipe
from regard.training.run.prepare import Corpora

SHARE = 0.8  # of the free memory, for what is chosen: a forecast may be wrong by a quarter
CROWDED = 0.95  # from here on what is given is warned of
TRIED = ("cuda",)  # where a step that does not fit is an error; elsewhere the system ends the process
BATCH, ACCUMULATE = "training.batch_tokens", "training.accumulate"


@dataclass(frozen=True)
class Space:
    """What is free for training, and what steps with batches of other sizes would take of it."""

    recipe: Recipe
    step: StepMemory
    free: int
    device: torch.device
    world: int = 1  # processes, each with its share of a batch

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The recipe's batch_tokens and accumulate, then smaller batches and more of them, down to one longest row."""
        training = self.recipe.training
        sizes = [(needed(training.batch_tokens), needed(training.accumulate))]
        while sizes[-1][0] // 2 >= self.step.length:
            sizes.append((sizes[-1][0] // 2, sizes[-1][1] * 2))
        return sizes

    def needs(self, batch_tokens: int, accumulate: int) -> float:
        """Bytes that training with such batches takes, beside the model that is there; at worst, of the longest rows.

        Processes on CPUs are taken to share one machine's memory. GPUs are each one's own.
        """
        training = self.recipe.training
        parts = self.world if training.parallel == "fsdp" else 1
        rows = self.step.rows(batch_tokens, self.world)
        peak = self.step.peak(rows, accumulate=accumulate, parts=parts)
        if training.capture and self.device.type == "cuda":
            peak += self.step.activations(rows)  # recorded steps have memory of their own
        more = grown(peak - self.step.weights, self.device)
        return more if self.device.type == "cuda" else more * self.world

    def fitting(self) -> tuple[int, int] | None:
        """The largest batch, and how many of them a step, that fit."""
        return next((size for size in self.sizes if self.needs(*size) <= SHARE * self.free), None)

    def advice(self) -> str:
        """Settings that would fit, for those that do not."""
        if (found := self.fitting()) is not None:
            same = "" if self.recipe.task.compares_rows else ", and learns the same"
            return f"--set {BATCH}={found[0]} --set {ACCUMULATE}={found[1]} fits{same}"
        length_key = self.recipe.task.length_key
        return f"not even one row of {self.step.length} tokens fits: take a smaller model, or lower {length_key}"

    def told(self, size: tuple[int, int]) -> str:
        """The numbers behind a decision."""
        return f"steps take about {as_text(self.needs(*size))} of {as_text(self.free)} free"


@dataclass(frozen=True)
class Fit:
    """A recipe whose batches fit, the choices that it rests on now, and a warning where they do not fit."""

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

    What was given, and so is not among the choices, stays: it is only warned of. The model lies on its device. It stays
    as it is, and so do the random numbers to come.
    """
    length = longest_row(recipe, corpora, tokenizers)
    step = step_memory(model, recipe_loss(model, recipe.training), recipe.training, length=length, device=device)
    space = Space(recipe, step, room(device) - held(device), device, world)
    first = space.sizes[0]
    if BATCH not in {choice.key for choice in choices}:
        crowded = space.needs(*first) > CROWDED * space.free
        told = f"{BATCH} = {first[0]} will hardly fit: {space.told(first)}; {space.advice()}"
        return Fit(recipe, list(choices), told if crowded else None)
    size = space.fitting() or space.sizes[-1]
    if device.type in TRIED and world == 1:
        size = first_that_runs(
            space.sizes[space.sizes.index(size) :],
            lambda size: trial_step(model, recipe, rows=step.rows(size[0]), length=length, device=device),
        )
    warning = None if space.fitting() else f"training will hardly fit: {space.told(size)}; {space.advice()}"
    return _with_size(space, choices, size, warning)


def _with_size(space: Space, choices: Sequence[Choice], size: tuple[int, int], warning: str | None) -> Fit:
    """The recipe and its choices with batches of that size, where they were chosen."""
    recipe, wished = space.recipe, space.sizes[0][0]
    reasons = {choice.key: choice.why for choice in choices}
    why = reasons[BATCH] if size[0] == wished else f"{wished} would not fit"
    changed = {BATCH: Choice(BATCH, size[0], f"{why}; {space.told(size)}")}
    training = dataclasses.replace(recipe.training, batch_tokens=size[0])
    if ACCUMULATE in reasons and size[0] != wished:
        changed[ACCUMULATE] = Choice(ACCUMULATE, size[1], f"a step learns from {wished} tokens nevertheless")
        training = dataclasses.replace(training, accumulate=size[1])
    told = [changed.get(choice.key, choice) for choice in choices]
    return Fit(dataclasses.replace(recipe, training=training), told, warning)


def longest_row(recipe: Recipe, corpora: Corpora, tokenizers: tuple[Tokenizer, Tokenizer]) -> int:
    """Return the tokens of the longest row that training will meet, the end token included."""
    return recipe.task.longest_row(recipe, corpora, tokenizers)


def first_that_runs(sizes: Sequence[tuple[int, int]], run: Callable[[tuple[int, int]], None]) -> tuple[int, int]:
    """The first of the sizes that does not run out of memory; the last one is not tried."""
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
    """Hold at once all that a step of such a batch holds, with a copy of the model."""
    training = recipe.training
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        tried = copy.deepcopy(model).train()
        freeze(tried, training.freeze)
        trained = [parameter for parameter in tried.parameters() if parameter.requires_grad]
        means = [torch.empty_like(one) for one in trained for _ in range(3 if training.ema else 2)]
        batch, loss_function = full_batch(tried, rows, length, device), recipe_loss(tried, training)
        for _ in range(2):  # the second pass meets the gradients of the first
            with autocast(device, training.precision):
                loss = loss_function(tried, batch)
            (loss.total / batch.tokens).backward()
    del means


def disk_lines(recipe: Recipe, model: nn.Module, folder: Path) -> list[str]:
    """A warning where the disk lacks room for the run's checkpoints; UsageError where its folder cannot be written."""
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        kind = UsageError if disk_is_full(error) is None else ResourceError
        raise kind(f"cannot write to {place}: {error.strerror}; choose another --out") from error
    training, weights = recipe.training, size_of(model.parameters())
    checkpoint = weights * (4 if training.ema else 3)  # Adam's two means, and that of the weights
    kept = max(training.keep, training.average)
    there = min(kept, len(checkpoint_steps(folder / "training")))
    wanted = (kept + 1 - there) * checkpoint + 2 * weights  # one more of each while it is being written
    free = shutil.disk_usage(place).free
    if wanted <= free:
        return []
    return [
        f"warning: the disk of {folder} has {as_text(free)} free, and {kept} checkpoints, one more while it is "
        f"written, and the model will take {as_text(wanted)}: make room, lower training.keep, or choose another --out"
    ]
