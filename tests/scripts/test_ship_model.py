"""scripts/ship_model.py: a run becomes a small folder that loads, with its scores and its data's owners in the card."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from regard.api.translator import Translator
from regard.models.config import TransformerConfig
from regard.models.folder import read_config, save_model
from regard.models.presets import make_model
from regard.recipes.tables import DataRecipe
from regard.tasks import task_for
from regard.tasks.loading import load
from regard.text.tokenizers.subwords import train_subwords
from regard.text.tokenizers.tokenizer import tokenizer_files
from regard.training.recipe.schema import Recipe
from regard.training.run.model_card import model_card
from regard.training.state.progress import Progress

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ship_model", ROOT / "scripts/ship_model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(tmp_path: Path, script: ModuleType) -> Path:
    """A run as training leaves it, and files to test it on."""
    (tmp_path / "test.fr").write_text("le chat dort\nun chien mange\n")
    (tmp_path / "test.en").write_text("the cat sleeps\na dog eats\n")
    tokenizer = train_subwords(
        ["le chat dort", "the cat sleeps", "un chien mange"], size=None, kind="bpe", lossless=False
    )
    sizes = {"source_vocabulary": tokenizer.size, "target_vocabulary": tokenizer.size}
    model = make_model(TransformerConfig(layers=1, dim=16, heads=2, hidden=16, **sizes))
    recipe = Recipe(name="first", data=DataRecipe(source=("a.fr",), target=("a.en",)), model={"kind": "transformer"})
    card = model_card(model, recipe, Progress(), scores={"loss": 1.0}, samples=[])
    folder = tmp_path / "first"
    (folder / "training").mkdir(parents=True)
    return save_model(
        model, folder, files=tokenizer_files(tokenizer, tokenizer), info={"scores": {"loss": 1.0}}, card=card
    )


def test_a_run_is_shipped(run: Path, script: ModuleType) -> None:
    files = (run.parent / "test.fr", run.parent / "test.en")
    folder = script.ship(run, run.parent / "small", storage="int8", attribution="By Jane, CC BY.", test=files)
    config = read_config(folder)
    assert config["storage"] == "int8" and config["scores"]["loss"] == 1.0
    assert config["scores"]["test_bleu"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    card = (folder / "README.md").read_text()
    assert card.startswith("# small\n") and "Trained on `a.fr`, `a.en`. By Jane, CC BY.\n" in card
    assert "Before you share the model" not in card and "regard translate -m THIS_FOLDER -t" in card
    assert f"| BLEU | {config['scores']['test_bleu']['value']:.2f} | nrefs:1\\|case" in card
    assert card.index("test part") < card.index("validation part")
    assert not (folder / "training").exists()
    found = load(str(folder), device="cpu")
    assert isinstance(found, Translator) and found.translate("le chat").source == "le chat"


def test_no_model_goes_out_without_its_owners(run: Path, script: ModuleType) -> None:
    with pytest.raises(SystemExit, match="pass --attribution"):
        script.ship(run, run.parent / "small", storage="int8", attribution=None, test=None)
    assert not (run.parent / "small").exists()
    shipped = script.ship(run, run.parent / "small", storage="int8", attribution="By Jane.", test=None)
    with pytest.raises(SystemExit, match="says already who owns the data"):
        script.ship(shipped, run.parent / "again", storage="int8", attribution="By John.", test=None)


@pytest.mark.parametrize("folder", sorted((ROOT / "regard/shipped").iterdir()), ids=lambda folder: folder.name)
def test_the_card_of_a_shipped_model_says_how_to_use_it(folder: Path) -> None:
    usage, *_ = task_for(read_config(folder)["kind"]).usage.splitlines()
    assert f"\n{usage.replace('FOLDER', 'THIS_FOLDER')}\n" in (folder / "README.md").read_text(encoding="utf-8")


def test_all_shipped_models_together_stay_below_30_megabytes() -> None:
    """The package carries them all, so a larger model has to be weighed against the others."""
    sizes = {file: file.stat().st_size for file in (ROOT / "regard/shipped").rglob("*") if file.is_file()}
    assert 0 < sum(sizes.values()) < 30_000_000
