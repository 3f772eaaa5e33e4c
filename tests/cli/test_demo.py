"""`regard demo`: it trains, tests on new sentences, translates the lecture's example and shows where it looked."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.api.translator import Translator
from regard.cli import app, demo
from regard.cli.demo import JANE, TEST_SENTENCES
from regard.demo.corpus import demo_pairs
from regard.evaluation.bleu import corpus_bleu
from regard.training.run import training_run as training
from regard.training.run.training_run import train


def test_a_short_demo_shows_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With three steps on few sentences the translations are nonsense, but every part is there."""
    few = {"data.demo": 300, "data.validation": 10}
    monkeypatch.setattr(demo, "TEST_SENTENCES", 12)
    monkeypatch.setattr(
        training, "train", lambda recipe, *, overrides, **rest: train(recipe, overrides=overrides | few, **rest)
    )
    monkeypatch.setattr(sys, "argv", ["regard"])  # the commands that it suggests begin with the program's name
    out = tmp_path / "demo"
    result = CliRunner().invoke(app, ["demo", "--out", str(out), "--steps", "3"], env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.stderr
    shown = " ".join(result.stdout.split())
    assert re.search(r"\b12 test sentences that are not in the training data: BLEU \d+\.\d \(nrefs:1", shown)
    assert JANE in shown
    assert "septembre </s>" in shown  # the head of the alignment matrix
    assert shown.count("regard translate -m") == shown.count("regard train ") == shown.count("regard compare") == 1
    assert shown.count("regard explore ") == 1
    assert (out / "alignment.png").read_bytes().startswith(b"\x89PNG")
    assert "step 3/3" in result.stderr
    again = CliRunner().invoke(app, ["demo", "--out", str(out), "--steps", "3"])
    assert again.exit_code == 0
    assert "already complete" in again.stderr


def test_the_corpus_as_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.demo import corpus as demo_corpus

    small = {"train": 30, "validation": 5, "test": 5}
    real = demo_corpus.write_demo
    monkeypatch.setattr(demo_corpus, "write_demo", lambda folder, seed, **_: real(folder, seed=seed, **small))
    result = CliRunner().invoke(app, ["demo", "--corpus", str(tmp_path / "corpus")])
    assert result.exit_code == 0, result.stderr
    lines = [(tmp_path / "corpus" / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("fr", "en")]
    assert len(lines[0]) == len(lines[1]) == 30
    assert "train.fr" in result.stdout


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_every_seed_learns_the_demo(seed: int, tmp_path: Path) -> None:
    """At the recipe's number of steps: BLEU 95 or more on unseen sentences, and the running example right (E9)."""
    run = train("demo", out=tmp_path / "run", overrides={"training.seed": seed, "training.device": "cpu"}, quiet=True)
    translator = run.load(device="cpu")
    assert isinstance(translator, Translator)
    pairs = demo_pairs("test", TEST_SENTENCES)
    ours = [found.text for found in translator.translate([pair.source for pair in pairs], beam=1)]
    score = corpus_bleu(ours, [pair.target for pair in pairs])
    print(f"seed {seed}: {score}")
    assert score.value >= 95
    assert translator.translate(JANE).text == "Jane visits Africa in September"
