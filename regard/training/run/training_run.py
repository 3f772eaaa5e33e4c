"""A whole training run: recipe in, model folder out.

    runs/NAME/                 a model folder, whole from the first validation on: the best weights so far
    runs/NAME/training/        what resume needs: the complete recipe, tokenizers, data fingerprint, checkpoints
    runs/NAME/metrics.jsonl    every number that was reported
    runs/NAME/alignments/      a picture of one validation sentence for each validation

The same call again goes on where the last one stopped, bitwise as if it had not (same machine and number of processes).
One training at a time holds the folder. With several processes the first one reads, decides and writes, and the others
follow it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.api.model_names import find_model
from regard.errors import RegardError, ResourceError, UsageError
from regard.files import locked, remove_leftovers
from regard.models.folder import load_model, read_config
from regard.models.presets import make_model
from regard.recipes.model_table import model_config
from regard.tasks.loading import find_device, load
from regard.text.check.checker import LONGEST, short_check
from regard.text.tokenizers.tokenizer import Tokenizer, read_tokenizers
from regard.training.budget.fit import disk_lines, fit_batch
from regard.training.budget.forecast import forecast_lines
from regard.training.budget.memory import recipe_loss
from regard.training.checkpoint import files as checkpoint
from regard.training.checkpoint.resume import new_generators, restore_state
from regard.training.loop.loop import Loop, needed
from regard.training.loop.report import Report, time_of
from regard.training.loop.signals import StopFlag
from regard.training.parallel.group import ALONE, MEETING, Group, join
from regard.training.recipe.defaults import Choice, complete, facts_of, this_machine
from regard.training.recipe.schema import Recipe, TrainingRecipe
from regard.training.recipe.toml_file import apply_overrides, read_recipe
from regard.training.run.best_model import FINISHED, Result
from regard.training.run.prepare import Corpora, Data, make_data, make_tokenizers, read_corpora
from regard.training.run.run_start import resumed_recipe, start_from, with_held_out, write_start

Say = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """A training that has ended."""

    folder: Path
    scores: dict[str, Any]

    def load(self, **options: Any) -> Any:
        """The trained model, as `regard.load` gives it."""
        return load(self.folder, **options)


@dataclass(frozen=True)
class Prepared:
    """All that the loop needs, made from a recipe."""

    recipe: Recipe  # complete
    corpora: Corpora
    tokenizers: tuple[Tokenizer, Tokenizer]
    train: Data
    validation: Data
    model: nn.Module
    device: torch.device
    choices: list[Choice]
    fingerprint: str  # of the data


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
    """Train a model, or go on where an earlier call with the same recipe stopped.

    `recipe` is a TOML file, the name of a shipped recipe, or a Recipe; `overrides` such as {"training.lr": 3e-4} are
    laid over it. The run lands in `out`, runs/NAME when not given. `init` is a trained model (a folder or a shipped
    name) whose weights and tokenizer the training starts from. `allow_changed_data` goes on although the files hold
    other sentences than at the beginning: with the old tokenizer, at the start of the next epoch.
    """
    if isinstance(recipe, Recipe):
        asked = apply_overrides(recipe, overrides or {})
    else:
        asked = read_recipe(recipe, overrides)
    folder = Path(out) if out is not None else Path("runs") / asked.name
    with join() as group, errors_tell(folder), held(folder, group) as stale:
        say = say if say is not None and group.first else (lambda text: None)
        if stale:
            say(f"the last training here was cut off ({stale}); this one takes its place")
        if not group.first:
            group.wait()  # what the first one decides is there then
        ready = prepare(asked, folder=folder, init=init, say=say, group=group, allow_changed_data=allow_changed_data)
        if group.first:
            group.wait()
        return run_training(
            ready, folder, say=say, quiet=quiet or not group.first, tensorboard=tensorboard, group=group
        )


@contextmanager
def held(folder: Path, group: Group) -> Iterator[str | None]:
    """Hold the run's folder, so that no other training writes into it; gives the entry of one that was cut off."""
    if not group.first:
        yield None
        return
    lock = folder / "training" / "lock"
    made = [path for path in (lock.parent, folder, folder.parent) if not path.exists()]
    try:
        with locked(lock, holder="a training") as stale:
            remove_leftovers(folder)
            for path in lock.parent.glob(".meeting-*"):
                if str(path.absolute()) != os.environ.get(MEETING):
                    path.unlink(missing_ok=True)
            yield stale
    finally:
        for path in made:  # a training that could not begin leaves no empty folders
            with suppress(OSError):
                path.rmdir()


def prepare(
    asked: Recipe,
    *,
    folder: Path | None,
    init: str | Path | None = None,
    say: Say,
    group: Group = ALONE,
    allow_changed_data: bool = False,
) -> Prepared:
    """Read the data, fill the recipe in, train or load the tokenizers, make the model.

    With a folder, what is decided there already (an earlier start of the same run) is kept, and the rest is written.
    """
    corpora = read_corpora(asked)
    say(f"data: {corpora.train.report}")
    kept = None if folder is None else folder / "training"
    choices: list[Choice] = []
    if kept is not None and (kept / "recipe.toml").exists():
        recipe = resumed_recipe(asked, kept, corpora, init=init, allow_changed_data=allow_changed_data)
        source, target = read_tokenizers(kept)
    else:
        if folder is not None and folder.exists() and any(path.name != "training" for path in folder.iterdir()):
            raise UsageError(f"{folder} exists and is not a training run: it is left alone, choose another --out")
        given = with_held_out(asked if init is None else start_from(asked, init), corpora)
        recipe, choices = complete(given, facts_of(corpora.train), this_machine(given.training.device))
        if init is None:
            source, target = make_tokenizers(recipe, corpora.train)
        else:
            source, target = read_tokenizers(find_model(init))
    if group.first:
        for line in short_check(corpora.train, corpora.validation, limit=recipe.data.max_length or LONGEST):
            say(f"data: {line}")
    device = group.device(find_device(recipe.training.device or "auto"))
    torch.manual_seed(recipe.training.seed)
    if init is None:
        model = make_model(
            model_config(recipe.kind, recipe.model, source_vocabulary=source.size, target_vocabulary=target.size)
        )
    else:
        model = load_model(find_model(init))
    model.to(device)
    if choices:
        fitted = fit_batch(recipe, choices, model, corpora, (source, target), device=device, world=group.world)
        recipe, choices = fitted.recipe, fitted.choices
        for choice in choices:
            say(f"chosen: {choice}")
        if fitted.warning:
            say(f"warning: {fitted.warning}")
    train_data, validation_data = make_data(
        recipe, corpora, source, target, cache=None if kept is None else kept / "tokens", device=device
    )
    if device.type != "cpu":
        say(f"data: tokens {train_data.where}")
    if kept is not None and group.first:
        write_start(kept, recipe, corpora, (source, target), init=init)
    if not group.first:
        new_generators(recipe.training.seed, group.rank)
    return Prepared(
        recipe=recipe,
        corpora=corpora,
        tokenizers=(source, target),
        train=train_data,
        validation=validation_data,
        model=model,
        device=device,
        choices=choices,
        fingerprint=corpora.fingerprint,
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
    """Train what is prepared, from the newest checkpoint where there is one, and leave a model folder."""
    training, kept = ready.recipe.training, folder / "training"
    loss = recipe_loss(ready.model, training, together=group.together if group.world > 1 else None)
    with StopFlag() as stop, kernels(training, ready.device):
        loop = Loop(
            ready.model, ready.train, loss, training, device=ready.device, group=group, fingerprint=ready.fingerprint
        )
        result = Result(ready, loop, folder, stop)
        saved = checkpoint.load_checkpoint(kept)
        if saved is not None:
            if group.first:
                checkpoint.point_at(kept, saved.step)  # the kill may have come between a checkpoint and its pointer
            restore_state(loop, saved)
            progress = loop.progress
            if progress.step < needed(training.steps) and not (
                training.patience and progress.stale >= training.patience
            ):
                progress.ended = ""  # more steps, or more patience, than when it ended
            # The first process decides: another one might come to look only when the note of this start is there.
            complete = group.first and bool(progress.ended) and (kept / FINISHED).exists()
            if group.most(complete)[0]:
                say(f"already complete: {progress.ended}, at step {progress.step}")
                return Run(folder, read_config(folder).get("scores", {}))
            say(f"going on from step {progress.step}")
        if group.first:
            (kept / FINISHED).unlink(missing_ok=True)
            progress = loop.progress
            for line in disk_lines(ready.recipe, ready.model, folder):
                say(line)
            if not quiet:  # it takes some seconds
                start, epoch = progress.step, progress.epoch
                for line in forecast_lines(ready, start=start, epoch=epoch, world=group.world, stop=stop):
                    say(line)
        report = Report(
            folder,
            steps=needed(training.steps),
            start=loop.progress.step,
            quiet=quiet,
            tensorboard=tensorboard,
            silent=not group.first,
        )
        with report:
            loop.run(report, kept, validate=result.validator, better=result.keep, stop=stop)
        if group.first:
            result.finish(say)
        group.wait()
    took = time_of(loop.progress.seconds, loop.progress.preparing)
    say(f"{loop.progress.ended}; trained for {took}; the model is in {folder}")
    return Run(folder, read_config(folder).get("scores", {}))


@contextmanager
def kernels(training: TrainingRecipe, device: torch.device) -> Iterator[None]:
    """The kernels that a training uses.

    With `deterministic` only those that give the same bits each time, where a GPU has slower ones. cuDNN's attention
    plans anew for every shape of a batch (on an H200, 60 batches of as many shapes took 28.8 s with it and 3.8 s
    without), so it is for compiled training only, where long texts of one shape gain most.
    """
    before, plans = torch.are_deterministic_algorithms_enabled(), torch.backends.cuda.cudnn_sdp_enabled()
    if training.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    if device.type == "cuda" and not training.compile:
        torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.backends.cuda.enable_cudnn_sdp(plans)


@contextmanager
def errors_tell(folder: Path) -> Iterator[None]:
    """Errors of the operating system, and of torch's compiler, say what to do."""
    try:
        yield
    except RegardError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise UsageError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
        if (full := checkpoint.disk_is_full(error)) is not None:
            left = checkpoint.what_is_left(folder / "training")
            raise ResourceError(f"cannot write to {folder}: {full}. {left}") from error
        if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            told = next(iter(str(error).splitlines()), type(error).__name__)
            raise UsageError(
                f"torch's compiler failed ({told}); --set training.compile=false trains without it"
            ) from error
        raise
