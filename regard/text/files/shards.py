"""Data to look through row by row: files that are read together, or a corpus in memory."""

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
    """Rows, numbered from 1, that can be read again."""

    @property
    def files(self) -> Sequence[object]:
        """The names of what is read."""

    @property
    def is_text(self) -> bool:
        """Whether this is for a language model: rows have no target."""

    @property
    def is_prose(self) -> bool:
        """Whether rows are the lines of one text, neither pairs nor documents."""

    def rows(self, findings: Findings) -> Iterator[Row]:
        """All rows; what reading mends is counted in `findings`."""

    def place(self, number: int, side: int = 0) -> str:
        """Where a row stands, as file:line."""


@dataclass(frozen=True)
class ParallelFiles:
    """Two files, line by line."""

    source: Path
    target: Path
    is_text: bool = False
    is_prose: bool = False

    @property
    def files(self) -> Sequence[object]:
        return self.source, self.target

    def rows(self, findings: Findings) -> Iterator[Row]:
        return parallel_rows(self.source, self.target, findings)

    def place(self, number: int, side: int = 0) -> str:
        return f"{(self.source, self.target)[side]}:{number}"


@dataclass(frozen=True)
class PairsFile:
    """Both sides in one file."""

    path: Path
    columns: Columns | None = None
    is_text: bool = False
    is_prose: bool = False

    @property
    def files(self) -> Sequence[object]:
        return (self.path,)

    def rows(self, findings: Findings) -> Iterator[Row]:
        return pair_rows(self.path, self.columns, findings)

    def place(self, number: int, side: int = 0) -> str:
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

    def place(self, number: int, side: int = 0) -> str:
        return f"{self.path}:{number}"


@dataclass(frozen=True, eq=False)
class CorpusRows:
    """A corpus that has been read; of documents the lines. Places are those of its files."""

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

    def place(self, number: int, side: int = 0) -> str:
        """Of a pair its own; of a line of a text that of its document, and the line in it."""
        if not self.is_prose:
            path, _, line = self.corpus.place(number - 1).rpartition(":")
            return f"{self._counterparts.get(path, path) if side else path}:{line}"
        document = bisect_right(self._firsts, number) - 1
        path, _, line = self.corpus.place(document).rpartition(":")
        one_a_file = len(self.corpus) == len(self.corpus.shards)
        return f"{path}:{int(line) + one_a_file * (number - self._firsts[document])}"

    @cached_property
    def _counterparts(self) -> dict[str, str]:
        """The target's file for each of the source's; none where both sides are in one file."""
        names = [name for _, name in self.corpus.shards]
        return dict(zip(names, self.corpus.report.files[len(names) :], strict=False))

    @cached_property
    def _firsts(self) -> list[int]:
        """The number of each document's first line."""
        return list(accumulate((document.count("\n") + 1 for document in self.corpus.source[:-1]), initial=1))


def rows_at(shard: Shard, numbers: Collection[int]) -> dict[int, Row]:
    """Some rows of a shard, read again up to the last of them."""
    found: dict[int, Row] = {}
    if numbers:
        try:
            for row in shard.rows(no_findings()):
                if row[0] in numbers:
                    found[row[0]] = row
                if row[0] >= max(numbers):
                    break
        except DataError:  # it is known already that the file ends so
            pass
    return found
