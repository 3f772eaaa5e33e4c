"""The benchmark of facts: its sentences, and what counts as kept."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "facts.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("facts_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_enough_sentences_and_none_twice(script: Any) -> None:
    facts = script.read_facts()
    assert len({fact.text for fact in facts}) == len(facts) >= 300
    assert all(fact.spans and all(span in fact.text for span in fact.spans) for fact in facts)
    everyday = (script.DATA / "everyday.fr.txt").read_text(encoding="utf-8").splitlines()
    assert len({*everyday}) == 100


@pytest.mark.parametrize(
    ("spans", "translation", "lost"),
    [
        (["-15"], "It is 15 degrees.", ["-15"]),
        (["-15"], "It is -15 degrees.", []),
        (["15"], "It is -15 degrees.", ["15"]),
        (["5", "5"], "5 novels in five years", ["5"]),
        (["19,99 €"], "1999 €", ["19,99 €"]),
        (["3 mars 2025"], "on March 3rd, 2025", []),
        (["3 mars 2025"], "on 3 March 2025", []),
        (["3 mars 2025"], "on 13 March 2025", ["3 mars 2025"]),
        (["Oyelaran"], "with Oyelarans", ["Oyelaran"]),
    ],
)
def test_a_span_is_kept_exactly_or_lost(script: Any, spans: list[str], translation: str, lost: list[str]) -> None:
    assert script.lost_spans(script.Fact("", spans, "number"), translation) == lost
