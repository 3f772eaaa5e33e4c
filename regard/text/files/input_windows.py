"""The lines of an input as bytes, read in windows: the input may be larger than memory, or arrive slowly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO

from regard.errors import DataError

CHUNK_BYTES = 1 << 18  # most bytes of one read; a pipe returns what it has
FIRST_LINES = 256  # of a long file: the first results appear soon
WINDOW_LINES = 2048  # most lines in memory: sorted by length, translated, written in their order
MAX_LINE_BYTES = 1 << 20  # a longer line is not a sentence, and must not fill the memory


def line_windows(
    stream: IO[bytes], first: int, *, before_read: Callable[[], object] | None = None
) -> Iterator[list[bytes]]:
    r"""Yield the lines that the input has available, up to WINDOW_LINES at a time; only \n ends a line.

    The first window has at most `first` lines and later ones grow, so that the first results of a long file appear
    soon. A file is always cut in the same way. A line that is too long is cut off one byte above the limit, so that
    `read_line` still refuses it.
    """
    from regard.text.files.compressed import READ_ERRORS

    rest, size = b"", first
    while True:
        if before_read is not None:
            before_read()  # such as a prompt
        try:
            chunk = stream.read1(CHUNK_BYTES)  # type: ignore[attr-defined]  # buffered readers have it
        except READ_ERRORS as error:
            raise DataError(f"the input is damaged or cut off: {error}") from error
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        rest = rest[: MAX_LINE_BYTES + 1]
        while lines:
            yield lines[:size]
            lines, size = lines[size:], max(first, min(2 * size, WINDOW_LINES))
    if rest:
        yield [rest]


def read_line(line: bytes) -> str:
    """Decode a line; DataError if it is too long or not UTF-8 text."""
    if len(line) > MAX_LINE_BYTES:
        raise DataError(f"longer than {MAX_LINE_BYTES:,} bytes: split the line")
    if b"\0" in line:
        raise DataError(
            f"NUL at byte {line.index(0) + 1}: if the file is UTF-16, convert it with iconv -f utf-16 -t utf-8"
        )
    try:
        return line.removesuffix(b"\r").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8: {error.reason} at byte {error.start + 1}") from None
