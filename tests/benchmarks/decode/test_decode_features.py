"""benchmarks/decode/decode_features.py runs at a toy size; no timing here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

IN_C = {"features in C", "exact in C"}


@pytest.mark.slow
def test_quick_run_prints_a_table_and_a_last_line_of_json(run_script: Any, tmp_path: Path) -> None:
    out = tmp_path / "results" / "features.json"
    table, report = run_script("decode_features", "--quick", "--threads", "1", "--out", str(out))
    assert report == json.loads(out.read_text()) and report["features"] == 128
    assert [row["length"] for row in report["rows"]] == [8, 16]
    for row in report["rows"]:
        assert min(row["layer"].values()) > 0 and IN_C | {"features", "exact"} == set(row["model"])
        assert row["bytes"]["exact"] == 2 * 32 * 4 * row["length"]
        # S (2, 128, 16), z (2, 128), level and forgotten (2,) in float32, and how long the text is
        assert row["bytes"]["features"] == 4 * (2 * 128 * 17 + 4) + 8
    assert report["summary"]["bytes_flat"] and any("layer" in line for line in table)
    assert report["summary"]["growth"].keys() == {"layer", "model", "model in C"}
