"""A whole recipe: all that decides a training run.

    Recipe(name="fr-en", data=DataRecipe(source="train.fr", target="train.en"), model={"kind": "transformer"})

None means "choose for me"; defaults.py fills it in. toml_file.py reads and writes recipes as TOML.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from regard.models.config import Config, RecurrentConfig, StackConfig
from regard.models.presets import MODELS
from regard.positions import SCHEMES
from regard.recipes.model_table import checked_model, model_config, model_keys
from regard.recipes.tables import ARRAY_KEYS, SHARES, DataRecipe, DecodingRecipe, TokenizerRecipe, TrainingRecipe
from regard.settings import SettingError, unknown_key
from regard.tasks import default_kind, task_for
from regard.tasks.task import Task

__all__ = [
    "KEYS",
    "SHARES",
    "TABLES",
    "DataRecipe",
    "DecodingRecipe",
    "Recipe",
    "TokenizerRecipe",
    "TrainingRecipe",
    "recipe_from",
    "why_not_captured",
]

NAME = re.compile(r"\w[\w.+-]*")  # a folder below runs/ has this name


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole training run. `model` has the kind of model and the settings that differ from that kind's defaults."""

    name: str
    data: DataRecipe
    tokenizer: TokenizerRecipe = field(default_factory=TokenizerRecipe)
    model: dict[str, Any] = field(default_factory=dict)
    training: TrainingRecipe = field(default_factory=TrainingRecipe)
    decoding: DecodingRecipe = field(default_factory=DecodingRecipe)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise SettingError(
                "name",
                f"name becomes the name of a folder, so it must consist of letters, digits, '.', '+', '-' and '_'; "
                f"got {self.name!r}",
            )
        object.__setattr__(self, "model", checked_model(self.model, otherwise=self.kind))
        if self.form not in self.task.forms:
            raise SettingError(
                "model.kind",
                f"a model of kind {self.kind} learns from {self.task.needs}, but the data is given as {self.form}",
            )
        longest = self.data.context or (self.data.max_length or 0) + 1  # with the start or end token
        scheme = SCHEMES[self.model.get("position", "none")]
        if scheme.limited and longest > self.model.get("max_length", StackConfig.max_length):
            raise SettingError(
                "model.max_length",
                f"model.max_length must be at least {longest}: the model learns a vector for each position",
            )
        for key, why in self._misfits():
            raise SettingError(key, f"{key} does not fit: a model of kind {self.kind} {why}")

    def _misfits(self) -> Iterator[tuple[str, str]]:
        """Yield settings that this kind of model would ignore; there are no options without effect."""
        yield from self.task.misfits(self)
        for key in ARRAY_KEYS:
            if key not in self.task.array_keys and getattr(self.data, key) != getattr(DataRecipe, key):
                yield f"data.{key}", "learns from other data"
        kinds = self.task.tokenizer_kinds
        if self.tokenizer.kind not in (None, *kinds):
            yield "tokenizer.kind", f"has tokens of another kind: {', '.join(kinds)}"
        if self.tokenizer.min_count is not None and "words" not in kinds:
            yield "tokenizer.min_count", "has no words as tokens"
        dropout, *inside = (self.model.get(key) for key in ("dropout", "attention_dropout", "hidden_dropout"))
        if self.training.r_drop and dropout == 0 and not any(inside):
            yield "training.r_drop", "has no dropout, so both passes of R-Drop would be equal"
        if self.training.capture and (why := why_not_captured(self.kind, self.model)):
            yield "training.capture", why

    @property
    def form(self) -> str:
        return self.data.form

    @property
    def kind(self) -> str:
        """The kind of model; when the recipe leaves it open, the default of a task that the data fits."""
        return self.model.get("kind") or default_kind(self.form)

    @property
    def task(self) -> Task:
        """What the model is trained for."""
        return task_for(self.kind)

    def config(self, *, source_vocabulary: int, target_vocabulary: int) -> Config:
        """Return the settings of the network, once the tokenizers are known; one side takes the target's."""
        return model_config(
            self.kind, self.model, source_vocabulary=source_vocabulary, target_vocabulary=target_vocabulary
        )


def why_not_captured(kind: str, model: Mapping[str, Any]) -> str | None:
    """Return what keeps the steps of such a model from being captured as CUDA graphs, None if nothing does."""
    if task_for(kind).compares_rows:
        return "compares the rows of a batch, so its batches cannot be padded to a few shapes"
    if not task_for(kind).fixed_shapes:
        return "has batches of many shapes, and each shape would be captured anew"
    if issubclass(MODELS[kind][0], RecurrentConfig) and (model.get("layers") or 1) > 1:
        return "with several layers draws the dropout between them inside cuDNN, which a captured step cannot repeat"
    return None


# The tables of a recipe that are dataclasses; [model] is not one of them.
TABLES: dict[str, type] = {
    "data": DataRecipe,
    "tokenizer": TokenizerRecipe,
    "training": TrainingRecipe,
    "decoding": DecodingRecipe,
}
KEYS: dict[str, tuple[str, ...]] = {
    "model": model_keys(),
    **{name: tuple(declared.name for declared in dataclasses.fields(schema)) for name, schema in TABLES.items()},
}


def recipe_from(tables: Mapping[str, Any]) -> Recipe:
    """Return the recipe of nested dicts, as in TOML or in config.json (dataclasses.asdict is the way back)."""
    known = {**KEYS, "model": model_keys()}  # a registered task may have brought more
    for table, settings in tables.items():
        if table not in ("name", *known):
            raise SettingError(table, unknown_key(table, "the recipe", ("name", *known)))
        if table == "name":
            continue
        if not isinstance(settings, Mapping):
            raise SettingError(table, f"{table} is a table: write [{table}] and its settings below it")
        for key in settings:
            if key not in known[table]:
                raise SettingError(f"{table}.{key}", _unknown(table, key, known))
    if "data" not in tables:
        raise SettingError("data", "the table [data] is missing: it says what to train on")
    parts = {name: schema(**tables.get(name, {})) for name, schema in TABLES.items()}
    return Recipe(name=tables.get("name", ""), model=dict(tables.get("model", {})), **parts)


def _unknown(table: str, key: str, known: Mapping[str, tuple[str, ...]]) -> str:
    elsewhere = [other for other, names in known.items() if key in names]
    if elsewhere:
        return f"unknown key {key!r} in [{table}]; it belongs in [{elsewhere[0]}]"
    return unknown_key(key, f"[{table}]", known[table])
