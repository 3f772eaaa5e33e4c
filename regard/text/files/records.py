"""Formats with a source and a target in each row: .tsv, .csv and .jsonl. Rows can be read, and written again."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

from regard.errors import DataError, UsageError
from regard.text.files.column_names import (
    columns_option,
    header_columns,
    nested_languages,
    suggested_keys,
    text_keys,
)
from regard.text.files.lines import Fault

Columns = tuple[str | int, str | int]
MALFORMED = "malformed rows"  # the kind of fault of a row without its columns
DELIMITERS = ",;\t"
SAMPLE_LINES = 100  # of a .csv file, from which its delimiter is found


@dataclass(frozen=True)
class Record:
    """A row of a file, with what is needed to write it again."""

    number: int
    texts: tuple[str, ...]  # none for a header row
    line: str  # the row as it is in the file
    content: Any = None  # the row, parsed
    columns: Sequence[str | int] = ()  # of the texts
    note: str = ""  # what the reader decided at this row


class RecordFormat(Protocol):
    """A format of rows."""

    def records(self, lines: Iterable[str | Fault]) -> Iterator[Record | Fault]:
        """Yield the rows of these lines."""

    def line(self, record: Record, texts: Sequence[str]) -> str:
        """Return the row as it is written with other texts."""


class Table:
    """A .tsv file (columns separated by tabs, no quoting) or a .csv file (with quoting)."""

    def __init__(self, path: Path, columns: Columns | None, *, quoted: bool) -> None:
        self.path, self.quoted, self.delimiter = path, quoted, "\t"
        self._names: tuple[str, str] | None = None
        self._numbers: list[int] | None = None
        if columns is not None:
            try:
                self._numbers = [int(column) for column in columns]
            except ValueError:
                self._names = (str(columns[0]), str(columns[1]))
            if self._numbers and min(self._numbers) < 0:
                raise UsageError(f"{path}: columns are counted from 0, got {columns!r}")

    def records(self, lines: Iterable[str | Fault]) -> Iterator[Record | Fault]:
        rows = self._quoted_rows(lines) if self.quoted else self._plain_rows(lines)
        columns: list[int] | None = None
        for row in rows:
            if isinstance(row, Fault):
                yield row
                continue
            number, line, cells = row
            if columns is None and cells:
                columns, note = self._choose_columns(number, cells)
                if note:
                    yield Record(number, (), line, note=note)
                    continue
            if not any(cells):
                yield Record(number, ("", ""), line)
            elif columns is not None and len(cells) > max(columns):
                yield Record(number, (cells[columns[0]], cells[columns[1]]), line, cells, columns)
            else:
                yield self._fault(number, line, columns or [0, 1], len(cells))

    def line(self, record: Record, texts: Sequence[str]) -> str:
        cells = list(record.content)
        for column, text in zip(record.columns, texts, strict=True):
            cells[int(column)] = text
        if not self.quoted:
            return "\t".join(cells)
        row = io.StringIO()
        csv.writer(row, delimiter=self.delimiter, lineterminator="").writerow(cells)
        return row.getvalue()

    def _choose_columns(self, number: int, cells: list[str]) -> tuple[list[int], str]:
        """Return the columns of source and target, and a note if this row is a header."""
        names = [cell.strip() for cell in cells]
        if self._names is not None:
            missing = [name for name in self._names if name not in names]
            if missing:
                raise DataError(
                    f"{self.path}:{number}: no column {missing[0]!r}; the first row names the columns: "
                    f"{', '.join(map(repr, names))}. Without names, choose columns by number, counted from 0: "
                    f"{columns_option([0, 1])}"
                )
            columns = [names.index(name) for name in self._names]
        else:
            header = header_columns(cells)
            columns = self._numbers or header or [0, 1]
            if header is None and max(columns) < len(cells):
                header = header_columns([cells[column] for column in columns])
            if header is None:
                return columns, ""
        if len(columns) > 2:
            raise DataError(
                f"{self.path}:{number}: the header names {len(columns)} languages: choose the source and the target, "
                f"for example with {columns_option([names[column] for column in columns[:2]])}"
            )
        source, target = (names[i] if i < len(names) else str(i) for i in columns)
        return columns, f'header row, skipped (source: column "{source}", target: column "{target}")'

    def _fault(self, number: int, line: str, columns: Sequence[int], cells: int) -> Fault:
        separator = {",": "commas", ";": "semicolons", "\t": "tabs"}[self.delimiter]
        message = (
            f"{self.path}:{number}: columns {columns[0]} and {columns[1]} are needed (counted from 0, separated by "
            f"{separator}), but the line has {cells} column(s); it begins with {line[:60]!r}"
        )
        return Fault(self.path, number, MALFORMED, message, line[:60], line)

    def _plain_rows(self, lines: Iterable[str | Fault]) -> Iterator[tuple[int, str, list[str]] | Fault]:
        for number, line in enumerate(lines, start=1):
            yield line if isinstance(line, Fault) else (number, line, line.split("\t"))

    def _quoted_rows(self, lines: Iterable[str | Fault]) -> Iterator[tuple[int, str, list[str]] | Fault]:
        """Yield the rows of a .csv file. A quoted cell may continue on the next line."""
        iterator = iter(lines)
        sample = list(islice(iterator, SAMPLE_LINES))
        self.delimiter = _find_delimiter([line for line in sample if isinstance(line, str)])
        row_lines: list[str | Fault] = []  # those of the current row

        def text_lines() -> Iterator[str]:
            for line in chain(sample, iterator):
                row_lines.append(line)
                yield (line.text if isinstance(line, Fault) else line) + "\n"

        reader = csv.reader(text_lines(), delimiter=self.delimiter, strict=True)
        number = 1
        while True:
            cells, reason = None, ""
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                reason = str(error)
            faults = [line for line in row_lines if isinstance(line, Fault)]
            text = "\n".join(line.text if isinstance(line, Fault) else line for line in row_lines)
            if faults:
                yield faults[0]
            elif cells is None:
                message = (
                    f"{self.path}:{number}: not a row of a .csv file ({reason}): write a quotation mark in a cell twice"
                )
                yield Fault(self.path, number, MALFORMED, message, text[:60], text)
            else:
                yield number, text, cells
            number += len(row_lines)
            row_lines.clear()


class JsonLines:
    """A .jsonl file: one JSON object in each line, with texts under these keys; blank lines count as empty.

    A dot leads into a nested object: "translation.de". Without keys, they are "source" and "target", or the two
    languages of a nested object in the first row.
    """

    def __init__(self, path: Path, keys: tuple[str, ...] | None) -> None:
        self.path, self._keys = path, keys

    def records(self, lines: Iterable[str | Fault]) -> Iterator[Record | Fault]:
        keys = self._keys
        for number, line in enumerate(lines, start=1):
            if isinstance(line, Fault):
                yield line
                continue
            if not line.strip():
                yield Record(number, ("",) * len(keys or "st"), line)
                continue
            try:
                entry, note = _json_object(line, keys or ("source", "target")), ""
                if keys is None:
                    keys, note = _choose_keys(entry)
                yield Record(number, tuple(_json_text(entry, key, keys) for key in keys), line, entry, keys, note)
            except _RowError as error:
                yield Fault(self.path, number, MALFORMED, f"{self.path}:{number}: {error}", line[:60], line)

    def line(self, record: Record, texts: Sequence[str]) -> str:
        for key, text in zip(record.columns, texts, strict=True):
            parent, name = _nested(record.content, str(key))
            parent[name] = text
        return json.dumps(record.content, ensure_ascii=record.line.isascii())


class _RowError(ValueError):
    """A row without the texts that are needed."""


def pair_format(path: Path, suffix: str, columns: Columns | None) -> RecordFormat:
    """Return the format of a .tsv, .csv or .jsonl file of pairs."""
    if suffix == ".jsonl":
        return JsonLines(path, None if columns is None else column_names(columns))
    return Table(path, columns, quoted=suffix == ".csv")


def column_names(columns: Columns) -> tuple[str, str]:
    """Return columns of a .jsonl or .parquet file; raise UsageError if they are numbers."""
    first, second = columns
    if not isinstance(first, str) or not isinstance(second, str):
        raise UsageError(f"the columns of a .jsonl or .parquet file must be two names, got {columns!r}")
    return first, second


def _find_delimiter(lines: list[str]) -> str:
    """Return the delimiter of a .csv file: one that makes the first row a header, or gives all rows equal lengths."""
    tables: dict[str, list[list[str]]] = {}
    for delimiter in DELIMITERS:
        reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter)
        try:
            tables[delimiter] = [row for row in reader if row]
        except csv.Error:
            continue
    for delimiter, rows in tables.items():
        if rows and len(rows[0]) > 1 and header_columns(rows[0]):
            return delimiter
    for delimiter, rows in tables.items():
        if rows and len(rows[0]) > 1 and len({len(row) for row in rows}) == 1:
            return delimiter
    return ","


def _choose_keys(entry: dict[str, Any]) -> tuple[tuple[str, str], str]:
    """Return the keys of source and target, and a note if they are not the default ones."""
    keys = nested_languages(entry)
    if keys is None or ("source" in entry and "target" in entry):
        return ("source", "target"), ""
    return keys, f'columns chosen by the first row (source: "{keys[0]}", target: "{keys[1]}")'


def _json_object(line: str, keys: Sequence[str]) -> dict[str, Any]:
    try:
        entry = json.loads(line, strict=False)  # a tab in a text is forbidden, but it happens
    except (ValueError, RecursionError) as error:
        raise _RowError(f"not valid JSON: {error}") from None
    if not isinstance(entry, dict):
        raise _RowError(f"expected a JSON object such as {{{keys[0]!r}: …}}, got {type(entry).__name__}")
    return entry


def _json_text(entry: dict[str, Any], key: str, keys: Sequence[str]) -> str:
    parent, name = _nested(entry, key)
    if name not in parent:
        available = text_keys(entry)
        message = f"no key {key!r}; the keys of this row are: {', '.join(map(repr, entry)) or 'none'}"
        if len(keys) == 2 and (pair := suggested_keys(available)):
            message += f". Choose the source and the target, for example with {columns_option(pair)}"
        raise _RowError(message)
    if not isinstance(parent[name], str):
        raise _RowError(f"{key!r} contains {type(parent[name]).__name__}, not text")
    return parent[name]


def _nested(entry: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """Return the object that contains a key, and the last part of the key; a key may itself contain a dot."""
    outer, dot, inner = key.partition(".")
    if key in entry or not dot or not isinstance(entry.get(outer), dict):
        return entry, key
    return _nested(entry[outer], inner)
