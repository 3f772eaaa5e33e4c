"""Training with placeholders: the recipe key reaches the data and the model folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard
from regard.api.translator import Translator
from regard.demo.facts import fact_pairs
from regard.errors import UsageError
from regard.models.folder import load_model
from regard.text.tokenizers.special_tokens import PLACEHOLDERS, UNKNOWN
from regard.training.run.prepare import start_placeholders

SMALL = {
    "model.layers": 1,
    "model.dim": 16,
    "model.heads": 2,
    "model.hidden": 32,
    "training.steps": 2,
    "training.warmup": 1,
    "training.batch_tokens": 512,
    "training.device": "cpu",
    "decoding.sentences": 2,
    "data.validation": 20,
    "data.placeholders": True,
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("facts")
    pairs = fact_pairs(400)
    for side, name in enumerate(("train.fr", "train.en")):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    path = folder / "facts.toml"
    languages = 'source_language = "fr"\ntarget_language = "en"\n'
    path.write_text(f'[data]\nsource = "train.fr"\ntarget = "train.en"\n{languages}', encoding="utf-8")
    return path


def test_a_trained_folder_carries_over_facts(recipe: Path, tmp_path: Path) -> None:
    run = regard.train(recipe, out=tmp_path / "run", quiet=True, overrides=SMALL)
    translator = run.load()
    assert isinstance(translator, Translator)
    assert len(translator.reader.placeholders.symbols) == len(PLACEHOLDERS)  # training met all of them
    assert translator.translate("Le bus part à 17 h 45 le 3 mars.").text.count("17 h 45") == 1
    model = load_model(tmp_path / "run")
    start_placeholders(model, (translator.source_tokenizer, translator.target_tokenizer))
    table = next(weight for name, weight in model.named_parameters() if "embedding" in name)
    rows = table[[translator.source_tokenizer.encode(symbol)[0] for symbol in PLACEHOLDERS]]
    assert (rows - table[UNKNOWN]).norm(dim=1).max() < table[UNKNOWN].norm()
    assert len({*map(tuple, rows.tolist())}) == len(PLACEHOLDERS)


def test_characters_have_no_placeholders(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"data\.placeholders"):
        regard.train(
            recipe,
            out=tmp_path / "run",
            quiet=True,
            overrides={**SMALL, "tokenizer.kind": "characters"},
        )
