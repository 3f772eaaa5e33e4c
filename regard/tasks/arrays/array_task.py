"""What tasks without text share, such as image classification and forecasting: equal shapes, no tokenizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from regard.models.config import Config
from regard.recipes.facts import Choice, DataFacts
from regard.recipes.model_table import PLACEHOLDER, model_config
from regard.recipes.tables import SHARES, RecipeTables, TokenizerRecipe, TrainingRecipe
from regard.tasks.corpora import Corpora
from regard.tasks.task import LossUnit, Misfit, Task

TEXT_KEYS = (*SHARES, "columns", "source_language", "target_language", "max_length", "context", "names", "placeholders")


class ArrayTask(Task):
    """A task that learns from arrays of equal shape and reads and writes no text."""

    loss_unit: ClassVar[LossUnit] = "samples"
    fixed_shapes = True
    predicts_tokens = False
    tokenizer_kinds: ClassVar[tuple[str, ...]] = ()

    def check(self, recipe: RecipeTables, corpora: Corpora) -> list[str]:
        """Return nothing: what the readers of images and series notice is in their reports."""
        return []

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        data, training = recipe.data, recipe.training
        for key in TEXT_KEYS:
            if getattr(data, key) != getattr(type(data), key):
                yield f"data.{key}", "reads no text"
        for field in dataclasses.fields(TokenizerRecipe):
            if getattr(recipe.tokenizer, field.name) != field.default:
                yield f"tokenizer.{field.name}", "reads no text"
        if training.r_drop:
            yield "training.r_drop", "predicts no tokens"
        if training.temperature != TrainingRecipe.temperature:
            yield "training.temperature", "has no use for it"
        if training.pointing:
            yield "training.pointing", "has no pointer"

    def data_defaults(self, tables: Mapping[str, Any], facts: DataFacts, *, on_cpu: bool) -> Iterator[Choice]:
        yield from ()


def network_config(recipe: RecipeTables) -> Config:
    """Return the settings of the network of a recipe, with a stand-in for the number of labels."""
    return model_config(recipe.kind, recipe.model, source_vocabulary=PLACEHOLDER, target_vocabulary=PLACEHOLDER)
