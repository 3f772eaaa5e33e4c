"""The training loop: batches to gradients to weights, and everything that must survive a stop.

Vaswani et al. 2017, section 5; E7. The same loop trains every model, on one process or many: what differs is the loss
function and the data.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.errors import DivergedError, ResourceError, StoppedError, UsageError
from regard.text.ahead import Ahead
from regard.text.batching import Batch
from regard.training import checkpoint
from regard.training.averaging import Ema
from regard.training.distributed import ALONE, Group, Summed, part, whole
from regard.training.loss import Loss
from regard.training.optimizer import freeze, make_optimizer, trained
from regard.training.out_of_memory import halves, is_out_of_memory, out_of_memory
from regard.training.progress import Meter, Progress, Validation
from regard.training.recipe import TrainingRecipe
from regard.training.report import Report
from regard.training.resume import save_state
from regard.training.schedule import learning_rate
from regard.training.signals import Interrupted, StopFlag, spoken

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
MOST_SKIPPED = 20  # steps in a row without finite gradients, before training has diverged
TOLD = 5  # sentences of a batch that are named, and skipped steps that are told of


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
        self.width: int = model.config.dim if hasattr(model.config, "dim") else model.config.hidden
        self.pairs = model.config.kind == "encoder"  # its loss is over pairs of sentences, not over tokens
        self.loss_function = torch.compile(loss_function) if recipe.compile else loss_function
        freeze(model, recipe.freeze)
        group.same_start(model)
        self.whole_model = model  # what is validated and saved
        self.summed: Summed | None = None
        if self.parted:
            self.whole_model = copy.deepcopy(model)
            self.loss_function = part(model, loss_function, group)
        self.names = trained(model)
        if group.world > 1 and not self.parted:
            self.summed = Summed(self.names, group)
        self.optimizer = make_optimizer(self.names, recipe)
        self.ema = Ema({name: parameter for parameter, name in self.names.items()}, recipe.ema) if recipe.ema else None
        self.scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "fp16")
        self.progress, self.meter = Progress(), Meter()
        self.saved = 0  # the step of the last checkpoint
        self.warn: Callable[[str], None] = lambda text: None

    @property
    def parted(self) -> bool:
        """Whether each process holds a part of the model only."""
        if self.group.world == 1 or self.recipe.parallel != "fsdp":
            return False
        if self.recipe.compile or self.recipe.precision == "fp16":
            raise UsageError('training.parallel = "fsdp" goes with fp32 and bf16, and not with training.compile')
        return True

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
        return taken

    def train_step(self, micro: list[Batch]) -> None:
        """One update from micro-batches; the loss is divided by the tokens of them all, so each counts the same."""
        began = time.perf_counter()
        recipe, progress, meter = self.recipe, self.progress, self.meter
        self.model.train()
        tokens = sum(batch.whole_tokens for batch in micro)
        counted = sum(len(batch.whole_ids) for batch in micro) if self.pairs else tokens
        nll = self.find_gradients(micro, counted)
        self.scaler.unscale_(self.optimizer)  # the norm below is of the true gradient
        norm = whole(nn.utils.clip_grad_norm_(self.names, recipe.clip or math.inf))
        rate = learning_rate(
            progress.step + 1,
            kind=needed(recipe.schedule),
            peak=needed(recipe.lr),
            warmup=needed(recipe.warmup),
            steps=needed(recipe.steps),
            dim=self.width,
            floor=recipe.floor,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        finite = self.update(norm, rate, micro)
        progress.step += 1
        progress.tokens += tokens
        seconds = time.perf_counter() - began
        progress.seconds += seconds
        if finite:
            meter.nll, meter.norm = meter.nll + nll, meter.norm + norm
            meter.counted, meter.steps = meter.counted + counted, meter.steps + 1
        meter.cells += sum(batch.labels.numel() for batch in micro)
        meter.tokens, meter.seconds = meter.tokens + tokens, meter.seconds + seconds

    def find_gradients(self, micro: list[Batch], counted: int) -> Tensor | float:
        """The gradients of all processes' micro-batches, and this process' loss.

        What does not fit into memory, in any process, is done once more in halves.
        """
        nll, failed = self.backward(micro, counted)
        if not failed:
            return nll
        self.clear_gradients()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if not self.pairs:  # the pairs of a sentence encoder's batch are judged together
            self.warn(f"step {self.progress.step + 1} did not fit into memory and is done in halves")
            nll, failed = self.backward([half for batch in micro for half in halves(batch)], counted)
            if not failed:
                return nll
        raise ResourceError(out_of_memory(micro, self.recipe))

    def backward(self, micro: list[Batch], counted: int) -> tuple[Tensor | float, bool]:
        """Gradients of these micro-batches, summed over the processes; and whether any process ran out of memory."""
        nll: Tensor | float = 0.0
        failed = False
        try:
            for number, batch in enumerate(micro, start=1):
                if self.summed is not None and number == len(micro):
                    self.summed.send()
                with autocast(self.device, self.recipe.precision):
                    loss = self.loss_function(self.model, batch)
                self.scaler.scale(loss.total / counted).backward()
                nll += loss.nll.detach()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if self.parted:  # the others wait for this one in the midst of a block, so there is no second try
                raise ResourceError(out_of_memory(micro, self.recipe)) from error
            failed = True
        return nll, failed if self.summed is None else self.summed.finish(failed=failed)

    def update(self, norm: Tensor, rate: float, micro: list[Batch]) -> bool:
        """Move the weights, unless the gradient is not finite: such a step is left out and counted."""
        progress = self.progress
        finite = bool(norm.isfinite())  # the same in all processes, for the gradient is
        if finite or self.scaler.is_enabled():  # the scaler leaves the step out by itself, and lowers its scale
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.clear_gradients()
        if self.ema is not None and finite:
            self.ema.update()
        progress.skipped += not finite
        progress.skipped_in_row = 0 if finite else progress.skipped_in_row + 1
        if not finite:
            where = f"at step {progress.step + 1}, with learning rate {rate:.3g}, on {self.places(micro)}"
            if progress.skipped_in_row >= MOST_SKIPPED:
                raise DivergedError(
                    f"training diverged: the gradient was not finite for the {MOST_SKIPPED}th time in a row, {where}; "
                    f"lower training.lr or raise training.warmup. The last checkpoint is intact"
                )
            if progress.skipped <= TOLD:
                self.warn(f"step left out: the gradient was not finite {where}")
        return finite

    def places(self, micro: list[Batch]) -> str:
        """Where the first sentences of a step stand."""
        samples = [sample for batch in micro for sample in batch.whole_ids]
        told = ", ".join(self.data.place(sample, self.progress.epoch) for sample in samples[:TOLD])
        return told + (f" and {len(samples) - TOLD} more" if len(samples) > TOLD else "")

    def clear_gradients(self) -> None:
        if self.summed is not None:
            self.summed.clear()
        else:
            self.optimizer.zero_grad(set_to_none=True)

    def tell(self, report: Report) -> None:
        """Report the interval's numbers and start the next."""
        values = self.meter.values(self.group)
        values |= {
            "lr": self.optimizer.param_groups[0]["lr"],
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
        with self.weights_in_use():
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
        raise UsageError("the recipe is not complete: see regard.training.choose.complete")
    return value


def autocast(device: torch.device, precision: str | None) -> torch.autocast:
    dtype = PRECISIONS.get(precision or "fp32")
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
