"""`regard exercise` from the outside: list, start, check and solution, their output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.exercises.catalogue import ENTRIES

run = CliRunner().invoke


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_list() -> None:
    lines = run(app, ["exercise", "list"]).stdout.splitlines()
    assert len([line for line in lines if line.startswith("  ●")]) == len(ENTRIES)
    rows = [json.loads(line) for line in run(app, ["exercise", "list", "--tag", "D9", "--json"]).stdout.splitlines()]
    assert "scaled-dot-product" in {row["name"] for row in rows}
    assert all("D9" in row["tags"] for row in rows)
    assert run(app, ["exercise", "list", "--topic", "nothing"]).exit_code == 2


def test_from_start_to_right() -> None:
    assert run(app, ["exercise", "start", "softmax-by-hand"]).exit_code == 0
    again = run(app, ["exercise", "start", "softmax-by-hand"])
    assert again.exit_code == 2 and "nothing is overwritten" in again.stderr
    assert run(app, ["exercise", "check", "softmax_by_hand.toml"]).exit_code == 3
    solution = run(app, ["exercise", "solution", "softmax-by-hand"]).stdout
    Path("softmax_by_hand.toml").write_text(solution, encoding="utf-8")
    checked = run(app, ["exercise", "check", "softmax_by_hand.toml"])
    assert (checked.exit_code, checked.stdout) == (0, "✓ softmax-by-hand: right.\n")


def test_a_folder_of_submissions() -> None:
    Path("class").mkdir()
    for name, weights in (
        ("ann", "[0.09, 0.24, 0.67]"),
        ("bob", "[0, 0, 1]"),
        ("cy", "[0, 0, 1]"),
        ("di", "[9, 9, 9]"),
    ):
        text = f"# Exercise softmax-by-hand: numbers\nweights = {weights}\nmasked = [0.27, 0.73, 0]\n"
        Path(f"class/{name}.toml").write_text(text, encoding="utf-8")
    checked = run(app, ["exercise", "check", "class"])
    assert checked.exit_code == 3
    assert checked.stdout.splitlines()[-3:] == [
        "1 of 4 answers are right",
        "  2 × hard-maximum (softmax-by-hand)",
        "  1 × wrong, no known mistake",
    ]
    lines = run(app, ["exercise", "check", "class", "--json"]).stdout.splitlines()
    outcomes = {json.loads(line)["file"]: json.loads(line)["outcome"] for line in lines}
    assert outcomes["class/ann.toml"] == "right" and list(outcomes.values()).count("wrong") == 3
