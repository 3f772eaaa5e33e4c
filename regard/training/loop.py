"""The training loop: batches to gradients to weights, and everything that must survive a stop.

Vaswani et al. 2017, section 5; E7. The same loop trains every model: what differs is the loss function and the data.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.errors import DivergedError, StoppedError, UsageError
from regard.text.batching import Batch
from regard.training import checkpoint
from regard.training.loss import Loss
from regard.training.recipe import TrainingRecipe
from regard.training.report import Report
from regard.training.schedule import learning_rate
from regard.training.signals import StopFlag

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
MOST_SKIPPED = 20  # steps in a row without finite gradients, before training has diverged


class Data(Protocol):
    """What the loop needs of PairData and WindowData."""

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]: ...


class Validation(NamedTuple):
    """What a validation found: `score` is the number that decides, higher is better."""

    score: float
    values: dict[str, Any]
    line: str


@dataclass
class Progress:
    """Where a training stands: with weights, optimizer and generators all that resume needs."""

    step: int = 0
    epoch: int = 0
    consumed: int = 0  # samples of this epoch
    tokens: int = 0  # target tokens, over all epochs
    seconds: float = 0.0  # spent in steps
    best: float | None = None
    best_step: int = 0
    stale: int = 0  # validations since the best one
    skipped: int = 0  # steps whose gradients were not finite
    skipped_in_row: int = 0
    ended: str = ""  # why training ended, once it has


class Meter:
    """Sums since the last report. They stay on the device, so that a step does not wait for them."""

    def __init__(self) -> None:
        self.nll: Tensor | float = 0.0
        self.norm: Tensor | float = 0.0
        self.counted = self.tokens = self.cells = self.steps = 0
        self.seconds = 0.0

    def values(self) -> dict[str, float]:
        loss = float(self.nll) / max(self.counted, 1)
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "gradient_norm": float(self.norm) / max(self.steps, 1),
            "tokens_per_second": self.tokens / max(self.seconds, 1e-9),
            "padding": 1 - self.tokens / max(self.cells, 1),
        }


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
    ) -> None:
        self.model, self.data, self.recipe, self.device = model, data, recipe, device
        self.width: int = model.config.dim if hasattr(model.config, "dim") else model.config.hidden
        self.loss_function = torch.compile(loss_function) if recipe.compile else loss_function
        self.names = freeze(model, recipe.freeze)
        self.optimizer = make_optimizer(self.names, recipe)
        self.scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "fp16")
        self.pairs = model.config.kind == "encoder"  # its loss is over pairs of sentences, not over tokens
        self.progress, self.meter = Progress(), Meter()

    def run(
        self, report: Report, folder: Path, *, validate: Callable[[int], Validation], better: Callable[[], None]
    ) -> None:
        """Train to the last step. `validate` gives the score of a step; `better` is called when it is the best yet."""
        recipe, progress = self.recipe, self.progress
        batches = self.batches()
        with StopFlag() as stop:
            while not progress.ended:
                self.train_step([next(batches) for _ in range(recipe.accumulate)])
                step, last = progress.step, progress.step >= needed(recipe.steps)
                if step % recipe.log_every == 0 or last:
                    self.tell(report)
                if step % needed(recipe.validate_every) == 0 or last:
                    self.judge(validate(step), report, better)
                if last:
                    progress.ended = "all steps are done"
                report.step(step)
                if step % needed(recipe.save_every) == 0 or progress.ended or stop.signal:
                    self.save(folder)
                if stop.signal and not progress.ended:
                    raise StoppedError(
                        f"stopped by {stop.name} after step {step}; all is saved, the same command goes on from there",
                        stop.signal,
                    )

    def batches(self) -> Iterator[Batch]:
        """Batches without end, from where the training stands; the place moves on with each one taken."""
        progress = self.progress
        while True:
            for batch in self.data.batches(progress.epoch, progress.consumed):
                progress.consumed += len(batch.ids)
                yield batch.to(self.device)
            progress.epoch, progress.consumed = progress.epoch + 1, 0

    def train_step(self, micro: list[Batch]) -> None:
        """One update from micro-batches; the loss is divided by the tokens of them all, so each counts the same."""
        began = time.perf_counter()
        recipe, progress, meter = self.recipe, self.progress, self.meter
        self.model.train()
        tokens = sum(batch.tokens for batch in micro)
        counted = sum(len(batch.ids) for batch in micro) if self.pairs else tokens
        for batch in micro:
            with autocast(self.device, recipe.precision):
                loss = self.loss_function(self.model, batch)
            self.scaler.scale(loss.total / counted).backward()
            meter.nll += loss.nll.detach()
            meter.cells += batch.labels.numel()
        self.scaler.unscale_(self.optimizer)  # the norm below is of the true gradient
        norm = nn.utils.clip_grad_norm_(self.names, recipe.clip or math.inf)
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
        self.update(norm, rate, micro)
        progress.step += 1
        progress.tokens += tokens
        seconds = time.perf_counter() - began
        progress.seconds += seconds
        meter.norm += norm.detach()
        meter.counted += counted
        meter.tokens, meter.steps, meter.seconds = meter.tokens + tokens, meter.steps + 1, meter.seconds + seconds

    def update(self, norm: Tensor, rate: float, micro: list[Batch]) -> None:
        """Move the weights, unless the gradient is not finite: such a step is left out and counted."""
        progress = self.progress
        finite = bool(norm.isfinite())
        if finite or self.scaler.is_enabled():  # the scaler leaves the step out by itself, and lowers its scale
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        progress.skipped += not finite
        progress.skipped_in_row = 0 if finite else progress.skipped_in_row + 1
        if progress.skipped_in_row >= MOST_SKIPPED:
            raise DivergedError(
                f"training diverged: at step {progress.step + 1} the gradient was not finite for the {MOST_SKIPPED}th "
                f"time in a row, with learning rate {rate:.3g}, on samples {micro[0].ids[:5]}…; "
                f"lower training.lr or raise training.warmup. The last checkpoint is intact"
            )

    def tell(self, report: Report) -> None:
        """Report the interval's numbers and start the next."""
        values = self.meter.values()
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
        meter = {name: float(value) for name, value in vars(self.meter).items()}
        checkpoint.save_checkpoint(
            folder,
            self.progress.step,
            weights=checkpoint.model_weights(self.model),
            optimizer={
                **checkpoint.optimizer_tensors(self.optimizer, self.names),
                **checkpoint.random_state(self.device),
            },
            state={
                "progress": dataclasses.asdict(self.progress),
                "scaler": self.scaler.state_dict(),
                "meter": meter,
            },
            keep=max(self.recipe.keep, self.recipe.average),
        )

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Go on from a checkpoint as if nothing had happened."""
        checkpoint.put_weights(self.model, saved.weights)
        memory = {name: value for name, value in saved.optimizer.items() if not name.startswith("random/")}
        checkpoint.put_optimizer(self.optimizer, self.names, memory)
        checkpoint.put_random_state(saved.optimizer, self.device)
        self.progress = Progress(**saved.state["progress"])
        if saved.state["scaler"]:
            self.scaler.load_state_dict(saved.state["scaler"])
        for name, value in saved.state["meter"].items():
            setattr(self.meter, name, type(getattr(self.meter, name))(value))


def needed(value: Any) -> Any:
    """A setting that `complete` has filled in."""
    if value is None:
        raise UsageError("the recipe is not complete: see regard.training.choose.complete")
    return value


def autocast(device: torch.device, precision: str | None) -> torch.autocast:
    dtype = PRECISIONS.get(precision or "fp32")
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


def freeze(model: nn.Module, patterns: tuple[str, ...]) -> dict[Tensor, str]:
    """The parameters that train, with their names; those that match a pattern (`encoder.*`) stay as they are."""
    named = dict(model.named_parameters())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in named):
            raise UsageError(
                f"training.freeze: {pattern!r} matches no parameter; names look like {', '.join(list(named)[:3])}"
            )
    for name, parameter in named.items():
        parameter.requires_grad_(not any(fnmatchcase(name, pattern) for pattern in patterns))
    trained: dict[Tensor, str] = {parameter: name for name, parameter in named.items() if parameter.requires_grad}
    if not trained:
        raise UsageError("training.freeze leaves nothing to train")
    return trained


def make_optimizer(names: dict[Tensor, str], recipe: TrainingRecipe) -> torch.optim.Optimizer:
    """Adam or AdamW in one kernel; weight decay is for matrices, not for biases and norms."""
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer]
    matrices = [parameter for parameter in names if parameter.dim() > 1]
    vectors = [parameter for parameter in names if parameter.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    fused = next(iter(names)).device.type in ("cpu", "cuda")
    return kind([group for group in groups if group["params"]], betas=recipe.betas, eps=recipe.eps, fused=fused)
