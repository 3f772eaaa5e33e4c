"""Read the rows of files: pairs from two files or one, documents from one; a Fault replaces an unreadable row."""

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
SURROGATES = re.compile("[\ud800-\udfff]")  # halves of characters, which are possible in JSON but not in UTF-8
MALFORMED = "malformed rows"  # the kind of fault of a row without its columns


class UnequalFilesError(DataError):
    """Two files that should be parallel have different numbers of lines."""

    def __init__(self, message: str, counts: tuple[int, int]) -> None:
        super().__init__(message)
        self.counts = counts


def parallel_rows(source: Path, target: Path, findings: Findings) -> Iterator[Row]:
    """Yield the lines of two files as pairs; raise UnequalFilesError where the shorter file ends."""
    source_lines, target_lines = try_lines(source, findings), try_lines(target, findings)
    for number, (source_line, target_line) in enumerate(zip_longest(source_lines, target_lines), start=1):
        if source_line is None or target_line is None:
            source_ended = source_line is None
            short, long, rest = (source, target, target_lines) if source_ended else (target, source, source_lines)
            total = number + sum(1 for _ in rest)
            counts = (number - 1, total) if source_ended else (total, number - 1)
            extra = source_line or target_line or ""
            text = (extra.excerpt if isinstance(extra, Fault) else extra)[:60]
            raise UnequalFilesError(
                f"{source} has {counts[0]} lines and {target} has {counts[1]}, but line i of one must be the "
                f"translation of line i of the other: {short} ends before line {number}, where {long} has {text!r}; "
                "run regard check on both files to find the line where they diverge",
                counts,
            )
        yield number, source_line, target_line


def pair_rows(path: Path, columns: Columns | None, findings: Findings) -> Iterator[Row]:
    """Return the pairs of one .tsv, .jsonl or .parquet file."""
    match _format(path):
        case ".tsv":
            return _tsv_rows(path, _column_numbers(columns or (0, 1)), findings)
        case ".jsonl":
            return _jsonl_rows(path, _column_names(columns or ("source", "target")), findings)
        case ".parquet":
            return _parquet_rows(path, _column_names(columns or ("source", "target")))
    raise UsageError(
        f"{path}: a file of pairs must be .tsv, .jsonl (also compressed: .gz, .xz, .zst) or .parquet, "
        f"got {path.suffix or 'no suffix'}"
    )


def document_rows(path: Path, column: str, findings: Findings) -> Iterator[Row] | None:
    """Return the documents of one .jsonl or .parquet file, or None for a file that is a single document."""
    match _format(path):
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
            f"{path}:{number}: columns {first} and {second} are needed (counted from 0, separated by tabs), "
            f"but the line has {len(cells)} column(s); it begins with {line[:60]!r}"
        )
        yield number, Fault(path, number, MALFORMED, message, line[:60]), None


def _jsonl_rows(path: Path, keys: tuple[str, ...], findings: Findings) -> Iterator[Row]:
    """Yield a document for one key, or a pair for two keys. Blank lines count as empty."""
    for number, line in enumerate(try_lines(path, findings), start=1):
        if isinstance(line, Fault):
            yield number, line, None
            continue
        if not line.strip():
            yield number, "", None
            continue
        try:
            source, *target = _json_texts(line, keys)
            yield number, source, target[0] if target else None
        except _RowError as error:
            kind, message = error.args
            yield number, Fault(path, number, kind, f"{path}:{number}: {message}", line[:60]), None


class _RowError(ValueError):
    """A row that cannot be read, with the kind of fault and the message as arguments."""


def _json_texts(line: str, keys: tuple[str, ...]) -> list[str]:
    """Return the texts of these keys in a JSON object."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _RowError(MALFORMED, f"not valid JSON: {error}") from None
    if not isinstance(entry, dict):
        raise _RowError(MALFORMED, f"expected a JSON object such as {{{keys[0]!r}: …}}, got {type(entry).__name__}")
    texts = []
    for key in keys:
        if key not in entry:
            keys_present = ", ".join(map(repr, entry)) or "none"
            raise _RowError(MALFORMED, f"no key {key!r}; the keys of this row are: {keys_present}")
        text = entry[key]
        if not isinstance(text, str):
            raise _RowError(MALFORMED, f"{key!r} contains {type(text).__name__}, not text")
        if not text.isascii() and SURROGATES.search(text):
            raise _RowError(NOT_UTF8, f"{key!r} contains half a surrogate pair, which is not a character")
        if "\0" in text:
            raise _RowError(NUL, f"{key!r} contains a NUL character")
        texts.append(text)
    return texts


def _parquet_rows(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """Yield a document for one column, or a pair for two columns."""
    for number, texts in parquet_texts(path, columns):
        yield number, texts[0], texts[1] if len(texts) == 2 else None


def _format(path: Path) -> str:
    """Return the suffix of the file's format. Parquet compresses its own content, so .parquet.gz is not a format."""
    suffix = content_name(path).suffix.lower()
    return path.suffix.lower() if suffix == ".parquet" else suffix


def _column_numbers(columns: Columns) -> tuple[int, int]:
    try:
        first, second = (int(column) for column in columns)
    except ValueError:
        first = second = -1
    if min(first, second) < 0:
        raise UsageError(f"the columns of a .tsv file must be two numbers, counted from 0; got {columns!r}")
    return first, second


def _column_names(columns: Columns) -> tuple[str, str]:
    first, second = columns
    if not isinstance(first, str) or not isinstance(second, str):
        raise UsageError(f"the columns of a .jsonl or .parquet file must be two names, got {columns!r}")
    return first, second
