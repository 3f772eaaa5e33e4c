"""The list of every change that `regard check --fix` makes, and the summary by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHANGES_FILE = "changes.tsv"


@dataclass(frozen=True)
class FixReport:
    """What was repaired and dropped, by kind, and where the result is."""

    files: tuple[str, ...]
    out: Path
    rows: int  # pairs, documents or lines that were written
    repaired: dict[str, int]
    dropped: dict[str, int]  # pairs, rows, or lines without a counterpart

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {
            "out": str(self.out),
            "files": [str(self.out / Path(name).name) for name in self.files],
            "changes": str(self.out / CHANGES_FILE),
            "rows": self.rows,
            "repaired": self.repaired,
            "dropped": self.dropped,
        }

    def __str__(self) -> str:
        names = ", ".join(str(self.out / Path(name).name) for name in self.files)
        if not self.repaired and not self.dropped:
            return f"{', '.join(self.files)}: nothing to repair with certainty; wrote copies: {names}"
        lines = [f"{', '.join(self.files)}: wrote {names} ({self.rows:,} rows)"]
        lines += [f"  repaired  {kind}: {count:,}" for kind, count in self.repaired.items()]
        lines += [f"  dropped   {kind}: {count:,}" for kind, count in self.dropped.items()]
        return "\n".join([*lines, f"{self.out / CHANGES_FILE} lists every change"])


class ChangeLog:
    """Writes one line for each change: file, line, kind, and the text before and after it.

    Tabs, line breaks, backslashes and unprintable characters are written as in Python: a tab as \\t.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows = 0  # written so far
        self._repaired, self._dropped, self._files = Counter[str](), Counter[str](), Counter[Path]()

    def __enter__(self) -> ChangeLog:
        self._file = open(self._path, "w", encoding="utf-8", newline="\n")  # closed by __exit__
        self._file.write("file\tline\tkind\tbefore\tafter\n")
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, path: Path, number: int, kind: str, before: str, after: str) -> None:
        """List the repair of one line."""
        self._repaired[kind] += 1
        self._write(path, number, kind, before, after)

    def drop(self, kind: str, lines: Sequence[tuple[Path, int, str]]) -> None:
        """List the lines of a pair that is dropped."""
        self._dropped[kind] += 1
        for path, number, text in lines:
            self._write(path, number, f"dropped: {kind}", text, "")

    def of_file(self, path: Path) -> int:
        """Return the number of changes in a file."""
        return self._files[path]

    def report(self, out: Path, paths: Sequence[Path]) -> FixReport:
        counts = dict(self._repaired), dict(self._dropped)
        return FixReport(tuple(map(str, paths)), out, self.rows, *counts)

    def _write(self, path: Path, number: int, kind: str, before: str, after: str) -> None:
        self._files[path] += 1
        self._file.write(f"{_escaped(str(path))}\t{number}\t{kind}\t{_escaped(before)}\t{_escaped(after)}\n")


def _escaped(text: str) -> str:
    """Write characters that would break the table, or that cannot be seen, as Python does; a byte as \\xe9."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(map(_escaped_character, text))


def _escaped_character(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    if character.isprintable() and character != "\\":
        return character
    return character.encode("unicode_escape").decode()
