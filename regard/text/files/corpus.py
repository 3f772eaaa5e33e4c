"""Read text files into a corpus: pairs for translation, documents for language models.

Reading is strict and reports the location of each fault. Byte order marks and CRLF line endings are fixed, pairs with
an empty side are dropped, and on request lines that cannot be read are left out. The report counts all of these, with
the first few locations.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

from regard.errors import DataError, UsageError, unknown_name
from regard.text.files.lines import Fault, Finding, no_findings, read_lines, try_lines
from regard.text.files.rows import Columns, Findings, Row, Span, document_rows, pair_rows, parallel_rows, question_rows

__all__ = [
    "Corpus",
    "CorpusReport",
    "Finding",
    "make_corpus",
    "read_documents",
    "read_lines",
    "read_pairs",
    "read_parallel",
    "read_questions",
]

Files = str | Path | Sequence[str | Path]
Policy = Literal["stop", "skip"]  # what to do at a line that cannot be read
LEFT_OUT = ", left out"  # the report appends this to the kind of a skipped fault


@dataclass(frozen=True)
class CorpusReport:
    """Counts from reading a corpus: files, rows read and kept, and rows fixed or dropped, by kind."""

    files: tuple[str, ...]
    read: int
    kept: int
    findings: Mapping[str, Finding]

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain values, for JSON."""
        findings = {kind: {"count": x.count, "places": x.locations} for kind, x in self.findings.items()}
        return {"files": list(self.files), "read": self.read, "kept": self.kept, "findings": findings}

    def __str__(self) -> str:
        lines = [f"{self.kept:,} of {self.read:,} kept, from {', '.join(self.files)}"]
        for kind, finding in self.findings.items():
            lines.append(f"{kind}: {finding.count:,}, first at {', '.join(finding.locations)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Corpus:
    """Pairs of sentences and their locations. The corpus of a language model has documents and no target."""

    source: list[str] = field(repr=False)
    target: list[str] | None = field(repr=False)
    report: CorpusReport
    shards: tuple[tuple[int, str], ...] = field(repr=False)  # the first row and the name of each file
    lines: Sequence[int] = field(repr=False)  # the line number of each row in its file
    support: list[Span] | None = field(default=None, repr=False)  # the part of each source that its target comes from

    def __len__(self) -> int:
        return len(self.source)

    def location(self, i: int) -> str:
        """Return the location of row i as file:line."""
        shard = bisect_right(self.shards, i, key=lambda shard: shard[0]) - 1
        return f"{self.shards[shard][1]}:{self.lines[i]}"

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the sentences; file names and compression do not matter."""
        return hashlib.sha256(json.dumps([self.source, self.target]).encode()).hexdigest()


def read_parallel(source: Files, target: Files, *, faults: Policy = "stop") -> Corpus:
    """Read pairs from parallel files: line i of one is the translation of line i of the other; shards match in order.

    With `faults` "skip", pairs with a line that cannot be read are left out and counted.
    """
    sources, targets = _paths(source), _paths(target)
    if len(sources) != len(targets):
        raise UsageError(
            f"{len(sources)} source files and {len(targets)} target files: each source file needs a target file"
        )
    findings = no_findings()
    shards = [(str(x), parallel_rows(x, y, findings)) for x, y in zip(sources, targets, strict=True)]
    return _collect(shards, [*sources, *targets], findings, faults)


def read_pairs(files: Files, columns: Columns | None = None, *, faults: Policy = "stop") -> Corpus:
    """Read pairs from .tsv files (no quoting), .csv files (with quoting), .jsonl or .parquet files.

    Columns of tables are chosen by number from 0, or by name if there is a header row; others by name. The default is
    the first two columns, or those that a header names; or "source" and "target". `faults` is as for read_parallel.
    """
    paths, findings = _paths(files), no_findings()
    return _collect([(str(path), pair_rows(path, columns, findings)) for path in paths], paths, findings, faults)


def read_questions(files: Files, *, separator: str, faults: Policy = "stop") -> Corpus:
    """Read questions from .jsonl files with the keys "story", "question" and "answer".

    A source is the story, the separator and the question; a target is the answer. `faults` is as for read_parallel.
    """
    paths, findings = _paths(files), no_findings()
    return _collect([(str(path), question_rows(path, separator, findings)) for path in paths], paths, findings, faults)


def read_documents(files: Files, column: str = "text", *, faults: Policy = "stop") -> Corpus:
    """Read documents for a language model: one per file, or one per row of a .jsonl or .parquet file, in this column.

    With `faults` "skip", lines of a text (or documents) that cannot be read are left out and counted.
    """
    paths, findings = _paths(files), no_findings()
    shards: list[tuple[str, Iterator[Row]]] = []
    for path in paths:
        rows = document_rows(path, column, findings)
        shards.append((str(path), _whole_file(path, findings, faults) if rows is None else rows))
    return _collect(shards, paths, findings, faults)


def make_corpus(source: Sequence[str], target: Sequence[str] | None = None, *, name: str) -> Corpus:
    """Make a corpus of sentences in memory; `name` replaces the file name in locations."""
    if target is not None and len(source) != len(target):
        raise UsageError(f"{name}: {len(source)} source and {len(target)} target sentences")
    pairs = zip(source, [None] * len(source) if target is None else target, strict=True)
    rows: Iterator[Row] = ((number, *pair) for number, pair in enumerate(pairs, start=1))
    return _collect([(name, rows)], [name], no_findings(), "stop")


def _collect(
    shards: Iterable[tuple[str, Iterator[Row]]], files: Sequence[object], findings: Findings, faults: Policy
) -> Corpus:
    """Read all rows; drop and count those with an empty side; stop at a fault, or leave the row out."""
    if faults not in get_args(Policy):
        raise UsageError(unknown_name("policy for faults", faults, get_args(Policy)))
    sources: list[str] = []
    targets: list[str] = []
    spans: list[Span] = []
    lines, first_rows, read = array("q"), [], 0
    for name, rows in shards:
        first_rows.append((len(sources), name))
        for number, source, target, *span in rows:
            read += 1
            if isinstance(source, Fault) or isinstance(target, Fault):
                for fault in (source, target):
                    if isinstance(fault, Fault):
                        _leave_out(fault, findings, faults)
                continue
            if not source.strip() or (target is not None and not target.strip()):
                findings["empty, dropped"].add(name, number)
                continue
            sources.append(source)
            spans += span
            lines.append(number)
            if target is not None:
                targets.append(target)
    names = tuple(map(str, files))
    if not sources:
        left_out = {kind: finding for kind, finding in findings.items() if kind.endswith(LEFT_OUT)}
        details = "".join(f"; {kind}: {x.count}, first at {x.locations[0]}" for kind, x in left_out.items())
        raise DataError(f"{', '.join(names)}: no usable text ({read} lines read{details})")
    report = CorpusReport(names, read, len(sources), dict(findings))
    named = any(end > first for first, end in spans)
    return Corpus(sources, targets or None, report, tuple(first_rows), lines, spans if named else None)


def _leave_out(fault: Fault, findings: Findings, faults: Policy) -> None:
    """Count a fault if the policy is to skip it; else raise it."""
    if faults == "stop":
        raise fault.error()
    findings[fault.kind + LEFT_OUT].add(fault.path, fault.line)


def _whole_file(path: Path, findings: Findings, faults: Policy) -> Iterator[Row]:
    lines = []
    for line in try_lines(path, findings):
        if isinstance(line, Fault):
            _leave_out(line, findings, faults)
        else:
            lines.append(line + "\n")
    yield 1, "".join(lines), None


def _paths(files: Files) -> list[Path]:
    names = [files] if isinstance(files, str | Path) else files
    if not names:
        raise UsageError("no files were given")
    return [Path(name) for name in names]
