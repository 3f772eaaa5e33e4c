"""Data that can be read row by row, more than once: parallel files, single files, or a corpus in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from regard.errors import DataError
from regard.text.files.corpus import Corpus
from regard.text.files.lines import no_findings, try_lines
from regard.text.files.rows import Columns, Findings, Row, document_rows, pair_rows, parallel_rows


class Shard(Protocol):
    """Rows, numbered from 1, that can be read more than once."""

    @property
    def files(self) -> Sequence[object]:
        """The names of the files."""

    @property
    def is_text(self) -> bool:
        """Whether the rows have no target, as for a language model."""

    @property
    def is_prose(self) -> bool:
        """Whether the rows are the lines of one text, neither pairs nor documents."""

    def rows(self, findings: Findings) -> Iterator[Row]:
        """Yield all rows; count in `findings` what is repaired while reading."""

    def location(self, number: int, side: int = 0) -> str:
        """Return the location of a row as file:line."""


@dataclass(frozen=True)
class ParallelFiles:
    """Two parallel files, read line by line."""

    source: Path
    target: Path
    is_text: bool = False
    is_prose: bool = False

    @property
    def files(self) -> Sequence[object]:
        return self.source, self.target

    def rows(self, findings: Findings) -> Iterator[Row]:
        return parallel_rows(self.source, self.target, findings)

    def location(self, number: int, side: int = 0) -> str:
        return f"{(self.source, self.target)[side]}:{number}"


@dataclass(frozen=True)
class PairsFile:
    """One file with both sides of each pair."""

    path: Path
    columns: Columns | None = None
    is_text: bool = False
    is_prose: bool = False

    @property
    def files(self) -> Sequence[object]:
        return (self.path,)

    def rows(self, findings: Findings) -> Iterator[Row]:
        return pair_rows(self.path, self.columns, findings)

    def location(self, number: int, side: int = 0) -> str:
        return f"{self.path}:{number}"


@dataclass(frozen=True)
class TextFile:
    """A text for a language model, or a file of documents."""

    path: Path
    is_text: bool = True

    @property
    def files(self) -> Sequence[object]:
        return (self.path,)

    @cached_property
    def is_prose(self) -> bool:
        return document_rows(self.path, "text", no_findings()) is None

    def rows(self, findings: Findings) -> Iterator[Row]:
        documents = document_rows(self.path, "text", findings)
        if documents is not None:
            return documents
        return ((number, line, None) for number, line in enumerate(try_lines(self.path, findings), start=1))

    def location(self, number: int, side: int = 0) -> str:
        return f"{self.path}:{number}"


@dataclass(frozen=True, eq=False)
class CorpusRows:
    """The pairs of a corpus in memory, or the lines of its documents. Locations are those in its files."""

    corpus: Corpus

    @property
    def files(self) -> Sequence[object]:
        return self.corpus.report.files

    @cached_property
    def is_text(self) -> bool:
        return self.corpus.target is None

    @property
    def is_prose(self) -> bool:
        return self.is_text

    def rows(self, findings: Findings) -> Iterator[Row]:
        source, target = self.corpus.source, self.corpus.target
        if target is not None:
            return ((number, *pair) for number, pair in enumerate(zip(source, target, strict=True), start=1))
        lines = (line for document in source for line in document.split("\n"))
        return ((number, line, None) for number, line in enumerate(lines, start=1))

    def location(self, number: int, side: int = 0) -> str:
        """Return the location of a pair, or of a line of a text: its file and the line in it."""
        if not self.is_prose:
            path, _, line = self.corpus.location(number - 1).rpartition(":")
            return f"{self._target_files.get(path, path) if side else path}:{line}"
        document = bisect_right(self._first_lines, number) - 1
        path, _, line = self.corpus.location(document).rpartition(":")
        file_is_document = len(self.corpus) == len(self.corpus.shards)
        return f"{path}:{int(line) + file_is_document * (number - self._first_lines[document])}"

    @cached_property
    def _target_files(self) -> dict[str, str]:
        """The target file of each source file; empty if both sides are in one file."""
        names = [name for _, name in self.corpus.shards]
        return dict(zip(names, self.corpus.report.files[len(names) :], strict=False))

    @cached_property
    def _first_lines(self) -> list[int]:
        """The number of the first line of each document."""
        return list(accumulate((document.count("\n") + 1 for document in self.corpus.source[:-1]), initial=1))


def rows_at(shard: Shard, numbers: Collection[int]) -> dict[int, Row]:
    """Read a shard again, up to the last of these row numbers, and return these rows."""
    rows: dict[int, Row] = {}
    if numbers:
        try:
            for row in shard.rows(no_findings()):
                if row[0] in numbers:
                    rows[row[0]] = row
                if row[0] >= max(numbers):
                    break
        except DataError:  # the first reading has reported it
            pass
    return rows
