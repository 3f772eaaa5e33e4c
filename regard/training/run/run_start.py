"""The start of a run: what it records, and how a later start is checked against it (recipe, data, first weights)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.api.model_names import find_model
from regard.errors import DataError, ModelError, UsageError
from regard.models.config.random_features import flatten_settings
from regard.models.folder import read_config
from regard.models.folder.config_file import read_json, shortened
from regard.models.presets import MODELS
from regard.recipes.facts import Choice
from regard.recipes.model_table import table_of
from regard.recipes.tables import FILES
from regard.system.files import fingerprint, replace_file
from regard.tasks.corpora import Corpora
from regard.text.tokenizers.tokenizer import Tokenizer, tokenizer_files
from regard.training.recipe.schema import Recipe
from regard.training.recipe.toml_file import changed_keys, fill_in, read_recipe, to_toml

DROPOUTS = ("dropout", "attention_dropout", "hidden_dropout")  # settings of a model that only training uses


def resumed_recipe(
    asked: Recipe,
    folder: Path,
    corpora: Corpora,
    *,
    init: str | Path | None = None,
    allow_changed_data: bool = False,
) -> Recipe:
    """Return the recipe that the run began with; raise unless settings, data and first weights are still the same."""
    original = read_recipe(folder / "recipe.toml")
    now = fill_in(asked, original)
    if changed := changed_keys(original, now):
        raise UsageError(
            f"{folder.parent} was begun with other settings: {'; '.join(changed)}. Continue with the original ones, "
            f"or train into another --out"
        )
    try:
        data = read_json(folder / "data.json")
        counts = f"{data['train']:,} training and {data['validation']:,} validation"
        data["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{folder / 'data.json'}: damaged ({shortened(error)}); train into another --out") from error
    if data["fingerprint"] != corpora.fingerprint and not allow_changed_data:
        raise DataError(
            f"{folder.parent} was begun on other data: {counts} samples then, {len(corpora.train):,} "
            f"and {len(corpora.validation):,} now, or other words in them. "
            f"Restore the files, train into another --out, or continue with --allow-changed-data"
        )
    if data.get("init") != first_weights(init):
        began_with = "from another model's weights" if data.get("init") else "from fresh weights"
        raise UsageError(f"{folder.parent} was begun {began_with}: give the same --init, or train into another --out")
    return now


def first_weights(init: str | Path | None) -> str | None:
    """Return the sha256 of the weights that a training run starts from; None if they are fresh."""
    return None if init is None else str(fingerprint(find_model(init) / "model.safetensors")["sha256"])


def with_held_out(asked: Recipe, corpora: Corpora) -> Recipe:
    """Record the size of the validation part in the recipe, so that the next start splits the data the same way."""
    data = asked.data
    if data.validation is not None or any(getattr(data, key) for key in FILES if key.startswith("validation_")):
        return asked
    return dataclasses.replace(asked, data=dataclasses.replace(data, validation=asked.task.held_out(corpora)))


def start_from(asked: Recipe, init: str | Path) -> Recipe:
    """Return the recipe for training that starts from a trained model: with its kind and its settings.

    Dropout has no weights, so the recipe may ask for another one.
    """
    settings = read_config(find_model(init))
    table = table_of(MODELS[settings["kind"]][0].from_dict(settings["model"]))
    trained, wanted = flatten_settings(table), flatten_settings(asked.model)
    compared = [key for key in wanted if key not in ("kind", *DROPOUTS)]
    if differing := [key for key in compared if not same_setting(trained.get(key), wanted[key])]:
        raise UsageError(
            f"--init {init}: its weights fit its own settings, but the recipe asks for another {', '.join(differing)}"
        )
    if "kind" in asked.model and asked.kind != settings["kind"]:
        raise UsageError(f"--init {init}: it is a {settings['kind']}, and the recipe asks for a {asked.kind}")
    if asked.tokenizer.size is not None or asked.tokenizer.kind is not None:
        raise UsageError(f"--init {init}: its tokenizer is kept, so the recipe cannot ask for another one")
    dropouts = {key: asked.model[key] for key in DROPOUTS if key in asked.model}
    return dataclasses.replace(asked, model={**table, **dropouts})


def same_setting(a: Any, b: Any) -> bool:
    """Tell whether two values of a setting are equal; JSON and TOML have lists where Python has tuples."""
    return (list(a) if isinstance(a, tuple) else a) == (list(b) if isinstance(b, tuple) else b)


def write_start(
    folder: Path,
    recipe: Recipe,
    corpora: Corpora,
    tokenizers: tuple[Tokenizer, Tokenizer],
    *,
    init: str | Path | None = None,
    choices: Sequence[Choice] = (),
) -> None:
    """Record what the run starts from; the recipe last, because it marks the record as complete.

    The recipe gives the reasons of the `choices` as comments.

    If the run was started before, only the description of the data is rewritten, because it may have changed.
    """
    is_resumed = (folder / "recipe.toml").exists()
    folder.mkdir(parents=True, exist_ok=True)
    if not is_resumed:
        for name, content in tokenizer_files(*tokenizers).items():
            replace_file(folder / name, content)
    data = {
        "fingerprint": corpora.fingerprint,
        "train": len(corpora.train),
        "validation": len(corpora.validation),
        "report": corpora.train.report.to_dict(),
        "init": first_weights(init),
    }
    replace_file(folder / "data.json", json.dumps(data, indent=1, ensure_ascii=False).encode())
    if not is_resumed:
        reasons = {choice.key: choice.why for choice in choices}
        replace_file(folder / "recipe.toml", to_toml(recipe, reasons).encode())
