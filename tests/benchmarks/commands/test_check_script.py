"""benchmarks/commands/check.py runs and reports as promised; no timing here."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.slow  # it starts a process for each size
def test_quick_run_prints_a_table_and_a_last_line_of_json(run_script: Any) -> None:
    table, report = run_script("check", "--quick")
    assert report.keys() >= {"date", "hardware", "versions", "command", "imports", "cells", "summary"}
    assert report["command"] == "python benchmarks/commands/check.py --quick"
    assert [cell["pairs"] for cell in report["cells"]] == [500, 1000]
    for cell in report["cells"]:
        assert cell["processor_seconds"] > 0 and cell["peak_bytes"] > 2**25 and cell["short_processor_seconds"] >= 0
    assert report["summary"]["met"] is None  # small sizes prove nothing
    assert sum(line.lstrip().startswith(("500 ", "1,000 ")) for line in table) == 2
