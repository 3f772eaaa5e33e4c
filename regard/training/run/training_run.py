"""A whole training run: a recipe in, a model folder out. Read `train`, then `prepare`, then `run_training`.

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

import torch
from torch import nn

from regard import kernels
from regard.api.model_names import find_model
from regard.errors import UsageError
from regard.machine import find_device, this_machine
from regard.models.folder import load_model, read_config
from regard.models.presets import make_model
from regard.recipes.model_table import model_config
from regard.recipes.required import required
from regard.tasks.loading import load
from regard.tasks.objective import recipe_objective
from regard.text.check.checker import LONGEST, short_check
from regard.text.tokenizers.tokenizer import Tokenizer, read_tokenizers
from regard.training.budget.fit import disk_lines, fit_batch
from regard.training.budget.forecast import forecast_lines
from regard.training.checkpoint.checkpoints import Checkpoints, seed_generators
from regard.training.loop.loop import Loop
from regard.training.loop.progress import Progress
from regard.training.loop.report import Report, training_time
from regard.training.loop.signals import StopFlag
from regard.training.loop.train_state import TrainState
from regard.training.loop.train_step import TrainStep
from regard.training.parallel.group import ALONE, Group, join
from regard.training.recipe.defaults import Choice, complete, facts_of
from regard.training.recipe.schema import Recipe, TrainingRecipe
from regard.training.recipe.toml_file import apply_overrides, read_recipe
from regard.training.run.best_model import FINISHED, BestModel
from regard.training.run.prepare import Corpora, make_data, make_tokenizers, read_corpora
from regard.training.run.prepared import Prepared
from regard.training.run.run_folder import explained_errors, locked_folder
from regard.training.run.run_start import resumed_recipe, start_from, with_held_out, write_start
from regard.training.run.torch_settings import torch_settings

Say = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """A training that has ended."""

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
) -> Run:
    """Train a model, or continue where an earlier call with the same recipe stopped.

    `recipe` is a TOML file, the name of a shipped recipe, or a Recipe; `overrides` such as {"training.lr": 3e-4}
    replace its settings. The run is written to `out`, by default runs/NAME. `init` is a trained model (a folder or a
    shipped name) whose weights and tokenizer the training starts from. `allow_changed_data` continues although the
    data files have changed since the start: with the old tokenizer, at the start of the next epoch.
    """
    if isinstance(recipe, Recipe):
        asked = apply_overrides(recipe, overrides or {})
    else:
        asked = read_recipe(recipe, overrides)
    folder = Path(out) if out is not None else Path("runs") / asked.name
    with join() as group, explained_errors(folder), locked_folder(folder, group) as stale:
        say = say if say is not None and group.first else (lambda text: None)
        if stale:
            say(f"the last training here was interrupted ({stale}); this one takes over")
        if not group.first:
            group.barrier()  # the first process has prepared the folder by then
        ready = prepare(asked, folder=folder, init=init, say=say, group=group, allow_changed_data=allow_changed_data)
        if group.first:
            group.barrier()
        return run_training(
            ready, folder, say=say, quiet=quiet or not group.first, tensorboard=tensorboard, group=group
        )


def prepare(
    asked: Recipe,
    *,
    folder: Path | None,
    init: str | Path | None = None,
    say: Say,
    group: Group = ALONE,
    allow_changed_data: bool = False,
) -> Prepared:
    """Read the data, complete the recipe, train or load the tokenizers, and make the model.

    With a folder, decisions of an earlier start of the same run are read from there, and new ones are written there.
    The batch size is decided by `choose_settings` (recipe/defaults.py), then by `fit_batch` (budget/fit.py).
    """
    corpora = read_corpora(asked)
    say(f"data: {corpora.train.report}")
    resume_folder = None if folder is None else folder / "training"
    choices: list[Choice] = []
    if resume_folder is not None and (resume_folder / "recipe.toml").exists():
        recipe = resumed_recipe(asked, resume_folder, corpora, init=init, allow_changed_data=allow_changed_data)
        tokenizers = read_tokenizers(resume_folder)
    else:
        _refuse_foreign_folder(folder)
        recipe, choices = choose_settings(asked, corpora, init)
        tokenizers = make_tokenizers(recipe, corpora.train) if init is None else read_tokenizers(find_model(init))
    if group.first:
        for line in short_check(corpora.train, corpora.validation, limit=recipe.data.max_length or LONGEST):
            say(f"data: {line}")
    device = group.device(find_device(recipe.training.device or "auto"))
    model = initial_model(recipe, tokenizers, init, device)
    if choices:
        fitted = fit_batch(recipe, choices, model, corpora, tokenizers, device=device, world=group.world)
        recipe, choices = fitted.recipe, fitted.choices
        for choice in choices:
            say(f"chosen: {choice}")
        if fitted.warning:
            say(f"warning: {fitted.warning}")
    token_cache = None if resume_folder is None else resume_folder / "tokens"
    train_data, validation_data = make_data(recipe, corpora, *tokenizers, cache=token_cache, device=device)
    if device.type != "cpu":
        say(f"data: tokens {train_data.where}")
    if resume_folder is not None and group.first:
        write_start(resume_folder, recipe, corpora, tokenizers, init=init)
    if not group.first:
        seed_generators(recipe.training.seed, group.rank)
    return Prepared(
        recipe=recipe,
        corpora=corpora,
        tokenizers=tokenizers,
        train=train_data,
        validation=validation_data,
        model=model,
        device=device,
        choices=choices,
        fingerprint=corpora.fingerprint,
    )


def choose_settings(asked: Recipe, corpora: Corpora, init: str | Path | None) -> tuple[Recipe, list[Choice]]:
    """Complete a new run's recipe; return it with the settings that were chosen, each with its reason."""
    start = with_held_out(asked if init is None else start_from(asked, init), corpora)
    return complete(start, facts_of(corpora.train), this_machine(start.training.device))


def initial_model(
    recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer], init: str | Path | None, device: torch.device
) -> nn.Module:
    """Return a fresh model, or the model `init`, on the device; on a GPU with fused modules unless the recipe objects.

    This seeds torch's generators, from which the fresh weights and later dropout are drawn.
    """
    torch.manual_seed(recipe.training.seed)
    if init is None:
        source, target = tokenizers
        config = model_config(recipe.kind, recipe.model, source_vocabulary=source.size, target_vocabulary=target.size)
        model = make_model(config)
    else:
        model = load_model(find_model(init))
    model.to(device)
    if recipe.training.kernels == "auto" and device.type == "cuda":
        kernels.fuse(model)
    return model


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
        step = make_train_step(ready, state)
        checkpoints = Checkpoints(
            resume_folder,
            keep=max(training.keep, training.average),
            seed=training.seed,
            fingerprint=ready.fingerprint,
            group=group,
        )
        best_model = BestModel(ready, state, folder, stop)
        if (checkpoint := checkpoints.load()) is not None:
            checkpoints.restore(state, checkpoint)
            reopen_if_unfinished(state.progress, training)
            # The first process decides; another one might look only after this start has removed the mark.
            is_complete = group.first and bool(state.progress.ended) and (resume_folder / FINISHED).exists()
            if group.max(is_complete)[0]:
                say(f"already complete: {state.progress.ended}, at step {state.progress.step}")
                return Run(folder, read_config(folder).get("scores", {}))
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
        loop = Loop(step, ready.train, checkpoints, validate=best_model.validator, save_best=best_model.save, stop=stop)
        with report:
            loop.run(report)
        if group.first:
            best_model.finish(say)
        group.barrier()
    seconds = training_time(state.progress.seconds, state.progress.preparing)
    say(f"{state.progress.ended}; trained for {seconds}; the model is in {folder}")
    return Run(folder, read_config(folder).get("scores", {}))


def make_train_step(ready: Prepared, state: TrainState) -> TrainStep:
    """Return the step that trains what is prepared."""
    training, group = ready.recipe.training, state.group
    return TrainStep(
        state,
        recipe_objective(ready.model, training, together=group.gather_rows if group.world > 1 else None),
        training,
        count=ready.count,
        describe_sample=ready.train.place,
        one_shape=ready.train.one_shape,
    )


def reopen_if_unfinished(progress: Progress, training: TrainingRecipe) -> None:
    """Let a training that had ended continue if the recipe now has more steps or more patience."""
    is_out_of_patience = training.patience and progress.stale >= training.patience
    if progress.step < required(training.steps) and not is_out_of_patience:
        progress.ended = ""


def _refuse_foreign_folder(folder: Path | None) -> None:
    """Raise UsageError for a folder that exists and belongs to something else than a training run."""
    if folder is not None and folder.exists() and any(path.name != "training" for path in folder.iterdir()):
        raise UsageError(f"{folder} exists and is not a training run: it is left alone, choose another --out")
