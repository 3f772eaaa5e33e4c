"""The language models of Shakespeare's plays have the sizes that the docs claim, and hold out the same part."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.models.presets import make_model
from regard.training.recipe.toml_file import read_recipe

CHARACTERS = 1_115_394  # of the file
LETTERS = 65 + 4  # with the special tokens
MILLIONS = {  # of parameters
    "shakespeare": 2.7,
    "shakespeare-10m": 10.7,
    "shakespeare-best": 4.8,
    "shakespeare-cpu": 0.8,
    "shakespeare-rnn": 10.6,
}


@pytest.mark.parametrize(("name", "wanted"), MILLIONS.items())
def test_sizes(name: str, wanted: float) -> None:
    model = make_model(read_recipe(name).config(source_vocabulary=LETTERS, target_vocabulary=LETTERS))
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(wanted, abs=0.06)


def test_the_sizes_that_are_compared_are_one() -> None:
    """nanoGPT's model has 6 layers with 12 · 384² weights each, and a row of 384 for each of 65 letters."""
    published = 6 * 12 * 384**2 + 65 * 384
    recipe = read_recipe("shakespeare-10m")
    assert [recipe.model[key] for key in ("layers", "heads", "dim")] == [6, 6, 384] and recipe.data.context == 256
    for name in ("shakespeare-10m", "shakespeare-rnn"):
        assert MILLIONS[name] * 1e6 == pytest.approx(published, rel=0.01)


def test_the_last_tenth_is_held_out(tmp_path: Path) -> None:
    """Of a file of that length the first 90%, rounded down, are learnt, and all the rest is validated."""
    text = "".join(f"{number:08}\n" for number in range(CHARACTERS // 9)) + "the\n" + "\n" * (CHARACTERS % 9 - 4)
    (tmp_path / "input.txt").write_text(text)
    assert len(text) == CHARACTERS
    recipe = read_recipe("shakespeare", {"data.text": str(tmp_path / "input.txt")})
    parts = recipe.task.read(recipe)
    (train,), (validation,) = parts.train.source, parts.validation.source
    assert len(train) == CHARACTERS * 9 // 10 and train + validation == text
    for name in MILLIONS:
        recipe = read_recipe(name)
        assert recipe.data.validation == len(validation) == 111_540 and recipe.tokenizer.kind == "characters"
