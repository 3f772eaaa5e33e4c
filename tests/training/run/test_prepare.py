"""The preparation of a run."""

from __future__ import annotations

import pytest

from regard.training.recipe.schema import DataRecipe, Recipe, TokenizerRecipe, TrainingRecipe
from regard.training.run.prepare import prepare

RECIPE = Recipe(
    name="a",
    data=DataRecipe(demo=200, validation=20),
    tokenizer=TokenizerRecipe(kind="characters"),
    model={"kind": "transformer", "preset": "transformer-tiny"},
    training=TrainingRecipe(steps=2, device="cpu"),
)


def test_a_complete_recipe_is_warned_about_memory_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete recipe, such as the output of --dry-run, leaves nothing to choose; memory is checked all the same."""
    messages: list[str] = []
    complete = prepare(RECIPE, folder=None, say=messages.append)
    assert complete.choices and not any(message.startswith("warning") for message in messages)
    monkeypatch.setattr("regard.training.budget.fit.available_memory", lambda device: 1 << 20)
    ready = prepare(complete.recipe, folder=None, say=messages.append)
    assert ready.recipe == complete.recipe and ready.choices == []
    (warning,) = (message for message in messages if message.startswith("warning"))
    assert "will hardly fit: steps take about" in warning
