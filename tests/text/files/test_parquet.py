"""Pairs and documents from parquet files: columns by name, and clean errors for whatever else is in the file."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings, strategies as st

from regard.errors import DataError, UsageError
from regard.text.check.checker import PairsFile, TextFile, check_data
from regard.text.files.corpus import read_documents, read_pairs
from regard.training.recipe.from_files import recipe_for_files

COLUMNS = {
    "source": ["un", "deux", None, "quatre"],
    "target": pyarrow.array(["one", "two", "three", "four"]).dictionary_encode(),
    "text": pyarrow.array(["one\ntwo", "three", " ", "four"], pyarrow.large_string()),
    "translation": [{"fr": "un", "en": "one"}] * 4,
    "id": [1, 2, 3, 4],
    "words": [["un"]] * 4,
    "raw": [b"un", b"caf\xe9", b"\0", None],
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table(COLUMNS), path)
    return path


def test_pairs(path: Path) -> None:
    corpus = read_pairs(path)
    assert (corpus.source, corpus.target) == (["un", "deux", "quatre"], ["one", "two", "four"])
    assert corpus.report.findings["empty, dropped"].locations == [f"{path}:3"]
    assert corpus.location(2) == f"{path}:4"
    assert read_pairs(path, ("target", "source")).source == ["one", "two", "four"]
    assert read_pairs(path, ("translation.en", "translation.fr")).target == ["un"] * 4


def test_documents(path: Path) -> None:
    corpus = read_documents(path)
    assert corpus.source == ["one\ntwo", "three", "four"] and corpus.target is None
    assert read_documents(path, column="target").source == ["one", "two", "three", "four"]


def test_many_rows(tmp_path: Path) -> None:
    path = tmp_path / "many.parquet"
    texts = [f"line {i}" for i in range(20_000)]
    table = pyarrow.table({"source": texts, "target": [*texts[:-1], ""]})
    pyarrow.parquet.write_table(table, path, row_group_size=3000)
    corpus = read_pairs(path)
    assert corpus.source == texts[:-1] and corpus.report.findings["empty, dropped"].locations == [f"{path}:20000"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("source", "traget"), r"unknown column 'traget'; did you mean 'target'\?"),
        (("source", "id"), "column 'id' contains INT64, not text"),
        (("source", "words.list.element"), "contains lists, not text"),
        (("source", "translation"), r"unknown column 'translation'; did you mean 'translation\.\w\w'\?"),
        (("source", "raw"), r"a\.parquet:2: 'raw' is not UTF-8"),
    ],
)
def test_wrong_columns(path: Path, columns: tuple[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_pairs(path, columns)
    with pytest.raises(UsageError, match="two names"):
        read_pairs(path, (0, 1))


def test_other_columns_are_suggested(tmp_path: Path) -> None:
    path = tmp_path / "b.parquet"
    table = pyarrow.table({"id": ["1"], "translation": [{"de": "eins", "en": "one"}]})
    pyarrow.parquet.write_table(table, path)
    with pytest.raises(
        DataError, match=r"'source' .* --set 'data\.columns=\[\"translation\.de\", \"translation\.en\"\]'"
    ):
        read_pairs(path)
    assert read_pairs(path, ("translation.de", "translation.en")).target == ["one"]


def test_rows_that_cannot_be_read_are_left_out(path: Path) -> None:
    corpus = read_pairs(path, ("target", "raw"), faults="skip")
    assert corpus.target == ["un"] and corpus.report.read == 4
    assert {kind: one.locations for kind, one in corpus.report.findings.items()} == {
        "not UTF-8, left out": [f"{path}:2"],
        "NUL bytes, left out": [f"{path}:3"],
        "empty, dropped": [f"{path}:4"],
    }


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damage_gives_clean_errors(path: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    cut = data.draw(st.none() | st.integers(0, len(content) - 1))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    broken = tmp_path_factory.mktemp("broken") / "a.parquet"
    broken.write_bytes(content[:cut])
    with pytest.raises(DataError) if cut is not None else suppress(DataError):  # a bit that nobody reads may be wrong
        read_pairs(broken)


def test_no_parquet_file(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"un\tone\n")
    with pytest.raises(DataError, match=r"a\.parquet: damaged after row 0, or not a parquet file"):
        read_pairs(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: no such file"):
        read_pairs(tmp_path / "b.parquet")
    with pytest.raises(UsageError, match=r"a\.parquet\.gz: a file of pairs must be"):
        read_pairs(tmp_path / "a.parquet.gz")


def test_parquet_under_another_name(tmp_path: Path, path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(path.read_bytes())
    with pytest.raises(DataError, match=r"it looks like a parquet file: rename it to end in \.parquet"):
        read_documents(tmp_path / "a.txt")


def test_without_the_package(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"a\.parquet: .*pip install 'regard\[parquet\]'"):
        read_pairs(path)


def test_training_and_the_doctor_take_it(path: Path) -> None:
    recipe = recipe_for_files([path])
    assert recipe.data.pairs == (str(path),) and recipe.name == "a"
    report = check_data([PairsFile(path)])
    assert [(problem.name, problem.examples[0].location) for problem in report.problems] == [("empty", f"{path}:3")]
    assert check_data([TextFile(path)]).unit == "documents"


def test_a_bomb(tmp_path: Path) -> None:
    """A text of 1 MB that 10,000 rows share: 10 GB from a file of some kilobytes."""
    shared = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 10_000), pyarrow.array(["abcde " * 200_000]))
    pyarrow.parquet.write_table(pyarrow.table({"source": shared, "target": shared}), tmp_path / "a.parquet")
    for read in (read_pairs, lambda path: read_documents(path, column="source")):
        with pytest.raises(DataError, match=r"a\.parquet: contains more than 200 times its size"):
            read(tmp_path / "a.parquet")
