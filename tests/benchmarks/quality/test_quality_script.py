"""quality.py: what it runs, what it writes down, and the tables of docs/results.md that come of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli import app

ROOT = Path(__file__).parents[3]
SMALL = """
data.demo=150 data.validation=20 model.layers=1 model.dim=16 model.heads=2 model.hidden=16 training.steps=2
training.warmup=1 training.validate_every=1 training.batch_tokens=256 training.device=cpu decoding.sentences=2
decoding.max_tokens=3
"""


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("quality")


@pytest.fixture
def systems(script: ModuleType) -> ModuleType:
    return sys.modules["benchmarks.quality.quality_systems"]


@pytest.fixture
def tables(script: ModuleType) -> ModuleType:
    return sys.modules["benchmarks.quality.quality_tables"]


def line(run: Any, value: float, **more: Any) -> dict[str, Any]:
    """What a run might have written."""
    found = {"bleu": {"value": value, "signature": "s"}, "chrf": {"value": 2 * value}}
    if not run.direction:
        found = {"nats": value, "stride": 128}
    told = {"key": run.key, "run": run.name, "seed": run.seed, "part": "test", "parameters": 2_605_056, "steps": 1000}
    return {**told, **found, "seconds": 60.0, "preparing": 0.0, "at_once": 1, "validation": {"loss": 1.5}, **more}


# The plan.


def test_the_key_is_of_what_is_measured(systems: ModuleType, tmp_path: Path, monkeypatch: Any) -> None:
    (run,) = systems.all_runs(only=["gru-de-en-raw"])
    (other,) = systems.all_runs(only=["gru-de-en-raw"], more=["training.lr=1e-4"])
    assert run.key != other.key
    text = (systems.RECIPES / "multi30k/multi30k-gru.toml").read_text(encoding="utf-8")
    monkeypatch.setattr(systems, "RECIPES", tmp_path)
    keys = []
    for changed in (f"# other words\n{text}", text.replace("dropout = 0.5", "dropout = 0.4")):
        (tmp_path / "multi30k-gru.toml").write_text(changed, encoding="utf-8")
        keys.append(run.key)
    assert keys[0] != keys[1]
    monkeypatch.undo()
    assert keys[0] == run.key


# A run.


@pytest.fixture
def runner(script: ModuleType, systems: ModuleType, tmp_path: Path, monkeypatch: Any) -> Any:
    """A runner whose commands go through the command line of this process."""
    for language, text in (("fr", "le chat dort\n" * 3), ("en", "the cat sleeps\n" * 3)):
        (tmp_path / f"test.{language}").write_text(text, encoding="utf-8")
    files = systems.Files(str(tmp_path / "val.{}"), str(tmp_path / "test.{}"))
    monkeypatch.setitem(systems.DATA, "tatoeba", {"raw": files})
    monkeypatch.setattr(script, "machine", lambda: ({"cpu": "made up"}, {"regard": "0"}))

    def call(self: Any, arguments: list[str], place: Path) -> str | None:
        result = CliRunner().invoke(app, list(arguments))
        self.called.append(arguments[0])
        return result.stdout if result.exit_code == 0 else None

    monkeypatch.setattr(script.Runner, "call", call)
    options = {"folder": tmp_path, "results": tmp_path / "q.jsonl", "part": "test", "jobs": 1}
    runner = script.Runner(**options, minutes=None)
    runner.called = []
    return runner


def test_a_run_writes_one_line(runner: Any, script: ModuleType, systems: ModuleType, tmp_path: Path) -> None:
    system = systems.System("demo", "demo", "", data="tatoeba", goals={"fr-en": systems.Goal()})
    run = systems.Run(system, "fr-en", "raw", 1, tuple(SMALL.split()))
    assert runner.run_all([run]) == 0
    (found,) = script.read_results(runner.results)
    assert (found["run"], found["key"], found["part"], found["seed"]) == ("demo-fr-en-raw-1", run.key, "test", 1)
    assert "tok:13a" in found["bleu"]["signature"] and found["chrf"]["value"] >= 0
    assert [bucket["count"] for bucket in found["by_length"]] == [3]
    assert found["steps"] == 2 and found["seconds"] > 0 and found["at_once"] == 1
    model = tmp_path / f"{run.name}-{run.key}"
    card = (model / "README.md").read_text(encoding="utf-8")
    assert f"{found['parameters']:,} parameters" in card
    scores = json.loads((model / "config.json").read_text(encoding="utf-8"))["scores"]
    assert found["validation"] == {"loss": scores["loss"], "bleu": scores["bleu"]["value"]}
    assert found["commands"][0].startswith("regard train demo --set data.source_language=fr ")
    assert found["commands"][1].startswith("regard evaluate ")


# The tables.


def test_the_page_agrees_with_the_results(script: ModuleType, tables: ModuleType) -> None:
    page, results = tables.PAGE.read_text(encoding="utf-8"), script.read_results(script.RESULTS)
    assert tables.with_tables(page, results) == page, "run `python benchmarks/quality/quality.py --tables`"
    assert tables.PICTURE.exists() or "by-length.png" not in page, (
        "run `python benchmarks/quality/quality.py --picture`"
    )
