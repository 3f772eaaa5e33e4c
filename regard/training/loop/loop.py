"""The training loop: the order of things. Take a batch, take a step, report, validate, save.

Vaswani et al. 2017, section 5; E7. One loop trains every kind of model, in one process or many. The step itself is in
train_step.py, what it changes in state/train_state.py, checkpoints in checkpoint/checkpoints.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from regard.errors import StoppedError
from regard.recipes.required import required
from regard.tasks.validation import Validation
from regard.text.batches.batch import Batch
from regard.text.batches.prefetch import Prefetcher
from regard.training.checkpoint.checkpoints import Checkpoints
from regard.training.loop.report import Report
from regard.training.loop.torch_compile import uncompiled
from regard.training.loop.train_step import TrainStep
from regard.training.signals import Interrupted, StopFlag, signal_name
from regard.training.state.progress import Meter


class Data(Protocol):
    """What the loop needs of the training data."""

    def batches(self, epoch: int, start: int = 0, *, rank: int = 0, world: int = 1) -> Iterator[Batch]: ...


class PositionedBatch(NamedTuple):
    """A batch, and the position in the data after it."""

    batch: Batch
    epoch: int
    consumed: int  # samples of the epoch, over all processes


class Loop:
    """Trains to the last step.

    `validate(step)` scores the model; `save_best` is called when the score is the best so far; `stop` is set by a
    signal; `check_folder` raises an error if the run's folder has vanished. With several processes all run the same
    loop, and only the first one validates, saves and reports.
    """

    def __init__(
        self,
        step: TrainStep,
        data: Data,
        checkpoints: Checkpoints,
        *,
        validate: Callable[[int], Validation],
        save_best: Callable[[], None],
        stop: StopFlag,
        check_folder: Callable[[], None] | None = None,
    ) -> None:
        self.step, self.data, self.checkpoints = step, data, checkpoints
        self.validate, self.save_best, self.stop, self.check_folder = validate, save_best, stop, check_folder
        self.state, self.recipe, self.group = step.state, step.recipe, step.state.group

    def run(self, report: Report) -> None:
        """Train to the last step, or until the validations get no better."""
        recipe, progress = self.recipe, self.state.progress
        steps, save_every = required(recipe.steps), required(recipe.save_every)
        prefetcher = Prefetcher(self.batches())
        try:
            while True:
                if self.check_folder is not None:
                    self.check_folder()
                self.validate_if_due(report)
                if progress.step >= steps and progress.judged == progress.step:
                    progress.ended = progress.ended or "all steps are done"
                if progress.ended or progress.step % save_every == 0:
                    self.save()
                if progress.ended:
                    return
                taken = self.take(prefetcher)
                self.stop_if_asked()
                self.step([positioned.batch for positioned in taken])
                _, progress.epoch, progress.consumed = taken[-1]
                report.step(progress.step)
                if progress.step % recipe.log_every == 0 or progress.step >= steps:
                    self.report_interval(report)
        finally:
            prefetcher.close()

    def batches(self) -> Iterator[PositionedBatch]:
        """Yield batches without end, from the current position on."""
        epoch, consumed = self.state.progress.epoch, self.state.progress.consumed
        while True:
            for batch in self.data.batches(epoch, consumed, rank=self.group.rank, world=self.group.world):
                consumed += len(batch.global_ids)
                yield PositionedBatch(batch.to(self.state.device), epoch, consumed)
            epoch, consumed = epoch + 1, 0

    def take(self, prefetcher: Prefetcher[PositionedBatch]) -> list[PositionedBatch]:
        """Take the micro-batches of the next step; fewer if a signal arrives while waiting for them."""
        waited_before, taken = prefetcher.waited, []
        for _ in range(required(self.recipe.accumulate)):
            positioned = prefetcher.take(lambda: self.stop.signal is not None)
            if positioned is None:
                break
            taken.append(positioned)
        self.state.meter.waited += prefetcher.waited - waited_before
        self.state.progress.seconds += prefetcher.waited - waited_before
        return taken

    def stop_if_asked(self) -> None:
        """Save and raise StoppedError if any process has received a signal."""
        if number := int(self.group.max(self.stop.signal or 0)[0]):
            self.save()
            raise StoppedError(
                f"stopped by {signal_name(number)} after step {self.state.progress.step}; everything is saved: run the "
                f"same command again to continue",
                number,
            )

    def report_interval(self, report: Report) -> None:
        """Report the means since the last report, and start the next interval."""
        self.step.record_losses()
        state = self.state
        values = state.meter.values(self.group)
        values |= {
            "lr": float(state.optimizer.param_groups[0]["lr"]),
            "epoch": state.progress.epoch,
            "tokens": state.progress.tokens,
            "skipped": state.progress.skipped,
        }
        perplexity = f"perplexity {values['perplexity']:.2f}  " if self.step.loss_unit == "tokens" else ""
        line = (
            f"loss {values['loss']:.3f}  {perplexity}lr {values['lr']:.2e}  {values['tokens_per_second']:,.0f} tokens/s"
        )
        report.log(state.progress.step, "train", values, line)
        state.meter = Meter()

    def validate_if_due(self, report: Report) -> None:
        """Validate if this step asks for it. The first process does it and tells the others the outcome."""
        recipe, progress = self.recipe, self.state.progress
        is_last = progress.step >= required(recipe.steps)
        is_due = is_last or progress.step % required(recipe.validate_every) == 0
        if progress.judged == progress.step or not is_due:
            return
        self.step.record_losses()
        with self.state.final_weights(), uncompiled(recipe.compile):
            if self.group.first:
                try:
                    self.compare_with_best(self.validate(progress.step), report)
                    progress.judged = progress.step
                except Interrupted:
                    pass  # the next start repeats it
        judged, ended = self.group.max(progress.judged, bool(progress.ended))
        progress.judged = int(judged)
        if ended:
            progress.ended = progress.ended or "the first process has ended it"

    def compare_with_best(self, validation: Validation, report: Report) -> None:
        """Keep the model if it is the best so far; end the training after too many validations without a better one."""
        progress = self.state.progress
        report.log(progress.step, "validation", validation.values, validation.line)
        if progress.best is None or validation.score > progress.best:
            progress.best, progress.best_step, progress.stale = validation.score, progress.step, 0
            self.save_best()
        else:
            progress.stale += 1
            if self.recipe.patience and progress.stale >= self.recipe.patience:
                progress.ended = f"{progress.stale} validations without a better one than step {progress.best_step}'s"

    def save(self) -> None:
        """Commit a checkpoint of this step, unless there is one."""
        if self.checkpoints.saved_step != self.state.progress.step:
            self.step.record_losses()
            self.checkpoints.save(self.state)
