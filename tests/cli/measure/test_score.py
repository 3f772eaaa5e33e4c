"""`regard score`: the library's likelihoods, line by line and together."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from regard.tasks.loading import load

Run = Callable[..., Result]
FRENCH = ["le chat noir", "Jane dort", "la maison"]
ENGLISH = ["the black cat", "Jane sleeps", ""]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "test.fr", tmp_path / "test.en"
    for path, lines in zip(paths, (FRENCH, ENGLISH), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def test_pairs(command: Run, models: dict[str, str], files: tuple[Path, Path]) -> None:
    result = command("score", "-m", models["translator"], *files)
    assert result.exit_code == 0, result.stderr
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    wanted = load(models["translator"]).score(FRENCH, ENGLISH)
    assert [row[0] for row in rows] == ["1", "2", "3", "total"]
    assert [float(row[1]) for row in rows[:3]] == pytest.approx([one.score for one in wanted], abs=1e-3)
    assert [int(row[2]) for row in rows[:3]] == [len(one.tokens) for one in wanted] and rows[2][2] == "1"
    total, tokens = sum(one.score for one in wanted), sum(len(one.tokens) for one in wanted)
    assert float(rows[3][1]) == pytest.approx(total, abs=1e-3) and int(rows[3][2]) == tokens
    assert float(rows[3][3]) == pytest.approx(math.exp(-total / tokens), rel=1e-4)


def test_pairs_as_json(command: Run, models: dict[str, str], files: tuple[Path, Path]) -> None:
    result = command("score", "-m", models["translator"], *files, "--json")
    *entries, last = (json.loads(line) for line in result.stdout.splitlines())
    assert [entry["line"] for entry in entries] == [1, 2, 3]
    for entry in entries:
        assert entry["log_probability"] == pytest.approx(sum(entry["log_probabilities"]))
        assert len(entry["tokens"]) == len(entry["log_probabilities"]) and entry["tokens"][-1] == "</s>"
    assert last["total"]["nll"] == pytest.approx(-sum(entry["log_probability"] for entry in entries))
    assert last["total"]["characters"] == sum(map(len, ENGLISH))


def test_a_text(command: Run, models: dict[str, str], files: tuple[Path, Path]) -> None:
    text = "".join(f"{line}\n" for line in FRENCH)
    wanted = load(models["writer"]).score(text)
    logp, tokens, perplexity, bits = command("score", "-m", models["writer"], files[0]).stdout.split("\t")
    assert float(logp) == pytest.approx(wanted.score, abs=1e-3) and int(tokens) == len(wanted.tokens)
    assert float(perplexity) == pytest.approx(math.exp(-wanted.score / len(wanted.tokens)), rel=1e-4)
    assert float(bits) == pytest.approx(-wanted.score / math.log(2) / len(text), rel=1e-4)
    found = json.loads(command("score", "-m", models["writer"], files[0], "--json").stdout)
    assert found["total"]["nll"] == pytest.approx(-wanted.score) and found["total"]["characters"] == len(text)


def test_wrong_use(command: Run, models: dict[str, str], files: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = files
    short = tmp_path / "short.en"
    short.write_text("the black cat\n")
    empty = tmp_path / "empty"
    empty.write_text("")
    cases = [
        (["translator", source, short], 3, f"{source} has 3 lines and {short} has 1"),
        (["translator", source], 2, "pass the translations as a second file"),
        (["translator", source, source], 2, "the same file"),
        (["writer", source, target], 2, "is a language model: pass one text"),
        (["encoder", source, target], 2, "use `regard embed"),
        (["translator", source, tmp_path / "test.em"], 3, "did you mean"),
        (["translator", empty, empty.with_name("empty")], 2, "the same file"),
        (["writer", empty], 3, "no usable text"),
    ]
    for (model, *paths), code, message in cases:
        result = command("score", "-m", models[str(model)], *paths)
        assert result.exit_code == code and message in result.stderr, result.stderr
