"""benchmarks/quality.py: what it runs, what it writes down, and the tables of docs/results.md that come of it."""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.training.recipe.toml_file import read_recipe, shipped_recipes

ROOT = Path(__file__).parents[2]
SMALL = """
data.demo=150 data.validation=20 model.layers=1 model.dim=16 model.heads=2 model.hidden=16 training.steps=2
training.warmup=1 training.validate_every=1 training.batch_tokens=256 training.device=cpu decoding.sentences=2
decoding.max_tokens=3
"""


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The script as a module, with its neighbours on the path as when it is run."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("quality")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture
def systems(script: ModuleType) -> ModuleType:
    return sys.modules["quality_systems"]


@pytest.fixture
def tables(script: ModuleType) -> ModuleType:
    return sys.modules["quality_tables"]


def line(run: Any, value: float, **more: Any) -> dict[str, Any]:
    """What a run might have written."""
    found = {"bleu": {"value": value, "signature": "s"}, "chrf": {"value": 2 * value}}
    if not run.direction:
        found = {"nats": value, "stride": 128}
    told = {"key": run.key, "run": run.name, "seed": run.seed, "part": "test", "parameters": 2_605_056, "steps": 1000}
    return {**told, **found, "seconds": 60.0, "preparing": 0.0, "at_once": 1, "validation": {"loss": 1.5}, **more}


# The plan.


def test_plan(systems: ModuleType) -> None:
    runs = systems.all_runs()
    assert len({run.name for run in runs}) == len(runs) == len({run.key for run in runs})
    assert [run.seed for run in runs] == sorted(run.seed for run in runs), "one seed of everything first"
    counts = {name: sum(run.names[0] == name for run in runs) for name in ("tiny-en-de", "transformer-de-en")}
    assert counts == {"tiny-en-de": 6, "transformer-de-en": 2}  # three seeds or one, in both forms
    assert {system.recipe for system in systems.SYSTEMS} <= set(shipped_recipes())


def test_choosing(systems: ModuleType) -> None:
    def names(**options: Any) -> list[str]:
        return [run.name for run in systems.all_runs(**options)]

    assert names(only=["tiny-en-de"], seeds=[1]) == ["tiny-en-de-tokenised-1", "tiny-en-de-raw-1"]
    assert names(only=["tiny-en-de-raw"]) == [f"tiny-en-de-raw-{seed}" for seed in (1, 2, 3)]
    assert names(only=["fr-en"]) == ["fr-en-fr-en-raw-1"], "and not fr-en-rnn"
    assert names(only=["shakespeare-cpu"]) == ["shakespeare-cpu-raw-1"] and "shakespeare-cpu-raw-1" not in names()
    assert names(only=["gru"], forms=["raw"]) == ["gru-de-en-raw-1"]


def test_settings_lead_recipes_to_the_files(systems: ModuleType, tmp_path: Path, monkeypatch: Any) -> None:
    """The training files of each run, as the recipe reader sees them."""
    monkeypatch.chdir(tmp_path)
    for run in systems.all_runs(seeds=[1]):
        if not run.direction:
            continue
        recipe = read_recipe(run.system.recipe, dict(setting.split("=", 1) for setting in run.settings))
        source, target = run.direction.split("-")
        assert (recipe.data.source_language, recipe.data.target_language) == (source, target)
        for side, language in (("source", source), ("target", target)):
            for part, name in (("", "train"), ("validation_", "val")):
                (path,) = getattr(recipe.data, f"{part}{side}")
                assert Path(path).name.startswith(f"{name}.") and path.endswith(f".{language}.gz")
                assert ("/tok/" in path) == (run.form == "tokenised")
        judged = [str(tmp_path / name) for name in run.files.named("validation", run.direction)]
        assert judged == [*recipe.data.validation_source, *recipe.data.validation_target]


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


def test_nothing_new_begins_after_the_limit(runner: Any, systems: ModuleType) -> None:
    runs = systems.all_runs(only=["fr-en"])
    runner.deadline = time.monotonic() - 1
    assert runner.run_all(runs) == 1 and not runner.called and not runner.results.exists()


def test_a_failure_is_left_for_the_next_start(runner: Any, systems: ModuleType) -> None:
    system = systems.System("demo", "demo", "", data="tatoeba", goals={"fr-en": systems.Goal()})
    assert runner.run_all([systems.Run(system, "fr-en", "raw", 1, ("model.layers=none",))]) == 1
    assert runner.called == ["train"] and not runner.results.exists()


def test_commands_are_ended_with_the_script(
    script: ModuleType, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What runs gets SIGTERM, on which a training saves and ends."""
    monkeypatch.setattr(script, "machine", lambda: ({}, {}))
    program = tmp_path / "regard.py"
    program.write_text("import sys, time\nprint('begun', file=sys.stderr, flush=True)\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # so that python -m regard is this one
    runner = script.Runner(folder=tmp_path, results=tmp_path / "q.jsonl", part="test", jobs=1, minutes=None)

    def stop_it() -> None:
        while not (tmp_path / "x.log").exists() or "begun" not in (tmp_path / "x.log").read_text():
            time.sleep(0.02)
        runner.stop()

    threading.Thread(target=stop_it).start()
    began = time.monotonic()
    assert runner.call(["train", "x"], tmp_path / "x") is None
    assert time.monotonic() - began < 30 and "regard train x: ended with -15" in capsys.readouterr().out


# The tables.


def test_table_of_made_up_lines(systems: ModuleType, tables: ModuleType) -> None:
    tiny = systems.all_runs(only=["tiny-en-de"])
    tokenised, raw = ([run for run in tiny if run.form == form] for form in ("tokenised", "raw"))
    results = [line(run, 40.9 + 0.2 * run.seed) for run in tokenised] + [line(raw[0], 39.5)]
    results.insert(0, line(tokenised[0], 99.0))  # measured again later
    results += [line(tokenised[0], 77.0, part="validation"), line(raw[0], 77.0, key="of another recipe")]
    rnn = systems.all_runs(only=["rnn-en-fr-tokenised"])
    results += [line(run, 56.0, at_once=8) for run in rnn[:1]]
    rows = tables.multi30k_table(results).splitlines()
    work = "2.6 M | 1,000 steps, 60 s"
    assert rows[2] == (
        "| `multi30k-tiny` | En–De | 41.02 (Wu et al. 2021) | 41.0 | 41.30 ± 0.20 (3 seeds) | 39.50 | "
        f"{work} | **met** |"
    )
    assert "| – | – | – | – | not measured |" in rows[3]
    (row,) = [row for row in rows if "multi30k-rnn` | En–Fr" in row]
    assert "| 56.83 | 56.00 | – | 2.6 M | 1,000 steps | **missed** by 0.83 |" in row, "seconds on a shared machine"


def test_tables_of_the_other_data(systems: ModuleType, tables: ModuleType) -> None:
    (run,) = systems.all_runs(only=["fr-en"])
    assert "| 58.0 | 58.00 | 116.00 | 2.6 M | 1,000 steps, 60 s | **met** |" in tables.tatoeba_table([line(run, 58.0)])
    (run,) = systems.all_runs(only=["shakespeare-cpu"])
    for nats, wanted in ((1.7504, "**missed** by 0.000"), (1.7, "**met**")):
        found = tables.shakespeare_table([line(run, nats)]).splitlines()[-1]
        assert f"| 1.75 | {nats:.4f}, stride 128 | 1.5000 | 2.6 M | 1,000 steps, 60 s | {wanted} |" in found


def test_by_length(systems: ModuleType, tables: ModuleType, tmp_path: Path) -> None:
    gru, plain = (systems.all_runs(only=[f"{name}-de-en-tokenised"])[0] for name in ("gru", "seq2seq"))

    def buckets(*scores: float) -> list[dict[str, Any]]:
        return [
            {"low": 1 + 8 * i, "high": 8 + 8 * i, "count": 5, "merged": 1, "bleu": score, "interval": [0.0, 50.0]}
            for i, score in enumerate(scores)
        ]

    results = [line(gru, 39.0, by_length=buckets(40.0, 38.0)), line(plain, 24.0, by_length=buckets(30.0, 12.0))]
    found = tables.by_length_table(results)
    for row in ("| 1 to 8 | 5 | 40.0 | 30.0 |", "| 9 to 16 | 5 | 38.0 | 12.0 |", "| all | 10 | 39.0 | 24.0 |"):
        assert row in found
    assert "](images/multi30k-by-length.png)" in found
    assert tables.by_length_table(results[:1]) == "not measured"
    assert tables.draw_picture(results, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="no result of seq2seq"):
        tables.draw_picture(results[:1], tmp_path / "a.png")


def test_random_features_beside_softmax(systems: ModuleType, tables: ModuleType) -> None:
    """Each by the recipe that it is compared with, changed in nothing but its attention."""
    exact, features = (systems.all_runs(only=[f"{name}-en-de-tokenised-1"])[0] for name in ("tiny", "features"))
    more = [setting for setting in features.settings if setting not in exact.settings]
    assert features.system.recipe == exact.system.recipe and more and all(one.startswith("model.") for one in more)
    results = [line(exact, 42.0), line(features, 41.75)]
    row = f"| {features.system.features} | 41.75 | -0.25 |"
    assert f"| softmax | 42.00 |  |\n{row}" in tables.features_table(results)
    assert "not measured" in tables.features_table(results[1:])
    assert "random" not in tables.multi30k_table(results)
    (run,) = systems.all_runs(only=["letters-16-features-raw-1"])
    assert (
        read_recipe(run.system.recipe, dict(one.split("=", 1) for one in run.settings)).model["random_features"][
            "features"
        ]
        == 16
    )
    found = tables.letters_table([line(run, 1.7)])
    assert "| 16 features | 1.7000, stride 128 |" in found and "| 32 features | – |" in found


def test_results_that_were_cut_off(tables: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"key": "a"}\n{"key": "b', encoding="utf-8")
    assert tables.read_results(tmp_path / "q.jsonl") == [{"key": "a"}]


def test_the_page_agrees_with_the_results(script: ModuleType, tables: ModuleType) -> None:
    page, results = tables.PAGE.read_text(encoding="utf-8"), script.read_results(script.RESULTS)
    assert tables.with_tables(page, results) == page, "run `python benchmarks/quality.py --tables`"
    assert tables.PICTURE.exists() or "by-length.png" not in page, "run `python benchmarks/quality.py --picture`"


def test_a_page_without_places_is_refused(tables: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"no place for the table 'multi30k'"):
        tables.with_tables("# Results\n", [])
