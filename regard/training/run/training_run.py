"""A training run: a recipe in, a model folder out. Read `train`, then `prepare` (prepare.py), then `run_training`.

    runs/NAME/                 a model folder, complete from the first validation on: the best weights so far
    runs/NAME/training/        what a resume needs: the complete recipe, tokenizers, data fingerprint, checkpoints
    runs/NAME/metrics.jsonl    every number that was reported
    runs/NAME/alignments/      an alignment picture of one validation sentence per validation

The same call again continues where the last one stopped, bitwise as if it had not (on the same machine, with the same
number of processes). The folder is locked, so one training uses it at a time. With several processes the first one
reads, decides and writes, and the others follow it.

Settings that the recipe leaves open, the batch size among them, are chosen in regard/training/recipe/defaults.py;
regard/training/budget/fit.py lowers the batch size until a step fits into memory. The training step is in
regard/training/loop/train_step.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.models.folder import read_config
from regard.recipes.required import required
from regard.tasks.loading import load
from regard.tasks.objective import recipe_objective
from regard.training.budget.fit import disk_lines
from regard.training.budget.forecast import forecast_lines
from regard.training.checkpoint.checkpoints import Checkpoints
from regard.training.loop.loop import Loop
from regard.training.loop.report import Report, training_time
from regard.training.loop.train_step import TrainStep
from regard.training.parallel.group import ALONE, Group, join
from regard.training.prepared import Prepared
from regard.training.recipe.schema import Recipe, TrainingRecipe
from regard.training.recipe.toml_file import apply_overrides, read_recipe
from regard.training.run.best_model import FINISHED, BestModel
from regard.training.run.ending import ending_lines, recorded_rank
from regard.training.run.prepare import prepare
from regard.training.run.run_folder import FolderWatch, explained_errors, locked_folder, run_folder
from regard.training.run.torch_settings import torch_settings
from regard.training.signals import StopFlag
from regard.training.state.progress import Progress
from regard.training.state.train_state import TrainState

Say = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """A training run that has ended."""

    folder: Path
    scores: dict[str, Any]

    def load(self, **options: Any) -> Any:
        """Load the trained model, like `regard.load`."""
        return load(self.folder, **options)


def train(
    recipe: str | Path | Recipe,
    *,
    out: str | Path | None = None,
    init: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    say: Say | None = None,
    quiet: bool = False,
    tensorboard: bool = False,
    allow_changed_data: bool = False,
    verbose: bool = False,
) -> Run:
    """Train a model, or continue where an earlier call with the same recipe stopped.

    `recipe` is a TOML file, the name of a shipped recipe, or a Recipe; `overrides` such as {"training.lr": 3e-4}
    replace its settings. The run is written to `out`, by default runs/NAME. `init` is a trained model (a folder or a
    shipped name) whose weights and tokenizer the training starts from. `allow_changed_data` continues although the
    data files have changed since the start: with the old tokenizer, at the start of the next epoch. `verbose` says
    every chosen setting with its reason.

    >>> import regard
    >>> short = {"data.demo": 300, "data.validation": 10, "training.steps": 2, "training.warmup": 1, "model.dim": 32}
    >>> run = regard.train("demo", out="runs/example", overrides=short, quiet=True)
    >>> run.load()
    Translator(...)
    """
    if isinstance(recipe, Recipe):
        asked = apply_overrides(recipe, overrides or {})
    else:
        asked = read_recipe(recipe, overrides)
    folder = run_folder(Path("runs") / asked.name if out is None else out)
    with join() as group, explained_errors(folder), locked_folder(folder, group) as stale:
        say = say if say is not None and group.first else (lambda text: None)
        if stale:
            say(f"the last training here was interrupted ({stale}); this one takes over")
        if not group.first:
            group.barrier()  # the first process has prepared the folder by then
        ready = prepare(
            asked,
            folder=folder,
            init=init,
            say=say,
            group=group,
            allow_changed_data=allow_changed_data,
            verbose=verbose,
        )
        if group.first:
            group.barrier()
        return run_training(
            ready, folder, say=say, quiet=quiet or not group.first, tensorboard=tensorboard, group=group
        )


def run_training(
    ready: Prepared,
    folder: Path,
    *,
    say: Say,
    quiet: bool = False,
    tensorboard: bool = False,
    group: Group = ALONE,
) -> Run:
    """Train what is prepared, from the newest checkpoint if there is one, and leave a model folder."""
    training, resume_folder = ready.recipe.training, folder / "training"
    with StopFlag() as stop, torch_settings(training, ready.device):
        state = TrainState(ready.model, training, device=ready.device, group=group)
        checkpoints = Checkpoints(
            resume_folder,
            keep=max(training.keep, training.average),
            seed=training.seed,
            fingerprint=ready.corpora.fingerprint,
            group=group,
        )
        best_model = BestModel(ready, state, folder, stop)
        if (checkpoint := checkpoints.load()) is not None:
            checkpoints.restore(state, checkpoint)
            reopen_if_unfinished(state.progress, training)
            rank = recorded_rank(folder, state.progress.best_step, best_model.validator.measure)
            state.progress.best = state.progress.best if rank is None else rank
            # The first process decides; another one might look only after this start has removed the mark.
            is_complete = group.first and bool(state.progress.ended) and (resume_folder / FINISHED).exists()
            if group.max(is_complete)[0]:
                say(f"already complete: {state.progress.ended}, at step {state.progress.step}")
                return ended_run(ready, folder, best_model, say)
            say(f"continuing from step {state.progress.step}")
        if group.first:
            (resume_folder / FINISHED).unlink(missing_ok=True)
            for line in disk_lines(ready.recipe, ready.model, folder):
                say(line)
            if not quiet:  # it takes some seconds
                progress = state.progress
                for line in forecast_lines(
                    ready, start=progress.step, epoch=progress.epoch, world=group.world, stop=stop
                ):
                    say(line)
        report = Report(
            folder,
            steps=required(training.steps),
            start=state.progress.step,
            quiet=quiet,
            tensorboard=tensorboard,
            silent=not group.first,
        )
        step = make_train_step(ready, state, warn=report.say)
        loop = Loop(
            step,
            ready.train,
            checkpoints,
            validate=best_model.validator,
            save_best=best_model.save,
            stop=stop,
            check_folder=FolderWatch(folder).check if group.first else None,
            predicts_tokens=ready.recipe.task.predicts_tokens,
        )
        with report:
            loop.run(report)
        if group.first:
            best_model.finish(say)
        group.barrier()
    seconds = training_time(state.progress.seconds, state.progress.preparing)
    say(f"{state.progress.ended}; trained for {seconds}; the model is in {folder}")
    return ended_run(ready, folder, best_model, say)


def ended_run(ready: Prepared, folder: Path, best_model: BestModel, say: Say) -> Run:
    """Say which weights the run has kept and how to use them; return the run."""
    for line in ending_lines(folder, ready.recipe.task, best_model.validator.measure):
        say(line)
    return Run(folder, read_config(folder).get("scores", {}))


def make_train_step(ready: Prepared, state: TrainState, *, warn: Say) -> TrainStep:
    """Return the step that trains what is prepared; `warn` receives its warnings."""
    training, group = ready.recipe.training, state.group
    return TrainStep(
        state,
        recipe_objective(ready.model, training, together=group.gather_rows if group.world > 1 else None),
        training,
        loss_unit=ready.recipe.task.loss_unit,
        describe_sample=ready.train.location,
        one_shape=ready.train.one_shape,
        update=ready.recipe.task.update(ready.model, training),
        warn=warn,
    )


def reopen_if_unfinished(progress: Progress, training: TrainingRecipe) -> None:
    """Let a training run that had ended continue if the recipe now has more steps or more patience."""
    is_out_of_patience = training.patience and progress.stale >= training.patience
    if progress.step < required(training.steps) and not is_out_of_patience:
        progress.ended = ""
