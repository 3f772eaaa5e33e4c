"""benchmarks/decode/decode_gpu.py runs at a toy size, with the same weights in both contenders; no timing here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def test_quick_run_prints_a_table_and_a_last_line_of_json(run_script: Any, tmp_path: Path) -> None:
    out = tmp_path / "results" / "gpu.json"
    table, report = run_script("decode_gpu", "--quick", "--out", str(out))
    assert report == json.loads(out.read_text())
    assert report["texts"]["differences"] == [] and report["summary"]["same_texts"]
    assert report["texts"]["like_modules"] == {"1": 1.0, "5": 1.0}
    for cell in report["cells"]:
        assert all(speed > 0 for speed in cell["tokens_per_second"].values())
        assert 0 < cell["share_of_floor"] < 1
        assert any(line.startswith(f"{cell['batch']:>5}{cell['beam']:>5}") for line in table)
