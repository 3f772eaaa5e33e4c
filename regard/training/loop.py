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
from regard.training.captured import Captured, shapes
from regard.training.compiled import compile_parts, uncompiled
from regard.training.distributed import ALONE, Group, Summed, part, whole
from regard.training.loss import Loss
from regard.training.optimizer import freeze, make_optimizer, set_rate, trained, update
from regard.training.out_of_memory import halves, is_out_of_memory, out_of_memory
from regard.training.progress import Meter, Progress, Validation
from regard.training.recipe import TrainingRecipe
from regard.training.report import Report
from regard.training.resume import save_state
from regard.training.schedule import learning_rate
from regard.training.signals import Interrupted, StopFlag, spoken
from regard.training.watch import LAG, Taken, Watch

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
        self.parted = group.world > 1 and recipe.parallel == "fsdp"  # each process holds a part of the model only
        if self.parted and (recipe.compile or recipe.precision == "fp16"):
            raise UsageError('training.parallel = "fsdp" goes with fp32 and bf16, and not with training.compile')
        self.loss_function = loss_function
        if recipe.compile:
            compile_parts(model, dynamic=not getattr(data, "one_shape", False))
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
        self.counted = torch.ones((), device=device)  # what this step's loss is divided by
        self.taken_in = torch.zeros((), device=device)  # the share of this step's weights in their mean
        self.ema = Ema({name: parameter for parameter, name in self.names.items()}, recipe.ema) if recipe.ema else None
        self.scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "fp16")
        self.progress, self.meter = Progress(), Meter()
        self.watch = Watch(LAG if group.world == 1 else 0)  # processes must agree when to end
        self.captured: Captured | None = None
        if recipe.capture and device.type == "cuda" and group.world == 1:
            self.captured = Captured(self.work, lambda text: self.warn(text))
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
        return taken

    def train_step(self, micro: list[Batch]) -> None:
        """One update from micro-batches; the loss is divided by the tokens of them all, so each counts the same."""
        began = time.perf_counter()
        recipe, progress, meter = self.recipe, self.progress, self.meter
        self.model.train()
        tokens = sum(batch.whole_tokens for batch in micro)
        samples = [sample for batch in micro for sample in batch.whole_ids]
        counted = len(samples) if self.pairs else tokens
        rate = learning_rate(
            progress.step + 1,
            kind=needed(recipe.schedule),
            peak=needed(recipe.lr),
            warmup=needed(recipe.warmup),
            steps=needed(recipe.steps),
            dim=self.width,
            floor=recipe.floor,
        )
        set_rate(self.optimizer, rate)
        self.counted.fill_(counted)
        if self.ema is not None:
            self.taken_in.fill_(self.ema.next_weight())
        fresh = self.is_new(micro)
        found = self.work(micro) if self.captured is None else self.captured(micro)
        progress.step += 1
        progress.tokens += tokens
        self.watch.add(Taken(progress.step, rate, counted, samples, progress.epoch), found)
        self.settle(all=fresh)
        seconds = time.perf_counter() - began
        progress.seconds += seconds
        progress.preparing += seconds if fresh else 0.0
        meter.cells += sum(batch.labels.numel() for batch in micro)
        meter.tokens, meter.seconds = meter.tokens + tokens, meter.seconds + seconds

    def is_new(self, micro: list[Batch]) -> bool:
        """Whether kernels are chosen, compiled or recorded in a step of these shapes."""
        if self.captured is not None:
            return not self.captured.knows(micro)
        new = self.recipe.compile and shapes(micro) not in self.known
        if new:
            self.known.add(shapes(micro))
        return new

    def work(self, micro: list[Batch]) -> Tensor:
        """All that a step does on the device, without waiting for it -> this process' loss and the gradient's norm."""
        if self.captured is not None:
            self.clear_gradients()  # a recording that failed has left some that were never computed
        nll = self.find_gradients(micro)
        self.scaler.unscale_(self.optimizer)  # the norm below is of the true gradient
        norm = whole(nn.utils.clip_grad_norm_(self.names, self.recipe.clip or math.inf))
        if self.scaler.is_enabled():  # it leaves a step out by itself, and lowers its scale
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            update(self.optimizer, norm)
        self.clear_gradients()
        if self.ema is not None:
            self.ema.update(float(self.taken_in) if self.parted else self.taken_in)
        return torch.stack([nll, norm.to(nll.dtype)])

    def settle(self, *, all: bool = True) -> None:
        """Note what the steps found whose numbers have arrived, or wait for `all` of them."""
        progress, meter = self.progress, self.meter
        for taken, nll, norm in self.watch.arrived(all=all):
            if math.isfinite(norm):
                progress.skipped_in_row = 0
                meter.nll, meter.norm = meter.nll + nll, meter.norm + norm
                meter.counted, meter.steps = meter.counted + taken.counted, meter.steps + 1
            else:
                self.left_out(taken)

    def left_out(self, taken: Taken) -> None:
        """A step whose gradient was not finite changed nothing: it is counted, and too many in a row are the end."""
        progress = self.progress
        progress.skipped += 1
        progress.skipped_in_row += 1
        where = f"at step {taken.step}, with learning rate {taken.rate:.3g}, on {self.places(taken)}"
        if progress.skipped_in_row >= MOST_SKIPPED:
            raise DivergedError(
                f"training diverged: the gradient was not finite for the {MOST_SKIPPED}th time in a row, {where}; "
                f"lower training.lr or raise training.warmup. The last checkpoint is intact"
            )
        if progress.skipped <= TOLD:
            self.warn(f"step left out: the gradient was not finite {where}")

    def find_gradients(self, micro: list[Batch]) -> Tensor:
        """The gradients of all processes' micro-batches, and this process' loss.

        What does not fit into memory, in any process, is done once more in halves.
        """
        nll, failed = self.backward(micro)
        if not failed:
            return nll
        if self.captured is not None:
            self.captured.forget(micro)
        self.clear_gradients()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if not self.pairs:  # the pairs of a sentence encoder's batch are judged together
            self.warn(f"step {self.progress.step + 1} did not fit into memory and is done in halves")
            nll, failed = self.backward([half for batch in micro for half in halves(batch)])
            if not failed:
                return nll
        raise ResourceError(out_of_memory(micro, self.recipe))

    def backward(self, micro: list[Batch]) -> tuple[Tensor, bool]:
        """Gradients of these micro-batches, summed over the processes; and whether any process ran out of memory."""
        nll = torch.zeros((), device=self.device)
        failed = False
        try:
            for number, batch in enumerate(micro, start=1):
                if self.summed is not None and number == len(micro):
                    self.summed.send()
                with autocast(self.device, self.recipe.precision):
                    loss = self.loss_function(self.model, batch)
                self.scaler.scale(loss.total / self.counted).backward()
                nll = nll + loss.nll.detach()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or (self.captured is not None and torch.cuda.is_current_stream_capturing()):
                raise
            if self.parted:  # the others wait for this one in the midst of a block, so there is no second try
                raise ResourceError(out_of_memory(micro, self.recipe)) from error
            failed = True
        return nll, failed if self.summed is None else self.summed.finish(failed=failed)

    def places(self, taken: Taken) -> str:
        """Where the first sentences of a step stand."""
        told = ", ".join(self.data.place(sample, taken.epoch) for sample in taken.samples[:TOLD])
        return told + (f" and {len(taken.samples) - TOLD} more" if len(taken.samples) > TOLD else "")

    def clear_gradients(self) -> None:
        if self.summed is not None:
            self.summed.clear()
        else:
            self.optimizer.zero_grad(set_to_none=True)

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
        raise UsageError("the recipe is not complete: see regard.training.choose.complete")
    return value


def autocast(device: torch.device, precision: str | None) -> torch.autocast:
    dtype = PRECISIONS.get(precision or "fp32")
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
