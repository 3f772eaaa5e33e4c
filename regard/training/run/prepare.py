"""The preparation of a run: read the data, complete the recipe, train or load the tokenizers, make the model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard import kernels
from regard.api.model_names import find_model
from regard.errors import UsageError
from regard.kernels.fp8.enable import why_not_fp8
from regard.layers.embedding import Embedding
from regard.machine import find_device, this_machine
from regard.models.folder import load_model, read_config
from regard.models.folder.loading import fill, make_empty
from regard.models.folder.weights_file import distinct_weights
from regard.models.presets import MODELS, make_model
from regard.models.protocols import config_of
from regard.recipes.facts import choice_lines
from regard.recipes.model_table import model_config
from regard.tasks.corpora import Corpora
from regard.tasks.imported_start import ImportedStart
from regard.tasks.task import Tokenizers
from regard.text.tokenizers.special_tokens import PLACEHOLDERS, UNKNOWN
from regard.text.tokenizers.tokenizer import read_tokenizers
from regard.training.budget.fit import fit_batch
from regard.training.checkpoint.checkpoints import seed_generators
from regard.training.parallel.group import ALONE, Group
from regard.training.prepared import Prepared
from regard.training.recipe.defaults import Choice, complete
from regard.training.recipe.schema import Recipe
from regard.training.run.data import make_data
from regard.training.run.run_start import DROPOUTS, resumed_recipe, start_from, with_held_out, write_start

Say = Callable[[str], None]
PLACEHOLDER_NOISE = 0.5  # of the length of UNKNOWN's vector: how far the placeholders' begin from it


def prepare(
    asked: Recipe,
    *,
    folder: Path | None,
    init: str | Path | None = None,
    say: Say,
    group: Group = ALONE,
    allow_changed_data: bool = False,
    verbose: bool = False,
) -> Prepared:
    """Read the data, complete the recipe, train or load the tokenizers, and make the model.

    With a folder, decisions of an earlier start of the same run are read from there, and new ones are written there.
    `choose_settings` chooses the batch size of a new run, and `fit_batch` (budget/fit.py) lowers it where memory is
    short. A batch size that the user has set stays as it is; if it will hardly fit, there is a warning. `verbose` says
    all chosen settings, and not only the main ones.
    """
    imported = None if init is None else ImportedStart.of_folder(find_model(init))
    corpora = asked.task.read(asked)
    say(f"data: {corpora.train.report}")
    resume_folder = None if folder is None else folder / "training"
    choices: list[Choice] = []
    is_resumed = resume_folder is not None and (resume_folder / "recipe.toml").exists()
    if resume_folder is not None and is_resumed:
        recipe = resumed_recipe(asked, resume_folder, corpora, init=init, allow_changed_data=allow_changed_data)
    else:
        recipe, choices = choose_settings(asked, corpora, init, fine_tuning=imported is not None)
    device = group.device(find_device(recipe.training.device or "auto"))
    check_precision(recipe, device)
    expected = has_vocabulary(recipe.kind)
    if resume_folder is not None and is_resumed:
        tokenizers = read_tokenizers(resume_folder, expected=expected)
    elif init is None:
        tokenizers = recipe.task.make_tokenizers(recipe, corpora.train)
    else:
        tokenizers = read_tokenizers(find_model(init), expected=expected)
    if group.first:
        for line in recipe.task.check(recipe, corpora):
            say(f"data: {line}")
    start = None if imported is None else imported.between(recipe)
    model = initial_model(recipe, corpora, tokenizers, init, device)
    if not is_resumed:
        fitted = fit_batch(recipe, choices, model, corpora, tokenizers, device=device, world=group.world)
        recipe, choices = fitted.recipe, fitted.choices
        elsewhere = "--verbose shows them" if resume_folder is None else f"{resume_folder / 'recipe.toml'} has them all"
        for line in choice_lines(choices, elsewhere, verbose=verbose):
            say(line)
        if fitted.warning:
            say(f"warning: {fitted.warning}")
    token_cache = None if resume_folder is None else resume_folder / "tokens"
    train_data, validation_data = make_data(recipe, corpora, *tokenizers, cache=token_cache, device=device, start=start)
    if device.type != "cpu":
        say(f"data: tokens {train_data.where}")
    if resume_folder is not None and group.first:
        write_start(resume_folder, recipe, corpora, tokenizers, init=init, choices=choices)
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
        start=start,
    )


def choose_settings(
    asked: Recipe, corpora: Corpora, init: str | Path | None, *, fine_tuning: bool = False
) -> tuple[Recipe, list[Choice]]:
    """Complete a new run's recipe (recipe/defaults.py); return it with the chosen settings and their reasons."""
    start = with_held_out(asked if init is None else start_from(asked, init), corpora)
    facts, machine = start.task.facts(start, corpora), this_machine(start.training.device)
    return complete(start, facts, machine, fine_tuning=fine_tuning)


def has_vocabulary(kind: str) -> bool:
    """Whether models of that kind have a tokenizer, of texts or of labels."""
    return bool(MODELS[kind][0].vocabulary_fields())


def check_precision(recipe: Recipe, device: torch.device) -> None:
    """Refuse products of 8 bits on a device that has none."""
    if recipe.training.precision == "fp8" and (reason := why_not_fp8(device)) is not None:
        raise UsageError(f'training.precision = "fp8" is not possible here: {reason}; leave it out, or take "bf16"')


def initial_model(
    recipe: Recipe, corpora: Corpora, tokenizers: Tokenizers, init: str | Path | None, device: torch.device
) -> nn.Module:
    """Return a fresh model, or the model `init`, on the device; on a GPU with fused modules unless the recipe objects.

    This seeds torch's generators, from which the fresh weights and later dropout are drawn.
    """
    torch.manual_seed(recipe.training.seed)
    if init is None:
        source, target = tokenizers
        config = model_config(recipe.kind, recipe.model, source_vocabulary=source.size, target_vocabulary=target.size)
        model = make_model(config)
        recipe.task.start_model(model, tokenizers, corpora.train)
    else:
        model = with_dropout(load_model(find_model(init)), recipe.model)
        if recipe.data.placeholders and not trained_with_placeholders(read_config(find_model(init))):
            start_placeholders(model, tokenizers)
    model.to(device)
    if recipe.training.kernels == "auto" and device.type == "cuda":
        kernels.fuse(model, fp8=recipe.training.precision == "fp8")
    return model


def with_dropout(model: nn.Module, settings: Mapping[str, Any]) -> nn.Module:
    """Return a trained model with the dropout of a [model] table, which may differ from that of its own training."""
    config: Any = config_of(model)
    wanted = dataclasses.replace(config, **{key: settings[key] for key in DROPOUTS if key in settings})
    return model if wanted == config else fill(make_empty(wanted), distinct_weights(model))


def trained_with_placeholders(config: dict[str, Any]) -> bool:
    """Whether the recipe in a config.json has `data.placeholders`."""
    return bool(((config.get("recipe") or {}).get("data") or {}).get("placeholders"))


def start_placeholders(model: nn.Module, tokenizers: Tokenizers) -> None:
    """Let the rows of the placeholders begin near that of UNKNOWN, which a model has learnt to copy, but not equal."""
    embeddings = {module for module in model.modules() if isinstance(module, Embedding)}
    for tokenizer in {*tokenizers}:
        tokens = [tokenizer.encode(symbol)[-1] for symbol in PLACEHOLDERS]
        for table in (module.weight for module in embeddings if module.vocabulary == tokenizer.size):
            with torch.no_grad():
                noise = torch.randn(len(tokens), table.shape[1]) / math.sqrt(table.shape[1])
                table[tokens] = table[UNKNOWN] + PLACEHOLDER_NOISE * table[UNKNOWN].norm() * noise.to(table)
