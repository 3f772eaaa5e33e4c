"""The training loop: step after step, validations, reports, and everything that must survive a stop.

Vaswani et al. 2017, section 5; E7. The same loop trains every model, on one process or many: what differs is the loss
function and the data.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.attention.linear.features import RandomFeatures
from regard.errors import StoppedError, UsageError
from regard.recipes.schedule import learning_rate
from regard.tasks import task_for
from regard.text.batches.batch import Batch
from regard.text.batches.prefetch import Ahead
from regard.training.checkpoint import files as checkpoint
from regard.training.checkpoint.resume import save_state
from regard.training.loop.cuda_graphs import Captured
from regard.training.loop.ema import Ema
from regard.training.loop.losses import Loss
from regard.training.loop.optimizer import freeze, make_optimizer, trained
from regard.training.loop.pending_losses import LAG, Watch
from regard.training.loop.progress import Meter, Progress, Validation
from regard.training.loop.report import Report
from regard.training.loop.signals import Interrupted, StopFlag, spoken
from regard.training.loop.torch_compile import compile_parts, uncompiled
from regard.training.loop.train_step import note_found, take_step, work_on_device
from regard.training.parallel.group import ALONE, Group, Summed, part
from regard.training.recipe.schema import TrainingRecipe


class Data(Protocol):
    """What the loop needs of PairData and WindowData."""

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]: ...

    def place(self, sample: int, epoch: int) -> str: ...


class Placed(NamedTuple):
    """A batch, and where the training stands once it is used."""

    batch: Batch
    epoch: int
    consumed: int


class Loop:
    """One training: the model, its optimizer and where it stands."""

    def __init__(
        self,
        model: Any,  # one of regard's, with its config
        data: Data,
        loss_function: Callable[[nn.Module, Batch], Loss],
        recipe: TrainingRecipe,
        *,
        device: torch.device,
        group: Group = ALONE,
        fingerprint: str = "",  # of the data: a place in other data means nothing
    ) -> None:
        self.model, self.data, self.recipe, self.device, self.group = model, data, recipe, device, group
        self.fingerprint = fingerprint
        self.width: int = model.config.width
        self.pairs = task_for(model.config.kind).counts == "samples"  # its loss is over samples, not over tokens
        self.parted = group.world > 1 and recipe.parallel == "fsdp"  # each process holds a part of the model only
        if self.parted and (recipe.compile or recipe.precision == "fp16"):
            raise UsageError('training.parallel = "fsdp" goes with fp32 and bf16, and not with training.compile')
        self.loss_function = loss_function
        if recipe.compile:
            compile_parts(model, dynamic=not getattr(data, "one_shape", False))
        freeze(model, recipe.freeze)
        group.same_start(model)
        self.whole_model = model  # what is validated and saved
        if self.parted:
            self.whole_model = copy.deepcopy(model)
            self.loss_function = part(model, loss_function, group)
        self.names = trained(model)
        self.features = [
            part for part in model.modules() if isinstance(part, RandomFeatures)
        ]  # drawn anew now and then
        self.summed = Summed(self.names, group) if group.world > 1 and not self.parted else None
        self.optimizer = make_optimizer(self.names, recipe)
        self.counted = torch.ones((), device=device)  # what this step's loss is divided by
        self.taken_in = torch.zeros((), device=device)  # the share of this step's weights in their mean
        self.ema = Ema({name: parameter for parameter, name in self.names.items()}, recipe.ema) if recipe.ema else None
        self.scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "fp16")
        self.progress, self.meter = Progress(), Meter()
        self.watch = Watch(LAG if group.world == 1 else 0)  # processes must agree when to end
        captures = recipe.capture and device.type == "cuda" and group.world == 1
        self.captured = Captured(self.work, lambda text: self.warn(text)) if captures else None
        self.known: set[Any] = set()  # shapes that were met
        self.saved = 0  # the step of the last checkpoint
        self.warn: Callable[[str], None] = lambda text: None

    def run(
        self,
        report: Report,
        folder: Path,
        *,
        validate: Callable[[int], Validation],
        better: Callable[[], None],
        stop: StopFlag,
    ) -> None:
        """Train to the last step. `validate` gives the score of a step; `better` is called when it is the best yet."""
        recipe, progress, self.warn = self.recipe, self.progress, report.say
        ahead = Ahead(self.batches())
        try:
            while True:
                self.validate_if_due(validate, better, report)
                if progress.step >= needed(recipe.steps) and progress.judged == progress.step:
                    progress.ended = progress.ended or "all steps are done"
                if progress.ended or progress.step % needed(recipe.save_every) == 0:
                    self.save(folder)
                if progress.ended:
                    return
                taken = self.take(ahead, stop)
                if number := int(self.group.most(stop.signal or 0)[0]):  # any process' signal stops them all
                    self.save(folder)
                    raise StoppedError(
                        f"stopped by {spoken(number)} after step {progress.step}; all is saved, the same command goes "
                        f"on from there",
                        number,
                    )
                self.train_step([placed.batch for placed in taken])
                _, progress.epoch, progress.consumed = taken[-1]
                report.step(progress.step)
                if progress.step % recipe.log_every == 0 or progress.step >= needed(recipe.steps):
                    self.tell(report)
        finally:
            ahead.close()

    def batches(self) -> Iterator[Placed]:
        """Batches without end, from where the training stands."""
        epoch, consumed = self.progress.epoch, self.progress.consumed
        while True:
            for batch in self.data.batches(epoch, consumed, rank=self.group.rank, world=self.group.world):
                consumed += len(batch.whole_ids)
                yield Placed(batch.to(self.device), epoch, consumed)
            epoch, consumed = epoch + 1, 0

    def take(self, ahead: Ahead[Placed], stop: StopFlag) -> list[Placed]:
        """The micro-batches of the next step; fewer when a signal came while waiting for them."""
        began, taken = ahead.waited, []
        for _ in range(needed(self.recipe.accumulate)):
            placed = ahead.take(lambda: stop.signal is not None)
            if placed is None:
                break
            taken.append(placed)
        self.meter.waited += ahead.waited - began
        self.progress.seconds += ahead.waited - began
        return taken

    def train_step(self, micro: list[Batch]) -> None:
        """One update from micro-batches at its learning rate (step.py), and the time it takes."""
        began = time.perf_counter()
        recipe, progress = self.recipe, self.progress
        kind, peak, warmup, steps = map(needed, (recipe.schedule, recipe.lr, recipe.warmup, recipe.steps))
        rate = learning_rate(
            progress.step + 1, kind=kind, peak=peak, warmup=warmup, steps=steps, dim=self.width, floor=recipe.floor
        )
        fresh = take_step(self, micro, rate=rate)
        seconds = time.perf_counter() - began
        progress.seconds += seconds
        progress.preparing += seconds if fresh else 0.0
        self.meter.seconds += seconds

    def work(self, micro: list[Batch]) -> Tensor:
        """What a step does on the device -> this process' loss and the gradient's norm."""
        return work_on_device(self, micro)

    def settle(self, *, all: bool = True) -> None:
        """Note what the steps found whose numbers have arrived, or wait for `all` of them."""
        note_found(self, all=all)

    def tell(self, report: Report) -> None:
        """Report the interval's numbers and start the next."""
        self.settle()
        values = self.meter.values(self.group)
        values |= {
            "lr": float(self.optimizer.param_groups[0]["lr"]),
            "epoch": self.progress.epoch,
            "tokens": self.progress.tokens,
            "skipped": self.progress.skipped,
        }
        line = (
            f"loss {values['loss']:.3f}  perplexity {values['perplexity']:.2f}  lr {values['lr']:.2e}  "
            f"{values['tokens_per_second']:,.0f} tokens/s"
        )
        report.numbers(self.progress.step, "train", values, line)
        self.meter = Meter()

    def validate_if_due(
        self, validate: Callable[[int], Validation], better: Callable[[], None], report: Report
    ) -> None:
        """Validate where it is time; the first process does it, and the others hear what came of it."""
        recipe, progress = self.recipe, self.progress
        last = progress.step >= needed(recipe.steps)
        if progress.judged == progress.step or not (last or progress.step % needed(recipe.validate_every) == 0):
            return
        self.settle()
        with self.weights_in_use(), uncompiled(recipe.compile):
            if self.group.first:
                try:
                    self.judge(validate(progress.step), report, better)
                    progress.judged = progress.step
                except Interrupted:
                    pass  # it is done at the next start
        judged, ended = self.group.most(progress.judged, bool(progress.ended))
        progress.judged = int(judged)
        if ended:
            progress.ended = progress.ended or "the first process has ended it"

    @contextmanager
    def weights_in_use(self) -> Iterator[None]:
        """Within, `whole_model` has the weights that the training gives away: the mean of them where one is kept."""
        with nullcontext() if self.ema is None else self.ema.swapped():
            if self.parted:
                weights = checkpoint.model_weights(self.model)
                checkpoint.put_weights(self.whole_model, weights)
            yield

    def judge(self, found: Validation, report: Report, better: Callable[[], None]) -> None:
        """Compare a validation with the best so far; too many without a better one end the training."""
        progress = self.progress
        report.numbers(progress.step, "validation", found.values, found.line)
        if progress.best is None or found.score > progress.best:
            progress.best, progress.best_step, progress.stale = found.score, progress.step, 0
            better()
        else:
            progress.stale += 1
            if self.recipe.patience and progress.stale >= self.recipe.patience:
                progress.ended = f"{progress.stale} validations without a better one than step {progress.best_step}'s"

    def save(self, folder: Path) -> None:
        """Commit a checkpoint of this step, unless there is one."""
        if self.saved != self.progress.step:
            save_state(self, folder)
            self.saved = self.progress.step


def needed(value: Any) -> Any:
    """A setting that `complete` has filled in."""
    if value is None:
        raise UsageError("the recipe is not complete: see regard.training.recipe.defaults.complete")
    return value
