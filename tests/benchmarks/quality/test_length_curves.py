"""benchmarks/quality/length_curves.py: a quick run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow  # four processes that train
def test_quick_run(run_script: Any, tmp_path: Path) -> None:
    from regard.demo.corpus import demo_pairs

    files = tmp_path / "a.fr", tmp_path / "a.en"
    pairs = [(pair.source, pair.target) for pair in demo_pairs("train", 600)]
    for side, path in enumerate(files):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    out, picture = tmp_path / "curves.json", tmp_path / "curves.png"
    table, report = run_script("length_curves", *map(str, files), "--quick", "--device", "cpu", "--out", str(out))
    assert json.loads(out.read_text(encoding="utf-8")) == report
    assert [system["name"] for system in report["systems"]] == [
        "RNNsearch-50",
        "RNNenc-50",
        "RNNsearch-30",
        "RNNenc-30",
    ]
    assert len(table) == 2 + 6 and table[-1].count("(") == 4 and table[-2].count("(") == 2
    sizes = [system["parameters"] for system in report["systems"]]
    assert max(sizes) < 1.15 * min(sizes)
    run_script("length_curves", "--draw", str(out), "--picture", str(picture))
    assert picture.stat().st_size > 10_000
