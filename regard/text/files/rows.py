"""The rows of files: pairs in two files or in one, documents in one; a Fault in place of a row that cannot be read."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from regard.errors import DataError, UsageError
from regard.text.files.compressed import content_name
from regard.text.files.lines import NOT_UTF8, NUL, Fault, Finding, try_lines
from regard.text.files.parquet import parquet_texts

Columns = tuple[str | int, str | int]
Row = tuple[int, str | Fault, str | Fault | None]  # line number, source, target
Findings = defaultdict[str, Finding]
SURROGATES = re.compile("[\ud800-\udfff]")  # halves of characters, which JSON can hold and UTF-8 cannot
MALFORMED = "not as announced"  # the kind of fault of a row without its columns


class UnequalFilesError(DataError):
    """Two files that should be parallel have different numbers of lines."""

    def __init__(self, message: str, counts: tuple[int, int]) -> None:
        super().__init__(message)
        self.counts = counts


def parallel_rows(source: Path, target: Path, findings: Findings) -> Iterator[Row]:
    """The lines of two files as pairs; UnequalFilesError where the shorter one ends."""
    ours, theirs = try_lines(source, findings), try_lines(target, findings)
    for number, (one, other) in enumerate(zip_longest(ours, theirs), start=1):
        if one is None or other is None:
            short, long, rest = (source, target, theirs) if one is None else (target, source, ours)
            total = number + sum(1 for _ in rest)
            counts = (number - 1, total) if one is None else (total, number - 1)
            left = one or other or ""
            text = (left.shown if isinstance(left, Fault) else left)[:60]
            raise UnequalFilesError(
                f"{source} has {counts[0]} lines and {target} has {counts[1]}, but line i of one must be the "
                f"translation of line i of the other: {short} ends before line {number}, where {long} says {text!r}",
                counts,
            )
        yield number, one, other


def pair_rows(path: Path, columns: Columns | None, findings: Findings) -> Iterator[Row]:
    """The pairs of one .tsv, .jsonl or .parquet file."""
    match _kind(path):
        case ".tsv":
            return _tsv_rows(path, _numbers(columns or (0, 1)), findings)
        case ".jsonl":
            return _jsonl_rows(path, _names(columns or ("source", "target")), findings)
        case ".parquet":
            return _parquet_rows(path, _names(columns or ("source", "target")))
    raise UsageError(f"{path}: pairs in one file are .tsv, .jsonl (or those with .gz, .xz, .zst) or .parquet")


def document_rows(path: Path, column: str, findings: Findings) -> Iterator[Row] | None:
    """The documents of one .jsonl or .parquet file; None for a file that is one document."""
    match _kind(path):
        case ".jsonl":
            return _jsonl_rows(path, (column,), findings)
        case ".parquet":
            return _parquet_rows(path, (column,))
    return None


def _tsv_rows(path: Path, columns: tuple[int, int], findings: Findings) -> Iterator[Row]:
    first, second = columns
    for number, line in enumerate(try_lines(path, findings), start=1):
        if isinstance(line, Fault):
            yield number, line, None
            continue
        cells = line.split("\t")
        if len(cells) > max(columns):
            yield number, cells[first], cells[second]
            continue
        message = (
            f"{path}:{number}: {len(cells)} column(s), and columns {first} and {second} (from 0) are wanted: "
            f"columns are parted by tabs; the line begins {line[:60]!r}"
        )
        yield number, Fault(path, number, MALFORMED, message, line[:60]), None


def _jsonl_rows(path: Path, keys: tuple[str, ...], findings: Findings) -> Iterator[Row]:
    """One key gives a document, two give a pair. Blank lines count as empty."""
    for number, line in enumerate(try_lines(path, findings), start=1):
        if isinstance(line, Fault):
            yield number, line, None
            continue
        if not line.strip():
            yield number, "", None
            continue
        try:
            source, *target = _texts_of(line, keys)
            yield number, source, target[0] if target else None
        except _RowError as error:
            kind, message = error.args
            yield number, Fault(path, number, kind, f"{path}:{number}: {message}", line[:60]), None


class _RowError(ValueError):
    """What is wrong with a row: the kind of fault, and what to say of it."""


def _texts_of(line: str, keys: tuple[str, ...]) -> list[str]:
    """What a line of JSON holds under these keys."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _RowError(MALFORMED, f"not valid JSON: {error}") from None
    if not isinstance(entry, dict):
        raise _RowError(MALFORMED, f"a JSON object was expected, such as {{{keys[0]!r}: …}}")
    texts = []
    for key in keys:
        if key not in entry:
            found = ", ".join(map(repr, entry)) or "none"
            raise _RowError(MALFORMED, f"no key {key!r}; the keys found are {found}")
        text = entry[key]
        if not isinstance(text, str):
            raise _RowError(MALFORMED, f"{key!r} holds {type(text).__name__}, not text")
        if not text.isascii() and SURROGATES.search(text):
            raise _RowError(NOT_UTF8, f"{key!r} holds half a surrogate pair, which is no character")
        if "\0" in text:
            raise _RowError(NUL, f"{key!r} holds a NUL character")
        texts.append(text)
    return texts


def _parquet_rows(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """One column gives a document, two give a pair."""
    for number, texts in parquet_texts(path, columns):
        yield number, texts[0], texts[1] if len(texts) == 2 else None


def _kind(path: Path) -> str:
    """The suffix that says what is in the file. Parquet packs its own content, so it is not packed again."""
    kind = content_name(path).suffix.lower()
    return path.suffix.lower() if kind == ".parquet" else kind


def _numbers(columns: Columns) -> tuple[int, int]:
    try:
        first, second = (int(column) for column in columns)
    except ValueError:
        first = second = -1
    if min(first, second) < 0:
        raise UsageError(f"columns of a .tsv file are two numbers from 0, got {columns!r}")
    return first, second


def _names(columns: Columns) -> tuple[str, str]:
    first, second = columns
    if not isinstance(first, str) or not isinstance(second, str):
        raise UsageError(f"columns of a .jsonl or .parquet file are two names, got {columns!r}")
    return first, second
