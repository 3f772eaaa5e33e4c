"""`regard convert`: a report, a folder that works, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from regard.kernels.linear import crossover
from regard.models.folder import read_config

Run = Callable[..., Result]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.fr"
    path.write_text("le chat noir\n\nJane dort dans la maison\n", encoding="utf-8")
    return path


def test_only_look(command: Run, models: dict[str, str], text: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    result = command("convert", models["translator"], "--text", text, "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("| decoder.1.cross:") == 2 and "of 12 heads are within 0.1" in result.stdout
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_translates(command: Run, models: dict[str, str], text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--heads", "decoder.*.cross", "--heads", "encoder:1", "--features", "16", "--distil", "2", "--json")
    result = command("convert", models["translator"], out, "--text", text, *options, "--device", "cpu")
    assert result.exit_code == 0 and f"wrote {out}" in result.stderr, result.stderr
    found = json.loads(result.stdout)
    random = {(head["layer"], head["head"]) for head in found["heads"] if head["random"]}
    assert random == {("encoder.0.self", 1), ("encoder.1.self", 1)} | {
        (f"decoder.{n}.cross", head) for n in (0, 1) for head in (0, 1)
    }
    assert (found["features"], found["map"], found["target_error"]) == (16, "hyperbolic", 0.1)
    assert all((head["distilled"] is not None) == head["random"] for head in found["heads"])
    settings = read_config(out)["model"]
    assert settings["attention"] == "random-features" and not settings["feature_norm"] and settings["features"] == 16
    lines = command("translate", "-m", out, stdin="le chat noir\nJane dort\n")
    assert lines.exit_code == 0 and lines.stdout.count("\n") == 2


def test_what_it_refuses(command: Run, models: dict[str, str], text: Path, tmp_path: Path) -> None:
    model, out = models["translator"], tmp_path / "out"
    for wrong, code, message in (
        ((models["other"],), 2, "a model of kind 'rnn-attention' has no heads"),
        ((model, text), 2, "already exists"),
        ((model, out, "--heads", "decoder.9"), 2, "heads: 'decoder.9' names no layer"),
        ((model, out, "--features", "7"), 2, "features must be even"),
        ((model, out, "--map", "sines"), 2, "unknown feature map 'sines'"),
        ((model, out, "--target-error", "0"), 2, "must be greater than 0"),
        ((model, out, "--target-error", "0.000001"), 2, "no head was swapped"),
        ((model, "--fine-tune", "3"), 2, "--fine-tune needs a folder"),
        ((model, out, "--fine-tune", "3"), 2, "is not the folder of a training"),
        ((tmp_path / "none", out), 4, "no model"),
    ):
        result = command("convert", *wrong, "--text", text, "--device", "cpu")
        assert result.exit_code == code and message in result.stderr, (wrong, result.stderr)
        assert not out.exists()
    missing = command("convert", model, "--text", tmp_path / "none.fr")
    assert missing.exit_code == 3 and "none.fr" in missing.stderr
    text.write_text("\n\n", encoding="utf-8")
    assert "no text to calibrate with" in command("convert", model, "--text", text).stderr


def test_from_which_length_it_pays(
    command: Run, models: dict[str, str], text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `regard bench --attention` keeps, `regard convert` looks up."""
    monkeypatch.setattr(crossover, "SHIPPED", tmp_path / "none.json")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, few in (("lengths", (8, 16)), ("widths", (8,)), ("features", (16,))):
        monkeypatch.setitem(crossover.measure_crossover.__kwdefaults__, name, few)
    look = ("convert", models["encoder"], "--text", text, "--device", "cpu", "--heads", "encoder.0:0")
    assert "No length is known" in command(*look).stdout
    result = command("bench", "--attention", "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    assert "heads of width 8" in result.stdout and f"saved to {crossover.own_table()}" in result.stderr
    (found,) = crossover.read_tables(crossover.own_table())
    assert found.lengths == [8, 16] and [(row.width, row.features) for row in found.rows] == [(8, 16)]
    row = crossover.CrossoverRow(8, 16, exact=[1.0, 4.0], random=[2.0, 2.0])
    crossover.write_table(dataclasses.replace(found, rows=[row]), crossover.own_table())
    assert "faster on this device from about 11 tokens on; the longest text here has" in command(*look).stdout


def test_where_the_table_goes(
    command: Run, models: dict[str, str], text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, few in (("lengths", (8,)), ("widths", (8,)), ("features", (16,))):
        monkeypatch.setitem(crossover.measure_crossover.__kwdefaults__, name, few)
    measure = ("bench", "--attention", "--device", "cpu", "--table")
    other = command(*measure, tmp_path / "mine.json", "--json")
    assert json.loads(other.stdout)["rows"][0]["features"] == 16 and (tmp_path / "mine.json").exists()
    assert command("bench", "--table", tmp_path / "mine.json", "-m", models["writer"]).exit_code == 2
    damaged = command(*measure, text)
    assert (
        damaged.exit_code == 3 and "is not a table of" in damaged.stderr and "chat" in text.read_text(encoding="utf-8")
    )
    there = command(*measure, text / "below.json")
    assert there.exit_code == 2 and "choose another file with --table" in there.stderr
