"""Read the rows of files: pairs from two files or one, documents from one; a Fault replaces an unreadable row."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from regard.errors import DataError, UsageError
from regard.text.files.compressed import content_name
from regard.text.files.lines import MARK, NOT_UTF8, NUL, Fault, Finding, no_findings, try_lines
from regard.text.files.parquet import parquet_texts
from regard.text.files.records import MALFORMED, Columns, JsonLines, RecordFormat, column_names, pair_format

__all__ = [
    "MALFORMED",
    "Columns",
    "Findings",
    "Row",
    "Span",
    "UnequalFilesError",
    "document_rows",
    "pair_rows",
    "parallel_rows",
]

Span = tuple[int, int]  # characters of a text: the first, and the first after them; equal if unknown
Pair = tuple[int, str | Fault, str | Fault | None]  # line number, source, target
Row = Pair | tuple[int, str | Fault, str | Fault | None, Span]  # and the part of the source that the target comes from
Findings = defaultdict[str, Finding]
SURROGATES = re.compile("[\ud800-\udfff]")  # halves of characters, which are possible in JSON but not in UTF-8
QUESTION_KEYS = ("story", "question", "answer")
PAIR_SUFFIXES = (".tsv", ".csv", ".jsonl", ".parquet")


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
    """Return the pairs of one .tsv, .csv, .jsonl or .parquet file; note in `findings` which columns a header chose."""
    suffix = file_format(path)
    if suffix not in PAIR_SUFFIXES:
        raise UsageError(
            f"{path}: a file of pairs must be .tsv, .csv, .jsonl (also compressed: .gz, .xz, .zst) or .parquet, "
            f"got {path.suffix or 'no suffix'}"
        )
    if suffix == ".parquet":
        return _parquet_rows(path, column_names(columns or ("source", "target")))
    return _record_rows(path, pair_format(path, suffix, columns), findings)


def question_rows(path: Path, separator: str, findings: Findings) -> Iterator[Row]:
    """Yield the questions of a .jsonl file as pairs: story, separator and question, and the answer.

    A row with an empty part becomes an empty pair. "support" may quote the part of the story that has the answer.
    """
    if file_format(path) != ".jsonl":
        raise UsageError(
            f"{path}: questions are read from .jsonl files (also compressed: .gz, .xz, .zst), with "
            f'{{"story": …, "question": …, "answer": …}} in each line, got {path.suffix or "no suffix"}'
        )
    for record in JsonLines(path, QUESTION_KEYS).records(try_lines(path, findings)):
        if isinstance(record, Fault):
            yield record.line, record, None
            continue
        cells = [_checked(path, record.number, *cell) for cell in zip(QUESTION_KEYS, record.texts, strict=True)]
        story, question, answer = cells
        if fault := next((cell for cell in cells if isinstance(cell, Fault)), None):
            yield record.number, fault, answer
        elif all(cell.strip() for cell in cells if isinstance(cell, str)):
            support = record.content.get("support", "")
            if not isinstance(support, str) or support not in str(story):
                message = f'{path}:{record.number}: "support" is not a part of the story: quote a sentence of it'
                yield (
                    record.number,
                    Fault(path, record.number, MALFORMED, message, str(support)[:60], record.line),
                    None,
                )
                continue
            first = str(story).index(support)
            yield record.number, f"{story} {separator} {question}", answer, (first, first + len(support))
        else:
            yield record.number, "", ""


def document_rows(path: Path, column: str, findings: Findings) -> Iterator[Row] | None:
    """Return the documents of one .jsonl or .parquet file, or None for a file that is a single document."""
    match file_format(path):
        case ".jsonl":
            return _record_rows(path, JsonLines(path, (column,)), findings)
        case ".parquet":
            return _parquet_rows(path, (column,))
    return None


def file_format(path: Path) -> str:
    """Return the suffix of the file's format. Parquet compresses its own content, so .parquet.gz is not a format."""
    suffix = content_name(path).suffix.lower()
    return path.suffix.lower() if suffix == ".parquet" else suffix


def _record_rows(path: Path, rows: RecordFormat, findings: Findings) -> Iterator[Row]:
    line_findings = no_findings() if file_format(path) == ".csv" else findings
    for record in rows.records(try_lines(path, line_findings)):
        if isinstance(record, Fault):
            yield record.line, record, None
            continue
        if record.note:
            findings[record.note].add(path, record.number)
        if record.texts:
            columns = record.columns or record.texts
            source, *target = (_checked(path, record.number, *cell) for cell in zip(columns, record.texts, strict=True))
            yield record.number, source, target[0] if target else None
    if MARK in line_findings:  # in a .csv file, CRLF line ends are correct
        findings[MARK] = line_findings[MARK]


def _checked(path: Path, number: int, column: object, text: str) -> str | Fault:
    """Return a text, or a Fault if it contains what only JSON can contain: NUL, or half a character."""
    if "\0" in text:
        return Fault(path, number, NUL, f"{path}:{number}: {column!r} contains a NUL character", text[:60])
    if text.isascii() or not SURROGATES.search(text):
        return text
    message = f"{path}:{number}: {column!r} contains half a surrogate pair, which is not a character"
    return Fault(path, number, NOT_UTF8, message, text[:60].encode(errors="backslashreplace").decode())


def _parquet_rows(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """Yield a document for one column, or a pair for two columns."""
    for number, texts in parquet_texts(path, columns):
        yield number, texts[0], texts[1] if len(texts) == 2 else None
