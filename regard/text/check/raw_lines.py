"""The lines of a file for repair: decoded where the encoding is certain, without byte order mark and CRLF."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from regard.errors import DataError
from regard.text.check.changes import ChangeLog
from regard.text.files.compressed import READ_ERRORS, create_compressed, detected_format, open_decompressed
from regard.text.files.encodings import BOM, EncodingSurvey
from regard.text.files.lines import CRLF, MARK, NOT_UTF8
from regard.text.files.rows import file_format

WIDE = "UTF-16 or UTF-32"


class RawLines:
    """Lines that can be written again. Bytes of doubtful encoding are surrogates, which are written as these bytes.

    A line that is not UTF-8 is decoded if one of the surveys of the file is certain about it.
    """

    def __init__(self, path: Path, surveys: Sequence[EncodingSurvey], changes: ChangeLog | None = None) -> None:
        self.path, self._surveys, self._changes = path, surveys, changes
        self.ends_with_break = True  # whether the line that was read last did
        self.line_break = "\n"  # of the file to be written
        self._number = 0

    def __iter__(self) -> Iterator[str]:
        try:
            with open_decompressed(self.path) as file:
                lines = self._wide_lines(file) if self._surveys[0].wide else self._byte_lines(file)
                for self._number, line in enumerate(lines, start=1):
                    yield self._without_break(line)
        except (*READ_ERRORS, UnicodeDecodeError) as error:
            raise DataError(f"{self.path}: damaged after line {self._number} ({error}), cannot be repaired") from error

    def _wide_lines(self, file: IO[bytes]) -> Iterator[str]:
        name = str(self._surveys[0].wide)
        self._add(WIDE, name.upper(), "UTF-8", number=1)
        yield from io.TextIOWrapper(file, encoding=name, newline="\n")

    def _byte_lines(self, file: IO[bytes]) -> Iterator[str]:
        for number, raw in enumerate(file, start=1):
            line = raw
            if number == 1:
                if binary_format := detected_format(raw):
                    raise DataError(f"{self.path}:1: not a text file; it looks like {binary_format}")
                line = raw.removeprefix(BOM)
                if line != raw:
                    self._add(MARK, "\ufeff", "", number=1)
            yield self._decoded(number, line)

    def _decoded(self, number: int, line: bytes) -> str:
        text = line.decode(errors="surrogateescape")
        if line.isascii() or not any("\udc80" <= character <= "\udcff" for character in text):
            return text
        decoded = next(filter(None, (survey.decode(line) for survey in self._surveys)), None)
        if decoded is None:
            return text
        self._add(NOT_UTF8, text.rstrip("\r\n"), decoded.rstrip("\r\n"), number=number)
        return decoded

    def _without_break(self, line: str) -> str:
        self.ends_with_break = line.endswith("\n")
        text = line.removesuffix("\n")
        stripped = text.rstrip("\r") if self.ends_with_break else text
        if self._number == 1 and stripped != text and file_format(self.path) == ".csv":
            self.line_break = "\r\n"  # which is correct in this format
        if text + "\n" != stripped + self.line_break and stripped != text:
            self._add(CRLF, text, stripped, number=self._number)
        return stripped

    def _add(self, kind: str, before: str, after: str, *, number: int) -> None:
        if self._changes is not None:
            self._changes.add(self.path, number, kind, before, after)


@contextmanager
def line_writer(path: Path, lines: RawLines) -> Iterator[Callable[[str], None]]:
    """Create a file, compressed according to its suffix; yield a function that writes a line.

    The file ends with a line break if the file that `lines` reads does.
    """
    with create_compressed(path) as file:
        break_before = b""

        def write(line: str) -> None:
            nonlocal break_before
            file.write(break_before + line.encode(errors="surrogateescape"))
            break_before = lines.line_break.encode()

        yield write
        if lines.ends_with_break:
            file.write(break_before)
