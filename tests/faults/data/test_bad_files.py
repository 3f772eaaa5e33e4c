"""Text files with faults: told by file and line before the first step, and left out, mended or refused, as said."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Nursery, code, trained_on, write_recipe

Lines = list[bytes]


def at_13(spoil: Callable[[bytes], bytes]) -> Callable[[Lines, Lines], None]:
    """Spoil line 13 of the source."""

    def plant(source: Lines, target: Lines) -> None:
        source[12] = spoil(source[12])

    return plant


def crlf(source: Lines, target: Lines) -> None:
    source[:] = [line[:-1] + b"\r\n" for line in source]


def byte_order_mark(source: Lines, target: Lines) -> None:
    source[0] = b"\xef\xbb\xbf" + source[0]


def empty_file(source: Lines, target: Lines) -> None:
    source.clear()
    target.clear()


def unequal(source: Lines, target: Lines) -> None:
    del target[-3:]


def same(source: Lines, target: Lines) -> None:
    target[12] = source[12]


BAD_UTF8 = at_13(lambda line: line[:-1] + b"\xff\n")
NUL = at_13(lambda line: b"un\0deux\n")
LONG = at_13(lambda line: b"un deux " * 125_000 + b"\n")  # 1 MB
EMPTY = at_13(lambda line: b"\n")


@pytest.fixture
def planted(tmp_path: Path) -> Callable[..., Path]:
    """`planted(fault)`: the recipe with that fault in its files."""

    def plant(fault: Callable[[Lines, Lines], None]) -> Path:
        recipe = write_recipe(tmp_path / "recipe", changes={"steps = 12": "steps = 3"})
        files = [recipe.with_name(name) for name in ("a.fr", "a.en")]
        lines = [path.read_bytes().splitlines(keepends=True) for path in files]
        fault(*lines)
        for path, content in zip(files, lines, strict=True):
            path.write_bytes(b"".join(content))
        return recipe

    return plant


REFUSED = {
    "bad UTF-8": (BAD_UTF8, "a.fr:13: byte 0xff"),
    "NUL": (NUL, "a.fr:13: a NUL byte"),
    "empty file": (empty_file, "a.fr"),
    "unequal counts": (unequal, "a.en ends before line 78"),
}


# The other faults are found in the same place, and tests of reading have them all.
@pytest.mark.parametrize(
    ("kind", "processes"),
    [
        ("unequal counts", 1),
        ("bad UTF-8", 2),
        *(pytest.param(kind, 1, marks=pytest.mark.slow) for kind in REFUSED if kind != "unequal counts"),
    ],
)
def test_what_cannot_be_used_stops(kind: str, processes: int, planted, nursery: Nursery, tmp_path: Path) -> None:
    fault, words = REFUSED[kind]
    team = nursery.train(planted(fault), tmp_path / "run", processes=processes)
    assert team.children[0].wait() == 3, team.err
    assert all(team.wait())
    told = team.children[0].err
    assert words in told
    assert "Traceback" not in told
    assert "step " not in told
    assert not (tmp_path / "run").exists()  # nothing stands in the way of the next start


@pytest.mark.parametrize("kind", ["bad UTF-8", pytest.param("NUL", marks=pytest.mark.slow)])
def test_what_cannot_be_read_is_left_out_where_that_is_asked_for(
    kind: str, planted, nursery: Nursery, tmp_path: Path
) -> None:
    fault, _ = REFUSED[kind]
    before, rows = told_before_step_1(nursery, planted(fault), tmp_path, "--set", "data.faults=skip")
    assert "a.fr:13" in before
    assert rows == 71  # 80 less 8 held out, less that one


MENDED = {
    "byte order mark": (byte_order_mark, "a.fr:1", 72),
    "CRLF": (crlf, "a.fr:1", 72),
    "empty line": (EMPTY, "a.fr:13", 71),
    "1 MB line": (LONG, "a.fr:13", 71),
    "source = target": (same, "a.fr:13", 72),
}


@pytest.mark.parametrize(
    "kind",
    ["CRLF", "1 MB line", *(pytest.param(kind, marks=pytest.mark.slow) for kind in MENDED if kind[0] not in "C1")],
)
def test_what_can_be_used_is_told(kind: str, planted, nursery: Nursery, tmp_path: Path) -> None:
    """With its place; what is left out is not trained on."""
    fault, place, kept = MENDED[kind]
    before, rows = told_before_step_1(nursery, planted(fault), tmp_path)
    assert place in before
    assert rows == kept


def told_before_step_1(nursery: Nursery, recipe: Path, folder: Path, *options: str) -> tuple[str, int]:
    """What is said before the first step, and how many samples an epoch has."""
    note = {"kind": "note batches", "file": str(folder / "batches")}
    steps = ("--set", "training.steps=8", "--set", "training.log_every=1")
    told = code(nursery.train(recipe, folder / "run", *steps, *options, faults=(note,)), 0)
    before, first, _ = told.partition("step 1/8")
    assert first
    seen: list[int] = []
    for (ids,) in trained_on(folder / "batches").values():
        if set(ids) & set(seen):
            break  # the next epoch
        seen += ids
    return before, len(seen)


def test_a_clean_file_has_nothing_to_tell(nursery: Nursery, tmp_path: Path) -> None:
    before, rows = told_before_step_1(nursery, write_recipe(tmp_path / "recipe"), tmp_path)
    assert "a.fr:" not in before
    assert "a.en:" not in before
    assert rows == 72


def test_a_truncated_gz(nursery: Nursery, tmp_path: Path) -> None:
    changes = {'"a.fr"': '"a.fr.gz"', '"a.en"': '"a.en.gz"'}
    recipe = write_recipe(tmp_path / "recipe", pairs=4000, changes=changes)
    for name in ("a.fr", "a.en"):
        path = recipe.with_name(name)
        packed = gzip.compress(path.read_bytes())
        recipe.with_name(f"{name}.gz").write_bytes(packed if name == "a.en" else packed[: len(packed) // 2])
        path.unlink()
    told = code(nursery.train(recipe, tmp_path / "run"), 3)
    assert "a.fr.gz: damaged or truncated after line" in told
    assert "step " not in told
