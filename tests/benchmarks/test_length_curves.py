"""benchmarks/length_curves.py: the texts that it joins, and a quick run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

PAIRS = [(" ".join(f"s{i}" for _ in range(1 + i % 9)), " ".join(f"t{i}" for _ in range(1 + i % 8))) for i in range(300)]


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("length_curves")


@pytest.mark.parametrize("lengths", [range(1, 31), range(11, 21), range(51, 61)])
def test_joined_texts_have_these_lengths(script: ModuleType, lengths: range) -> None:
    texts = list(script.joined_texts(PAIRS, lengths, Random(1)))
    counts = [len(source.split()) for source, _ in texts]
    assert set(counts) <= set(lengths)
    assert max(len(target.split()) for _, target in texts) <= lengths[-1]
    assert max(counts) - min(counts) > len(lengths) // 2, "lengths are spread over the range"


def test_each_pair_is_used_at_most_once_and_stays_a_pair(script: ModuleType) -> None:
    for source, target in script.joined_texts(PAIRS, range(21, 31), Random(1)):
        numbers = [list(dict.fromkeys(word[1:] for word in side.split())) for side in (source, target)]
        assert numbers[0] == numbers[1]
    used = [word for source, _ in script.joined_texts(PAIRS, range(21, 31), Random(1)) for word in set(source.split())]
    assert len(used) == len(set(used)) > 0.8 * len(PAIRS)


def test_each_range_of_test_lengths_has_nearly_all_sentences(script: ModuleType) -> None:
    texts = script.test_texts(PAIRS)
    for low in range(1, script.LONGEST, script.RANGE):
        inside = [source for source, _ in texts if low <= len(source.split()) < low + script.RANGE]
        assert len({word for source in inside for word in source.split()}) > 0.8 * len(PAIRS)


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
