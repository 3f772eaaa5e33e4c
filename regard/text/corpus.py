"""Text files to sentences: pairs for translation, documents for language models.

Reading is strict and tells the place of each fault. What it mends (byte order marks, CRLF) and drops (empty sides) is
counted, with the first few places.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

from regard.errors import DataError, UsageError
from regard.text.lines import Finding, no_findings, read_lines

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
Row = tuple[int, str, str | None]  # line number, source, target


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


def read_parallel(source: Files, target: Files) -> Corpus:
    """Pairs from files whose line i is the translation of the other's line i; shards go together in their order."""
    ours, theirs = _paths(source), _paths(target)
    if len(ours) != len(theirs):
        raise UsageError(f"{len(ours)} source files and {len(theirs)} target files: each needs its counterpart")
    findings = no_findings()
    shards = [(str(one), _side_by_side(one, other, findings)) for one, other in zip(ours, theirs, strict=True)]
    return _collect(shards, [*ours, *theirs], findings)


def read_pairs(files: Files, columns: tuple[str | int, str | int] | None = None) -> Corpus:
    """Pairs from .tsv files (columns by number from 0, no quoting) or .jsonl files (columns by key).

    By default the first two columns, or the keys "source" and "target".
    """
    paths, findings = _paths(files), no_findings()
    shards: list[tuple[str, Iterator[Row]]] = []
    for path in paths:
        if _kind(path) == ".tsv":
            shards.append((str(path), _tsv_rows(path, _numbers(columns or (0, 1)), findings)))
        elif _kind(path) == ".jsonl":
            shards.append((str(path), _jsonl_rows(path, _keys(columns or ("source", "target")), findings)))
        else:
            raise UsageError(f"{path}: pairs in one file are .tsv or .jsonl (or those with .gz, .xz)")
    return _collect(shards, paths, findings)


def read_documents(files: Files, column: str = "text") -> Corpus:
    """Documents for a language model: each file is one, or each line of a .jsonl file, under the key `column`."""
    paths, findings = _paths(files), no_findings()
    shards: list[tuple[str, Iterator[Row]]] = []
    for path in paths:
        jsonl = _kind(path) == ".jsonl"
        shards.append((str(path), _jsonl_rows(path, (column,), findings) if jsonl else _whole_file(path, findings)))
    return _collect(shards, paths, findings)


def make_corpus(source: Sequence[str], target: Sequence[str] | None = None, *, name: str) -> Corpus:
    """A corpus of sentences that are in memory already; `name` stands where a file's would."""
    if target is not None and len(source) != len(target):
        raise UsageError(f"{name}: {len(source)} source and {len(target)} target sentences")
    pairs = zip(source, [None] * len(source) if target is None else target, strict=True)
    rows: Iterator[Row] = ((number, one, other) for number, (one, other) in enumerate(pairs, start=1))
    return _collect([(name, rows)], [name], no_findings())


def _collect(
    shards: Iterable[tuple[str, Iterator[Row]]], files: Sequence[object], findings: defaultdict[str, Finding]
) -> Corpus:
    """Read all rows, and drop and count those with an empty side."""
    sources: list[str] = []
    targets: list[str] = []
    lines, firsts, read = array("q"), [], 0
    for name, rows in shards:
        firsts.append((len(sources), name))
        for number, source, target in rows:
            read += 1
            if not source.strip() or (target is not None and not target.strip()):
                findings["empty, dropped"].add(name, number)
                continue
            sources.append(source)
            lines.append(number)
            if target is not None:
                targets.append(target)
    names = tuple(map(str, files))
    if not sources:
        raise DataError(f"{', '.join(names)}: no text in it ({read} lines read)")
    report = CorpusReport(names, read, len(sources), dict(findings))
    return Corpus(sources, targets or None, report, tuple(firsts), lines)


def _side_by_side(source: Path, target: Path, findings: defaultdict[str, Finding]) -> Iterator[Row]:
    """The lines of two files as pairs, or a DataError where the shorter one ends."""
    ours, theirs = read_lines(source, findings), read_lines(target, findings)
    for number, (one, other) in enumerate(zip_longest(ours, theirs), start=1):
        if one is None or other is None:
            short, long, rest = (source, target, theirs) if one is None else (target, source, ours)
            total = number + sum(1 for _ in rest)
            counts = (number - 1, total) if one is None else (total, number - 1)
            text = (one or other or "")[:60]
            raise DataError(
                f"{source} has {counts[0]} lines and {target} has {counts[1]}, but line i of one must be the "
                f"translation of line i of the other: {short} ends before line {number}, where {long} says {text!r}"
            )
        yield number, one, other


def _tsv_rows(path: Path, columns: tuple[int, int], findings: defaultdict[str, Finding]) -> Iterator[Row]:
    first, second = columns
    for number, line in enumerate(read_lines(path, findings), start=1):
        cells = line.split("\t")
        if len(cells) <= max(columns):
            raise DataError(
                f"{path}:{number}: {len(cells)} column(s), and columns {first} and {second} (from 0) are wanted: "
                f"columns are parted by tabs; the line begins {line[:60]!r}"
            )
        yield number, cells[first], cells[second]


def _jsonl_rows(path: Path, keys: tuple[str, ...], findings: defaultdict[str, Finding]) -> Iterator[Row]:
    """One key gives a document, two give a pair. Blank lines count as empty."""
    for number, line in enumerate(read_lines(path, findings), start=1):
        if not line.strip():
            yield number, "", None
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}:{number}: not valid JSON: {error}") from None
        if not isinstance(entry, dict):
            raise DataError(f"{path}:{number}: a JSON object was expected, such as {{{keys[0]!r}: …}}")
        texts = [_text_at(entry, key, f"{path}:{number}") for key in keys]
        yield number, texts[0], texts[1] if len(keys) == 2 else None


def _text_at(entry: dict[str, object], key: str, place: str) -> str:
    if key not in entry:
        raise DataError(f"{place}: no key {key!r}; the keys found are {', '.join(map(repr, entry)) or 'none'}")
    text = entry[key]
    if not isinstance(text, str):
        raise DataError(f"{place}: {key!r} holds {type(text).__name__}, not text")
    if not text.isascii() or "\0" in text:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DataError(f"{place}: {key!r} holds half a surrogate pair, which is no character") from None
        if "\0" in text:
            raise DataError(f"{place}: {key!r} holds a NUL character")
    return text


def _whole_file(path: Path, findings: defaultdict[str, Finding]) -> Iterator[Row]:
    yield 1, "".join(line + "\n" for line in read_lines(path, findings)), None


def _paths(files: Files) -> list[Path]:
    given = [files] if isinstance(files, str | Path) else files
    if not given:
        raise UsageError("no files were given")
    return [Path(file) for file in given]


def _kind(path: Path) -> str:
    """The suffix that says what is in the file, under .gz and .xz."""
    return (path.with_suffix("") if path.suffix in (".gz", ".xz") else path).suffix.lower()


def _numbers(columns: tuple[str | int, str | int]) -> tuple[int, int]:
    try:
        first, second = (int(column) for column in columns)
    except ValueError:
        first = second = -1
    if min(first, second) < 0:
        raise UsageError(f"columns of a .tsv file are two numbers from 0, got {columns!r}")
    return first, second


def _keys(columns: tuple[str | int, str | int]) -> tuple[str, str]:
    first, second = columns
    if not isinstance(first, str) or not isinstance(second, str):
        raise UsageError(f"columns of a .jsonl file are two keys, got {columns!r}")
    return first, second
