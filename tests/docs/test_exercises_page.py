"""docs/learn/exercises.md lists every exercise, as scripts/list_exercises.py writes it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_list_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("list_exercises", ROOT / "scripts/list_exercises.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs/learn/exercises.md").read_text(encoding="utf-8")
    assert script.with_table(page) == page, "run python scripts/list_exercises.py"
