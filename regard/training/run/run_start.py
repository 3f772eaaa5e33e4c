"""How a run begins, and what a later start of it is held against: its recipe, its data, its first weights."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from regard.api.model_names import find_model
from regard.errors import DataError, ModelError, UsageError
from regard.files import fingerprint, replace_file
from regard.models.folder import read_config
from regard.models.folder_config import read_json, shortened
from regard.models.presets import MODELS
from regard.models.random_features import flatten_settings
from regard.recipes.model_table import table_of
from regard.text.tokenizers.tokenizer import Tokenizer, tokenizer_files
from regard.training.recipe.schema import Recipe
from regard.training.recipe.toml_file import changed_keys, fill_in, read_recipe, to_toml
from regard.training.run.prepare import Corpora


def resumed_recipe(
    asked: Recipe,
    kept: Path,
    corpora: Corpora,
    *,
    init: str | Path | None = None,
    allow_changed_data: bool = False,
) -> Recipe:
    """The recipe that the run began with, if what is asked now, the data and the first weights are still the same."""
    began = read_recipe(kept / "recipe.toml")
    now = fill_in(asked, began)
    if changed := changed_keys(began, now):
        raise UsageError(
            f"{kept.parent} was begun with other settings: {'; '.join(changed)}. Go on with those of the beginning, "
            f"or train into another --out"
        )
    try:
        data = read_json(kept / "data.json")
        told = f"{data['train']:,} training and {data['validation']:,} validation"
        data["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{kept / 'data.json'}: damaged ({shortened(error)}); train into another --out") from error
    if data["fingerprint"] != corpora.fingerprint and not allow_changed_data:
        raise DataError(
            f"{kept.parent} was begun on other data: {told} samples then, {len(corpora.train):,} "
            f"and {len(corpora.validation):,} now, or other words in them. "
            f"Put the files back, train into another --out, or go on with --allow-changed-data"
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
    return dataclasses.replace(asked, data=dataclasses.replace(data, validation=asked.task.held_out(corpora)))


def start_from(asked: Recipe, init: str | Path) -> Recipe:
    """The recipe for going on from a trained model: its kind, its settings, its kind of tokenizer."""
    settings = read_config(find_model(init))
    table = table_of(MODELS[settings["kind"]][0].from_dict(settings["model"]))
    trained, given = flatten_settings(table), flatten_settings(asked.model)
    if differing := [key for key in given if key != "kind" and not same_setting(trained.get(key), given[key])]:
        raise UsageError(
            f"--init {init}: its weights fit its own settings, but the recipe asks for another {', '.join(differing)}"
        )
    if "kind" in asked.model and asked.kind != settings["kind"]:
        raise UsageError(f"--init {init}: it is a {settings['kind']}, and the recipe asks for a {asked.kind}")
    if asked.tokenizer.size is not None or asked.tokenizer.kind is not None:
        raise UsageError(f"--init {init}: its tokenizer is kept, so the recipe cannot ask for another one")
    return dataclasses.replace(asked, model=table)


def same_setting(a: Any, b: Any) -> bool:
    """Tell whether two values of a setting are equal; JSON and TOML have lists where Python has tuples."""
    return (list(a) if isinstance(a, tuple) else a) == (list(b) if isinstance(b, tuple) else b)


def write_start(
    kept: Path,
    recipe: Recipe,
    corpora: Corpora,
    tokenizers: tuple[Tokenizer, Tokenizer],
    *,
    init: str | Path | None = None,
) -> None:
    """Write down what the run was begun with; the recipe last, for it says that the rest is there.

    Of a run that was begun before, only the data is written anew: it may have changed.
    """
    begun = (kept / "recipe.toml").exists()
    kept.mkdir(parents=True, exist_ok=True)
    if not begun:
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
    if not begun:
        replace_file(kept / "recipe.toml", to_toml(recipe).encode())
