"""Which step a run keeps, and what it says about it at the end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.evaluation.bleu import Score
from regard.models.folder import read_config
from regard.tasks.translation import TranslationValidator, translation_measure
from regard.tasks.validation import Measure
from regard.training.run.ending import kept_line
from regard.training.run.training_run import train

# A run of 240 steps that translated 50 sentences per validation: BLEU, chrF and loss of three validations.
RECORDED = {1: (3.77, 9.3, 4.85), 2: (2.9, 15.0, 4.5), 3: (3.61, 21.3, 4.21)}
SETTINGS = {"training.steps": 3, "training.warmup": 1, "training.validate_every": 1, "training.save_every": 1}


@pytest.fixture
def recorded_scores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Validations have the recorded scores, whatever the model has learned."""
    original = TranslationValidator.__call__

    def validate(self: TranslationValidator, step: int) -> object:
        bleu, chrf, loss = RECORDED[step]
        monkeypatch.setattr(self, "likelihood", lambda: {"loss": loss, "perplexity": 1.0})
        monkeypatch.setattr(self, "translate", lambda: (Score("BLEU", bleu, "s"), Score("chrF2", chrf, "s")))
        return original(self, step)

    monkeypatch.setattr(TranslationValidator, "__call__", validate)


@pytest.mark.usefixtures("recorded_scores")
def test_few_sentences_do_not_select_a_worse_step(make_recipe, tmp_path: Path) -> None:
    """By BLEU, step 1 would be kept."""
    said: list[str] = []
    out = tmp_path / "my run"
    run = train(make_recipe(), out=out, overrides=SETTINGS, quiet=True, say=said.append)
    assert run.scores["chrf"]["value"] == 21.3
    assert said[-5] == (
        "kept: step 3 with validation loss 4.210, the lowest of 3 validations (chrF of fewer than 100 sentences is too "
        "noisy)"
    )
    assert said[-4:-2] == ["next:", f"""  regard translate -m '{out}' -t "…\""""]
    again: list[str] = []
    train(make_recipe(), out=out, overrides=SETTINGS, quiet=True, say=again.append)
    assert again[-5:] == said[-5:]


@pytest.mark.usefixtures("recorded_scores")
def test_a_run_of_an_earlier_version_resumes(make_recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoints store BLEU as the best score; the loss of that step is in metrics.jsonl."""
    with monkeypatch.context() as patch:
        patch.setattr(Measure, "rank", lambda self, scores: scores["bleu"]["value"])
        train(make_recipe(), out=tmp_path / "run", overrides={**SETTINGS, "training.steps": 2}, quiet=True)
    assert read_config(tmp_path / "run")["scores"]["loss"] == 4.85
    shutil.copytree(tmp_path / "run", tmp_path / "without")
    run = train(make_recipe(), out=tmp_path / "run", overrides=SETTINGS, quiet=True)
    assert run.scores["loss"] == 4.21
    (tmp_path / "without" / "metrics.jsonl").unlink()
    train(make_recipe(), out=tmp_path / "without", overrides=SETTINGS, quiet=True)


def test_the_line_names_both_steps() -> None:
    scores = {step: {"loss": loss, "chrf": {"value": chrf}} for step, (_, chrf, loss) in RECORDED.items()}
    chrf = translation_measure(500)
    assert chrf.key == "chrf" and translation_measure(50).key == translation_measure(0).key == "loss"
    assert kept_line(scores[3], scores, chrf) == "kept: step 3 with chrF 21.3, the highest of 3 validations"
    assert kept_line(scores[2], scores, chrf) == (
        "kept: step 2 with chrF 15.0, the highest of 3 validations; the last step, 3, had chrF 21.3"
    )
    assert kept_line({"loss": 1.0, "chrf": {"value": 30.0}}, scores, chrf) == (
        "kept: the average of the last checkpoints with chrF 30.0, the highest of 4 validations; the last step, 3, had "
        "chrF 21.3"
    )
    assert kept_line(scores[1], {1: scores[1]}, chrf) == "kept: step 1 with chrF 9.3, the only validation"
    assert kept_line({"loss": 1.0}, {7: {"loss": 1.0}}, chrf) == "kept: step 7"  # a model without this score
