"""Text files to sentences: pairs for translation, documents for language models.

Reading is strict and tells the place of each fault. What it mends (byte order marks, CRLF), drops (empty sides) and,
where that is asked for, leaves out (lines that cannot be read) is counted, with the first few places.
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
from regard.text.files.rows import Columns, Findings, Row, document_rows, pair_rows, parallel_rows

__all__ = [
    "Corpus",
    "CorpusReport",
    "Finding",
    "make_corpus",
    "read_documents",
    "read_lines",
    "read_pairs",
    "read_parallel",
]

Files = str | Path | Sequence[str | Path]
Policy = Literal["stop", "skip"]  # at a line that cannot be read
LEFT_OUT = ", left out"  # what the report says of the kind of a fault


@dataclass(frozen=True)
class CorpusReport:
    """What was counted while reading: files, rows read and kept, and what was mended or dropped, by kind."""

    files: tuple[str, ...]
    read: int
    kept: int
    findings: Mapping[str, Finding]

    def to_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        found = {kind: {"count": one.count, "places": one.places} for kind, one in self.findings.items()}
        return {"files": list(self.files), "read": self.read, "kept": self.kept, "findings": found}

    def __str__(self) -> str:
        lines = [f"{self.kept:,} of {self.read:,} kept, from {', '.join(self.files)}"]
        for kind, one in self.findings.items():
            lines.append(f"{kind}: {one.count:,}, first at {', '.join(one.places)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Corpus:
    """Sentences side by side, and where each one stood. A language model's corpus has documents and no target."""

    source: list[str] = field(repr=False)
    target: list[str] | None = field(repr=False)
    report: CorpusReport
    shards: tuple[tuple[int, str], ...] = field(repr=False)  # the first row of each file
    lines: Sequence[int] = field(repr=False)  # the line of each row in its file

    def __len__(self) -> int:
        return len(self.source)

    def place(self, i: int) -> str:
        """Where row i stood, as file:line."""
        shard = bisect_right(self.shards, i, key=lambda shard: shard[0]) - 1
        return f"{self.shards[shard][1]}:{self.lines[i]}"

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the sentences; the files' names and how they were packed do not matter."""
        return hashlib.sha256(json.dumps([self.source, self.target]).encode()).hexdigest()


def read_parallel(source: Files, target: Files, *, faults: Policy = "stop") -> Corpus:
    """Pairs from files whose line i is the translation of the other's line i; shards go together in their order.

    `faults` "skip" leaves out pairs with a line that cannot be read, and counts them.
    """
    ours, theirs = _paths(source), _paths(target)
    if len(ours) != len(theirs):
        raise UsageError(f"{len(ours)} source files and {len(theirs)} target files: each needs its counterpart")
    findings = no_findings()
    shards = [(str(one), parallel_rows(one, other, findings)) for one, other in zip(ours, theirs, strict=True)]
    return _collect(shards, [*ours, *theirs], findings, faults)


def read_pairs(files: Files, columns: Columns | None = None, *, faults: Policy = "stop") -> Corpus:
    """Pairs from .tsv files (columns by number from 0, no quoting), .jsonl or .parquet files (columns by name).

    By default the first two columns, or those named "source" and "target". `faults` as for read_parallel.
    """
    paths, findings = _paths(files), no_findings()
    return _collect([(str(path), pair_rows(path, columns, findings)) for path in paths], paths, findings, faults)


def read_documents(files: Files, column: str = "text", *, faults: Policy = "stop") -> Corpus:
    """Documents for a language model: each file is one, or each row of a .jsonl or .parquet file, in this column.

    `faults` "skip" leaves out the lines of a text, or the documents, that cannot be read, and counts them.
    """
    paths, findings = _paths(files), no_findings()
    shards: list[tuple[str, Iterator[Row]]] = []
    for path in paths:
        rows = document_rows(path, column, findings)
        shards.append((str(path), _whole_file(path, findings, faults) if rows is None else rows))
    return _collect(shards, paths, findings, faults)


def make_corpus(source: Sequence[str], target: Sequence[str] | None = None, *, name: str) -> Corpus:
    """A corpus of sentences that are in memory already; `name` stands where a file's would."""
    if target is not None and len(source) != len(target):
        raise UsageError(f"{name}: {len(source)} source and {len(target)} target sentences")
    pairs = zip(source, [None] * len(source) if target is None else target, strict=True)
    rows: Iterator[Row] = ((number, one, other) for number, (one, other) in enumerate(pairs, start=1))
    return _collect([(name, rows)], [name], no_findings(), "stop")


def _collect(
    shards: Iterable[tuple[str, Iterator[Row]]], files: Sequence[object], findings: Findings, faults: Policy
) -> Corpus:
    """Read all rows; drop and count those with an empty side; stop at those with a fault, or leave them out."""
    if faults not in get_args(Policy):
        raise UsageError(unknown_name("policy for faults", faults, get_args(Policy)))
    sources: list[str] = []
    targets: list[str] = []
    lines, firsts, read = array("q"), [], 0
    for name, rows in shards:
        firsts.append((len(sources), name))
        for number, source, target in rows:
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
            lines.append(number)
            if target is not None:
                targets.append(target)
    names = tuple(map(str, files))
    if not sources:
        left_out = {kind: one for kind, one in findings.items() if kind.endswith(LEFT_OUT)}
        told = "".join(f"; {kind}: {one.count}, first at {one.places[0]}" for kind, one in left_out.items())
        raise DataError(f"{', '.join(names)}: no text in it ({read} lines read{told})")
    report = CorpusReport(names, read, len(sources), dict(findings))
    return Corpus(sources, targets or None, report, tuple(firsts), lines)


def _leave_out(fault: Fault, findings: Findings, faults: Policy) -> None:
    """Count a fault that the policy allows to leave out."""
    if faults == "stop":
        raise DataError(fault.message)
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
    given = [files] if isinstance(files, str | Path) else files
    if not given:
        raise UsageError("no files were given")
    return [Path(file) for file in given]
