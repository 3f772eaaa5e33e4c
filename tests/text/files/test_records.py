"""Files with a source and a target in each row: headers, quotes, delimiters, and keys with other names."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from regard.errors import DataError
from regard.text.files.column_names import header_columns
from regard.text.files.corpus import Corpus, read_pairs

ROWS = [("Bonjour, Marie !", 'She said "hello".'), ("Deux\nlignes", "two; lines"), ("trois", "three")]


def written_csv(path: Path, *header: str, delimiter: str = ",", rows: list[tuple[str, str]] = ROWS) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerows([header] * bool(header) + [(*row, "x") if len(header) == 3 else row for row in rows])
    return path


def pairs(corpus: Corpus) -> list[tuple[str, str]]:
    return list(zip(corpus.source, corpus.target or [], strict=True))


def notes(corpus: Corpus) -> list[str]:
    return [kind for kind in corpus.report.findings if kind.startswith(("header", "columns"))]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_with_quotes_and_line_breaks(tmp_path: Path, delimiter: str) -> None:
    path = written_csv(tmp_path / "a.csv", delimiter=delimiter)
    corpus = read_pairs(path)
    assert pairs(corpus) == ROWS and not corpus.report.findings  # CRLF is correct in this format
    assert [corpus.location(i) for i in range(3)] == [f"{path}:{line}" for line in (1, 2, 4)]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_header_names_the_columns(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    tab = "\t" if name == "a.tsv" else ","
    path.write_text(tab.join(["target", "source", "id"]) + "\n" + tab.join(["one", "un", "7"]) + "\n")
    corpus = read_pairs(path)
    assert pairs(corpus) == [("un", "one")]
    assert notes(corpus) == ['header row, skipped (source: column "source", target: column "target")']
    assert corpus.report.findings[notes(corpus)[0]].locations == [f"{path}:1"]
    assert pairs(read_pairs(path, ("id", "target"))) == [("7", "one")]
    assert pairs(read_pairs(path, (1, 0))) == [("un", "one")]
    with pytest.raises(
        DataError, match=rf"{name}:1: no column 'de'; the first row names the columns: 'target', 'source'"
    ):
        read_pairs(path, ("de", "en"))


HEADERS = {
    ("source", "target"): [0, 1],
    ("tgt", "src"): [1, 0],
    ("de", "en"): [0, 1],
    ("DE", "EN"): [0, 1],
    ("pt-BR", "en_US"): [0, 1],
    ("German", "English"): [0, 1],
    ("id", "de", "en", "score"): [1, 2],
    ("", "fr", "en"): [1, 2],
    ("id", "en"): [0, 1],  # Indonesian
    ("de", "en", "fr"): [0, 1, 2],
}
DATA = [
    ("Go.", "Va !"),
    ("No", "Non"),
    ("no", "no"),
    ("Hi", "Salut"),
    ("So", "He"),
    ("the source", "the target language is here and it is long"),
    ("source", "source"),
    ("1", "2"),
    ("Hi.", "Salut.", "CC-BY 2.0 (France)"),
]


@pytest.mark.parametrize("cells", HEADERS)
def test_headers(cells: tuple[str, ...]) -> None:
    assert header_columns(cells) == HEADERS[cells]


@pytest.mark.parametrize("cells", DATA)
def test_rows_that_are_no_headers(cells: tuple[str, ...]) -> None:
    assert header_columns(cells) is None


def test_three_languages_need_a_choice(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("de,en,fr\neins,one,un\n")
    with pytest.raises(DataError, match=r"names 3 languages: .* --set 'data\.columns=\[\"de\", \"en\"\]'"):
        read_pairs(path)
    assert pairs(read_pairs(path, ("fr", "de"))) == [("un", "eins")]


def test_rows_of_a_csv_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'un,one\n"deux" x,two\n\ncaf\xe9,coffee\nquatre\ncinq,five\n')
    with pytest.raises(
        DataError, match=r"a\.csv:2: not a row of a \.csv file .*: write a quotation mark in a cell twice"
    ):
        read_pairs(path)
    corpus = read_pairs(path, faults="skip")
    assert pairs(corpus) == [("un", "one"), ("cinq", "five")]
    findings = corpus.report.findings
    assert findings["malformed rows, left out"].locations == [f"{path}:2", f"{path}:5"]
    assert findings["not UTF-8, left out"].locations == [f"{path}:4"] and findings["empty, dropped"].count == 1
    path.write_text('"never closed,one\ndeux,two\n')
    with pytest.raises(DataError, match=r"a\.csv:1: not a row of a \.csv file"):
        read_pairs(path)


def jsonl(path: Path, *entries: object) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def test_nested_translations(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {"id": "1", "translation": {"de": "eins", "en": "one"}},
        {"id": "2", "translation": {"en": "two", "de": "zwei"}},  # the first row decides
    )
    corpus = read_pairs(path)
    assert pairs(corpus) == [("eins", "one"), ("zwei", "two")]
    assert notes(corpus) == ['columns chosen by the first row (source: "translation.de", target: "translation.en")']
    assert pairs(read_pairs(path, ("translation.en", "translation.de"))) == [("one", "eins"), ("two", "zwei")]
    assert read_pairs(jsonl(path, {"a.b": "x", "c": {"d": {"e": "y"}}}), ("a.b", "c.d.e")).target == ["y"]


@pytest.mark.parametrize(
    ("entry", "columns"),
    [
        ({"de": "eins", "en": "one"}, '["de", "en"]'),
        ({"id": "7", "en": "one", "de": "eins"}, '["en", "de"]'),
        ({"question": "why?", "answer": "because", "score": 3}, '["question", "answer"]'),
        ({"translation": {"de": "eins", "en": "one", "fr": "un"}}, '["translation.de", "translation.en"]'),
        ({"a": {"x": "eins", "y": "one"}}, '["a.x", "a.y"]'),
    ],
)
def test_other_keys_are_suggested(tmp_path: Path, entry: object, columns: str) -> None:
    path = jsonl(tmp_path / "a.jsonl", entry)
    with pytest.raises(DataError) as error:
        read_pairs(path)
    assert str(error.value).startswith(f"{path}:1: no key 'source'; the keys of this row are: ")
    assert str(error.value).endswith(f"for example with --set 'data.columns={columns}'")
    first, second = json.loads(columns)
    assert len(read_pairs(path, (first, second))) == 1


def test_too_few_texts_for_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the keys of this row are: 'text'$"):
        read_pairs(jsonl(tmp_path / "a.jsonl", {"text": "one"}))
