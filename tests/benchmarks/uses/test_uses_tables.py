"""The tables of uses_tables.py: they are those of the page, and what they do with seeds and missing runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

RESULTS = sorted((Path(__file__).parents[3] / "benchmarks" / "results" / "uses").glob("*-uses-*.jsonl"))


@pytest.fixture
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("uses_tables")


def test_the_page_agrees_with_the_results(script: ModuleType) -> None:
    lines = [line for file in RESULTS for line in script.read_results(file)]
    page = script.PAGE.read_text(encoding="utf-8")
    tables = {name: table(lines) for name, table in script.TABLES.items()}
    assert script.filled(page, tables) == page, (
        "run `python benchmarks/uses/uses_tables.py benchmarks/results/uses/*-uses-*.jsonl`"
    )


def test_seeds_become_one_row_and_the_newest_run_of_a_seed_counts(script: ModuleType) -> None:
    def report(seed: int, exact: float, **more: float) -> dict:
        run = {"seed": seed, "steps": 9, "parameters": 1000, "test_exact": exact, "noisy_exact": 0.5, **more}
        return {"benchmark": "captions", "settings": [], "runs": {"video/captioner": [run]}}

    table = script.captions_table([report(1, 0.1), report(2, 0.8, test_pointing=0.5), report(1, 0.9)])
    (row,) = table.splitlines()[2:]
    assert row.split(" | ")[2:] == ["1,000", "9", "85.0 ± 7.1 (2 seeds)", "–", "50.0 ± 0.0 (2 seeds)", "– |"]


def test_of_two_rates_of_t5_the_one_with_the_lower_validation_loss_counts(script: ModuleType) -> None:
    def result(loss: float, score: float) -> dict:
        scores = {part: {"exact": score} for part in script.PARTS}
        line = {"task": "answers", "system": "t5", "seed": 1, "parameters": 5, "scores": scores}
        return {**line, "validation_loss": loss}

    for lines in ([result(0.2, 70.0), result(0.3, 90.0)], [result(0.3, 90.0), result(0.2, 70.0)]):
        assert script.stories_table(lines).splitlines()[2].count("70.0") == 3
