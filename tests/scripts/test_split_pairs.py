"""scripts/split_pairs.py: no sentence in two parts, no pair lost, the same parts each time."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def parts_of(folder: Path) -> dict[str, list[tuple[str, str]]]:
    def lines(name: str) -> list[str]:
        return gzip.decompress((folder / f"{name}.gz").read_bytes()).decode().split("\n")[:-1]

    return {part: list(zip(lines(f"{part}.en"), lines(f"{part}.fr"), strict=True)) for part in ("train", "val", "test")}


def test_parts_share_no_sentence(tmp_path: Path) -> None:
    draw = random.Random(1)
    # Sentences of both sides stand in several pairs, and some chains of pairs are long.
    rows = [(f"e{draw.randrange(900)}", f"f{draw.randrange(900)}") for _ in range(600)]
    rows += [("a\u2028b", "c"), ("é", "d")]
    file = tmp_path / "pairs.txt"
    file.write_text("".join(f"{one}\t{other}\tby somebody\n" for one, other in rows), encoding="utf-8")
    found = []
    for name in ("one", "two"):
        command = [sys.executable, "scripts/split_pairs.py", str(file), str(tmp_path / name)]
        subprocess.run([*command, "--languages", "en", "fr", "--held-out", "40"], cwd=ROOT, check=True, timeout=60)
        found.append(parts_of(tmp_path / name))
    parts = found[0]
    assert found[1] == parts
    assert sorted(pair for part in parts.values() for pair in part) == sorted(set(rows))
    for side in (0, 1):
        sides = [{pair[side] for pair in part} for part in parts.values()]
        assert len(set.union(*sides)) == sum(map(len, sides))
    assert 40 <= len(parts["val"]) < 60 and 40 <= len(parts["test"]) < 60
    file.write_text("".join(f"{one}\t{other}\n" for one, other in reversed(rows)), encoding="utf-8")
    subprocess.run([*command, "--languages", "en", "fr", "--held-out", "40"], cwd=ROOT, check=True, timeout=60)
    assert {part: set(pairs) for part, pairs in parts_of(tmp_path / "two").items()} == {
        part: set(pairs) for part, pairs in parts.items()
    }
