"""`regard compare` on the command line: which recipe is meant, what is printed, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from regard.cli import app
from regard.cli.measure.compare import recipe_to_compare
from regard.compare import comparison as compare
from regard.compare.claims import SystemResult
from regard.compare.report import Outcome
from regard.errors import DataError, UsageError
from regard.evaluation.bleu import Score
from regard.evaluation.by_length import Bucket
from regard.evaluation.significance import Comparison

NOTHING: dict[str, int | None] = {"steps": None, "batch_tokens": None, "seed": None}


def run(*arguments: str, columns: int = 100) -> Result:
    return CliRunner().invoke(app, ["compare", *arguments], env={"COLUMNS": str(columns)})


def made(name: str, title: str, bleu: float, aer: float | None) -> SystemResult:
    score = Score("BLEU", bleu, "nrefs:1", (bleu - 1, bleu + 1))
    return SystemResult(
        name=name,
        title=title,
        parameters=1_234_567,
        steps=10,
        tokens=5000,
        seconds=200.0,
        memory=2**29,
        bleu=score,
        chrf=score,
        buckets=[Bucket(1, 5, 200, score, score)],
        aer=aer,
        curve=[(5000, bleu)],
        decoding_seconds=1.0,
    )


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The comparison itself is replaced; what it was called with is kept."""
    kept: list[dict[str, Any]] = []
    results = {
        "rnn": made("rnn", "RNN", 40, None),
        "luong-bilinear": made("luong-bilinear", "RNN + Luong bilinear", 90, 0.25),
    }
    pair = Comparison(results["rnn"].bleu, results["luong-bilinear"].bleu, 50.0, (48.0, 52.0), 1.0, 0.001)

    def compare_systems(asked: Any, **options: Any) -> Outcome:
        kept.append({"asked": asked, **options})
        options["say"]("training: RNN")
        return Outcome(results, {("rnn", "luong-bilinear"): pair}, diagonal=0.5, seed=1)

    monkeypatch.setattr(compare, "compare_systems", compare_systems)
    return kept


def test_the_table_and_the_text_under_it(calls: list[dict[str, Any]], tmp_path: Path) -> None:
    result = run("--out", str(tmp_path), columns=80)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert "".join(lines[:2]).split() == ["para-", "tokens", "system", "BLEU", "AER", "meters", "time", "/s", "memory"]
    cells = ["RNN", "+", "Luong", "bilinear", "90.0", "[89.0,", "91.0]", "25.0%", "1,234,567", "3", "min", "20", "s"]
    assert lines[3].split() == [*cells, "25", "512", "MB"]
    assert max(map(len, lines[:-1])) <= 80
    text = " ".join(result.stdout.split())
    assert (
        "With attention BLEU is better (D17): holds here. Against the RNN without it: RNN + Luong bilinear +50.0"
        in text
    )
    assert "[+48.0, +52.0], p = 0.001." in text  # rich does not take it for markup
    assert "the same 5,000 target tokens" in text
    assert "training: RNN" in result.stderr and "training: RNN" not in result.stdout


def test_json(calls: list[dict[str, Any]]) -> None:
    result = run("--json", "--quiet")
    assert result.exit_code == 0 and result.stderr == ""
    told = json.loads(result.stdout)
    assert told["systems"]["luong-bilinear"]["aer"] == 0.25 and told["comparisons"][0]["difference"] == 50.0
    assert (told["comparisons"][0]["a"], told["comparisons"][0]["b"]) == ("rnn", "luong-bilinear")


def test_options_reach_the_comparison(calls: list[dict[str, Any]], tmp_path: Path) -> None:
    assert run("--systems", "rnn, transformer", "--steps", "7", "--seed", "3", "--out", str(tmp_path)).exit_code == 0
    call = calls[0]
    assert call["systems"] == ["rnn", "transformer"] and call["out"] == tmp_path
    assert call["asked"].training.steps == 7 and call["asked"].training.seed == 3
    assert call["asked"].data.demo == 60_000 and call["parameters"] == 1_000_000 and call["test"] is None
    assert call["asked"].training.validate_every is None  # not the demo's, which may be beyond the last step


def test_files_and_a_test_part(calls: list[dict[str, Any]], tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("train.fr", "train.en", "test.fr", "test.en")]
    for file in files:
        file.write_text("x\n", encoding="utf-8")
    names = list(map(str, files))
    tested = ["--test-source", names[2], "--test-target", names[3]]
    assert run(*names[:2], *tested, "--parameters", "500", "--batch-tokens", "99").exit_code == 0
    call = calls[0]
    assert call["test"] == (files[2], files[3]) and call["parameters"] == 500
    assert call["asked"].data.source == (names[0],) and call["asked"].training.batch_tokens == 99
    assert run(*names[:2]).exit_code == 0 and calls[1]["parameters"] is None  # chosen from the data


def test_a_recipe(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[data]\ndemo = 50\n[training]\nsteps = 5\nlr = 0.01\n", encoding="utf-8")
    recipe = recipe_to_compare([str(file)], {**NOTHING, "steps": 9})
    assert (recipe.name, recipe.data.demo, recipe.training.steps, recipe.training.lr) == ("mine", 50, 9, 0.01)


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such recipe file"):
        recipe_to_compare(["nothing"], NOTHING)
    with pytest.raises(DataError, match=r"no\.fr: no such file"):
        recipe_to_compare(["no.fr", "no.en"], NOTHING)
    with pytest.raises(UsageError, match="steps"):
        recipe_to_compare([], {**NOTHING, "steps": 0})
    for arguments in (["--test-source", "x"], ["--test-source", "x", "--test-target", "y"]):
        result = run(*arguments)
        assert result.exit_code == 2 and "--test-source and --test-target" in result.stderr
    result = run("--systems", "rnn,lstm", "--out", str(tmp_path / "new"))
    assert result.exit_code == 2 and "unknown system 'lstm'" in result.stderr
    assert not (tmp_path / "new").exists()
