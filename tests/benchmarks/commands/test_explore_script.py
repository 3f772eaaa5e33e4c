"""benchmarks/commands/explore.py runs and reports as promised; no timing here."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.slow  # it starts two explorers
def test_quick_run_prints_a_table_and_a_last_line_of_json(run_script: Any) -> None:
    table, report = run_script("explore", "--quick")
    assert report.keys() >= {"date", "hardware", "versions", "command", "seconds", "packed_bytes", "summary"}
    assert report["command"] == "python benchmarks/commands/explore.py --quick"
    seconds = report["seconds"]
    assert [seconds[name]["times"] for name in ("address", "page", "model", "sentence")] == [1, 1, 1, 3]
    assert 0 < seconds["address"]["median"] <= seconds["page"]["median"] <= seconds["model"]["median"]
    assert all(one["worst"][0] >= one["median"] > 0 for one in seconds.values())
    assert report["summary"]["met"] is None  # so few prove nothing
    for name in seconds:
        assert sum(line.startswith(f"{name} ") for line in table) == 1
