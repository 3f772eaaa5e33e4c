"""benchmarks/decode_gpu.py runs at a toy size, with the same weights in both contenders; no timing here."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The script as a module, with its neighbours on the path as when it is run."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("decode_gpu")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_quick_run_prints_a_table_and_a_last_line_of_json(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    out = tmp_path / "results" / "gpu.json"
    monkeypatch.setenv("REGARD_GRAPHS", "1")  # so that it is put back
    monkeypatch.setattr(sys, "argv", ["decode_gpu.py", "--quick", "--out", str(out)])
    assert script.main() == 0
    *table, last = capsys.readouterr().out.splitlines()
    report = json.loads(last)
    assert report == json.loads(out.read_text())
    assert report["texts"]["differences"] == [] and report["summary"]["same_texts"]
    assert report["texts"]["like_modules"] == {"1": 1.0, "5": 1.0}
    for cell in report["cells"]:
        assert all(speed > 0 for speed in cell["tokens_per_second"].values())
        assert 0 < cell["share_of_floor"] < 1
        assert any(line.startswith(f"{cell['batch']:>5}{cell['beam']:>5}") for line in table)
