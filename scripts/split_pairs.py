"""Part a file of sentence pairs into training, validation and test so that no sentence is in two parts.

    python scripts/split_pairs.py fra.txt data/tatoeba-fr-en --languages en fr

Pairs that share a sentence, directly or over other pairs, stay together. Where such a group goes depends on its
sentences alone: the same file gives the same parts.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
from collections import defaultdict
from pathlib import Path

PARTS = ("train", "val", "test")
Pair = tuple[str, str]


def groups_of(pairs: list[Pair]) -> list[list[Pair]]:
    """The pairs, those together that share a sentence of either side."""
    parent: dict[tuple[int, str], tuple[int, str]] = {}

    def root(node: tuple[int, str]) -> tuple[int, str]:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]  # halves the way for the next one
            node = parent[node]
        return node

    for first, second in pairs:
        parent[root((0, first))] = root((1, second))
    groups = defaultdict(list)
    for pair in pairs:
        groups[root((0, pair[0]))].append(pair)
    return list(groups.values())


def split(pairs: list[Pair], held_out: int) -> dict[str, list[Pair]]:
    """The parts: about `held_out` pairs each for validation and test, from groups that a hash of them chooses."""
    parts: dict[str, list[Pair]] = {part: [] for part in PARTS}
    for group in sorted(groups_of(pairs), key=lambda group: hashlib.sha256(min(group)[0].encode()).digest()):
        small = len(group) <= max(1, held_out // 100)  # a large one would be a part of its own
        part = next((part for part in ("test", "val") if small and len(parts[part]) < held_out), "train")
        parts[part] += group
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="two columns with a tab between; further ones are left out")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--languages", nargs=2, required=True, metavar="CODE", help="of the two columns")
    parser.add_argument("--held-out", type=int, default=2000, help="pairs for validation, and as many for test")
    options = parser.parse_args()
    rows = [line.split("\t") for line in options.file.read_text(encoding="utf-8").split("\n")]
    parts = split(list(dict.fromkeys((row[0], row[1]) for row in rows if len(row) > 1)), options.held_out)
    options.folder.mkdir(parents=True, exist_ok=True)
    for part, pairs in parts.items():
        for side, language in enumerate(options.languages):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            # No time in the file, so that the same text is the same bytes.
            (options.folder / f"{part}.{language}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
