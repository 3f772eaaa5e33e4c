"""A whole training run: recipe in, model folder out.

    runs/NAME/                 a model folder, whole from the first validation on: the best weights so far
    runs/NAME/training/        what resume needs: the complete recipe, tokenizers, data fingerprint, checkpoints
    runs/NAME/metrics.jsonl    every number that was reported
    runs/NAME/alignments/      a picture of one validation sentence for each validation

The same call again goes on where the last one stopped, bitwise as if it had not (one process, same machine).
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.api.loading import find_device, find_model, load
from regard.errors import DataError, UsageError
from regard.files import fingerprint, replace_file
from regard.models.folder import load_model, read_config, save_model
from regard.models.presets import make_model
from regard.text.data import PairData
from regard.text.tokenizer import Tokenizer, read_tokenizers, tokenizer_files, unseen
from regard.training import checkpoint
from regard.training.card import model_card
from regard.training.choose import Choice, complete, facts_of, this_machine
from regard.training.loop import Loop, needed
from regard.training.loss import objective
from regard.training.model_table import model_config
from regard.training.prepare import Corpora, Data, make_data, make_tokenizers, read_corpora
from regard.training.recipe import LANGUAGE_MODELS, Recipe
from regard.training.recipe_file import apply_overrides, changed_keys, fill_in, read_recipe, to_toml
from regard.training.report import Report, duration
from regard.training.validate import Validator

Say = Callable[[str], None]

FINISHED = "finished"  # the file in training/ that says that nothing is left to do


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


def train(
    recipe: str | Path | Recipe,
    *,
    out: str | Path | None = None,
    init: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    say: Say | None = None,
    quiet: bool = False,
    tensorboard: bool = False,
) -> Run:
    """Train a model, or go on where an earlier call with the same recipe stopped.

    `recipe` is a TOML file, the name of a shipped recipe, or a Recipe; `overrides` such as {"training.lr": 3e-4} are
    laid over it. The run lands in `out`, runs/NAME when not given. `init` is a trained model (a folder or a shipped
    name) whose weights and tokenizer the training starts from.
    """
    if isinstance(recipe, Recipe):
        asked = apply_overrides(recipe, overrides or {})
    else:
        asked = read_recipe(recipe, overrides)
    folder = Path(out) if out is not None else Path("runs") / asked.name
    say = say or (lambda text: None)
    with errors_tell(folder):
        ready = prepare(asked, folder=folder, init=init, say=say)
        return run_training(ready, folder, say=say, quiet=quiet, tensorboard=tensorboard)


def prepare(asked: Recipe, *, folder: Path | None, init: str | Path | None = None, say: Say) -> Prepared:
    """Read the data, fill the recipe in, train or load the tokenizers, make the model.

    With a folder, what is decided there already (an earlier start of the same run) is kept, and the rest is written.
    """
    corpora = read_corpora(asked)
    say(f"data: {corpora.train.report}")
    kept = None if folder is None else folder / "training"
    choices: list[Choice] = []
    if kept is not None and (kept / "recipe.toml").exists():
        recipe = resumed_recipe(asked, kept, corpora, init=init)
        source, target = read_tokenizers(kept)
    else:
        if folder is not None and folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} exists and is not a training run: it is left alone, choose another --out")
        given = with_held_out(asked if init is None else start_from(asked, init), corpora)
        recipe, choices = complete(given, facts_of(corpora.train), this_machine(given.training.device))
        for choice in choices:
            say(f"chosen: {choice}")
        if init is None:
            source, target = make_tokenizers(recipe, corpora.train)
        else:
            source, target = read_tokenizers(find_model(init))
    device = find_device(recipe.training.device or "auto")
    torch.manual_seed(recipe.training.seed)
    if init is None:
        model = make_model(
            model_config(recipe.kind, recipe.model, source_vocabulary=source.size, target_vocabulary=target.size)
        )
    else:
        model = load_model(find_model(init))
    train_data, validation_data = make_data(recipe, corpora, source, target)
    if kept is not None and not (kept / "recipe.toml").exists():
        write_start(kept, recipe, corpora, (source, target), init=init)
    return Prepared(recipe, corpora, (source, target), train_data, validation_data, model.to(device), device, choices)


def resumed_recipe(asked: Recipe, kept: Path, corpora: Corpora, *, init: str | Path | None = None) -> Recipe:
    """The recipe that the run began with, if what is asked now, the data and the first weights are still the same."""
    began = read_recipe(kept / "recipe.toml")
    now = fill_in(asked, began)
    if changed := changed_keys(began, now):
        raise UsageError(
            f"{kept.parent} was begun with other settings: {'; '.join(changed)}. Go on with those of the beginning, "
            f"or train into another --out"
        )
    data = json.loads((kept / "data.json").read_bytes())
    if data["fingerprint"] != corpora.fingerprint:
        raise DataError(
            f"{kept.parent} was begun on other data: {data['train']:,} training and {data['validation']:,} validation "
            f"samples then, {len(corpora.train):,} and {len(corpora.validation):,} now, or other words in them. "
            f"Put the files back, or train into another --out"
        )
    if data.get("init") != first_weights(init):
        began_with = "from another model's weights" if data.get("init") else "from fresh weights"
        raise UsageError(f"{kept.parent} was begun {began_with}: give the same --init, or train into another --out")
    return now


def first_weights(init: str | Path | None) -> str | None:
    """The sha256 of the weights that a training starts from; None where they are fresh."""
    return None if init is None else str(fingerprint(find_model(init) / "model.safetensors")["sha256"])


def with_held_out(asked: Recipe, corpora: Corpora) -> Recipe:
    """The recipe with the size of the validation part that was held out, so that the next start splits the same."""
    data = asked.data
    if data.validation is not None or data.validation_source or data.validation_pairs or data.validation_text:
        return asked
    held = sum(map(len, corpora.validation.source)) if asked.kind in LANGUAGE_MODELS else len(corpora.validation)
    return dataclasses.replace(asked, data=dataclasses.replace(data, validation=held))


def start_from(asked: Recipe, init: str | Path) -> Recipe:
    """The recipe for going on from a trained model: its kind, its settings, its kind of tokenizer."""
    settings = read_config(find_model(init))
    config = {key: value for key, value in settings["model"].items() if "vocabulary" not in key and key != "pad_id"}
    given = {key: value for key, value in asked.model.items() if key != "kind"}
    if differing := [key for key, value in given.items() if config.get(key) != value]:
        raise UsageError(
            f"--init {init}: its weights fit its own settings, but the recipe asks for another {', '.join(differing)}"
        )
    if "kind" in asked.model and asked.kind != settings["kind"]:
        raise UsageError(f"--init {init}: it is a {settings['kind']}, and the recipe asks for a {asked.kind}")
    if asked.tokenizer.size is not None or asked.tokenizer.kind is not None:
        raise UsageError(f"--init {init}: its tokenizer is kept, so the recipe cannot ask for another one")
    filled = {key: value for key, value in config.items() if value is not None}
    return dataclasses.replace(asked, model={"kind": settings["kind"], **filled})


def write_start(
    kept: Path,
    recipe: Recipe,
    corpora: Corpora,
    tokenizers: tuple[Tokenizer, Tokenizer],
    *,
    init: str | Path | None = None,
) -> None:
    """Write down what the run was begun with; the recipe last, for it says that the rest is there."""
    kept.mkdir(parents=True, exist_ok=True)
    for name, content in tokenizer_files(*tokenizers).items():
        replace_file(kept / name, content)
    data = {
        "fingerprint": corpora.fingerprint,
        "train": len(corpora.train),
        "validation": len(corpora.validation),
        "report": corpora.train.report.to_dict(),
        "init": first_weights(init),
    }
    replace_file(kept / "data.json", json.dumps(data, indent=1, ensure_ascii=False).encode())
    replace_file(kept / "recipe.toml", to_toml(recipe).encode())


def run_training(ready: Prepared, folder: Path, *, say: Say, quiet: bool = False, tensorboard: bool = False) -> Run:
    """Train what is prepared, from the newest checkpoint where there is one, and leave a model folder."""
    recipe, model, device = ready.recipe, ready.model, ready.device
    training = recipe.training
    loss = objective(model, smoothing=training.label_smoothing or 0.0, temperature=training.temperature)
    loop = Loop(model, ready.train, loss, training, device=device)
    info = model_info(ready)
    validator = Validator(
        model, recipe, ready.corpora, ready.validation, ready.tokenizers, loss, folder=folder, device=device, info=info
    )
    kept = folder / "training"
    saved = checkpoint.load_checkpoint(kept)
    if saved is not None:
        loop.restore(saved)
        progress = loop.progress
        if progress.step < needed(training.steps) and not (training.patience and progress.stale >= training.patience):
            progress.ended = ""  # more steps, or more patience, than when it ended
        if progress.ended and (kept / FINISHED).exists():
            say(f"already complete: {progress.ended}, at step {progress.step}")
            return Run(folder, read_config(folder).get("scores", {}))
        say(f"going on from step {progress.step}")
    (kept / FINISHED).unlink(missing_ok=True)

    def keep_best() -> None:
        save_trained(ready, validator, loop, folder, info)

    with (
        deterministic(training.deterministic),
        Report(
            folder, steps=needed(training.steps), start=loop.progress.step, quiet=quiet, tensorboard=tensorboard
        ) as report,
    ):
        loop.run(report, kept, validate=validator, better=keep_best)
    finish(ready, validator, loop, folder, info, say=say)
    scores = read_config(folder).get("scores", {})
    say(f"{loop.progress.ended}; trained for {duration(loop.progress.seconds)}; the model is in {folder}")
    return Run(folder, scores)


def finish(ready: Prepared, validator: Validator, loop: Loop, folder: Path, info: dict[str, Any], *, say: Say) -> None:
    """Make the folder's model the best: the mean of the last checkpoints where that is better than the best step."""
    training, progress = ready.recipe.training, loop.progress
    last = checkpoint.model_weights(ready.model)
    if training.average > 1:
        weights, steps = checkpoint.average_weights(folder / "training", training.average)
        checkpoint.put_weights(ready.model, weights)
        found = validator(progress.step)
        say(f"mean of the checkpoints of steps {', '.join(map(str, steps))}: {found.line}")
        if progress.best is None or found.score > progress.best:
            progress.best, progress.best_step = found.score, progress.step
            save_trained(ready, validator, loop, folder, info)
    checkpoint.put_weights(ready.model, last)
    replace_file(folder / "training" / FINISHED, b"")  # stopped before this line, the next start finishes again


def save_trained(ready: Prepared, validator: Validator, loop: Loop, folder: Path, info: dict[str, Any]) -> None:
    """The model as it is now, with its scores and card, as the run's model folder."""
    found = {**info, "scores": validator.scores, "alignment": validator.alignment_head()}
    card = model_card(ready.model, ready.recipe, loop.progress, scores=validator.scores, samples=validator.samples)
    files = tokenizer_files(*ready.tokenizers)
    save_model(ready.model, folder, files=files, info={k: v for k, v in found.items() if v is not None}, card=card)


def model_info(ready: Prepared) -> dict[str, Any]:
    """What config.json says beside the model's settings."""
    recipe, data = ready.recipe, ready.recipe.data
    told = dataclasses.asdict(recipe)
    for key, value in told["data"].items():
        if isinstance(value, tuple) and key != "columns":
            told["data"][key] = [os.path.basename(name) for name in value]  # where they lie is nobody else's business
    info: dict[str, Any] = {"recipe": told}
    if data.source_language or data.target_language:
        info["languages"] = {"source": data.source_language, "target": data.target_language}
    if recipe.kind in LANGUAGE_MODELS:
        info["context"] = data.context
    elif isinstance(ready.train, PairData) and recipe.kind != "encoder":
        met = np.unique(ready.train.rows[0].flat).tolist()
        info["unseen_pieces"] = unseen(ready.tokenizers[0], [met])
    return info


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Only operations that give the same bits each time, where the recipe asks for it; a GPU is slower then."""
    before = torch.are_deterministic_algorithms_enabled()
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def errors_tell(folder: Path) -> Iterator[None]:
    """Permission and disk errors name the run's folder."""
    try:
        yield
    except PermissionError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
