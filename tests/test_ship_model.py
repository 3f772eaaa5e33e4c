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
from regard.tasks.loading import load
from regard.text.tokenizers.subwords import train_subwords
from regard.text.tokenizers.tokenizer import tokenizer_files

ROOT = Path(__file__).parents[1]


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
    card = f"# first\n\n{script.VALIDATION}\n\n| loss | 1 | |\n\n## Data\n\nTrained on `a`. {script.OPEN}\n"
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
    assert card.startswith("# small\n") and "By Jane, CC BY." in card and script.OPEN not in card
    assert f"| BLEU | {config['scores']['test_bleu']['value']:.2f} | nrefs:1\\|case" in card
    assert card.index("test part") < card.index(script.VALIDATION)
    assert not (folder / "training").exists()
    found = load(str(folder), device="cpu")
    assert isinstance(found, Translator) and found.translate("le chat").source == "le chat"


def test_no_model_goes_out_without_its_owners(run: Path, script: ModuleType) -> None:
    with pytest.raises(SystemExit, match="--attribution"):
        script.ship(run, run.parent / "small", storage="int8", attribution=None, test=None)
    assert not (run.parent / "small").exists()
