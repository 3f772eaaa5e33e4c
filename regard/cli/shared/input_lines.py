"""The input lines of a command, read in windows: the input may be larger than memory, or arrive slowly."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import typer

from regard.cli.shared.model_options import STDIN
from regard.errors import DataError
from regard.machine import redraws

CHUNK_BYTES = 1 << 18  # most bytes of one read; a pipe returns what it has
FIRST_LINES = 256  # of a long file: the first results appear soon
WINDOW_LINES = 2048  # most lines in memory: sorted by length, translated, written in their order
MAX_LINE_BYTES = 1 << 20  # a longer line is not a sentence, and must not fill the memory


@contextmanager
def open_lines(file: Path | None) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if its suffix says so, or stdin if the file is None or `-`."""
    if file is None or file == STDIN:
        yield sys.stdin.buffer
        return
    from regard.text.files.compressed import open_decompressed

    with open_decompressed(file) as stream:
        yield stream


def line_windows(stream: IO[bytes], first: int) -> Iterator[list[bytes]]:
    r"""Yield the lines that the input has available, up to WINDOW_LINES at a time; only \n ends a line.

    The first window has at most `first` lines and later ones grow, so that the first results of a long file appear
    soon. A line that is too long is cut off one byte above the limit, so that `read_line` still refuses it.
    """
    from regard.text.files.compressed import READ_ERRORS

    rest, size = b"", first
    interactive = stream.isatty()
    while True:
        if interactive:
            typer.echo("> ", err=True, nl=False)
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


@contextmanager
def progress(stream: IO[bytes], file: Path | None) -> Iterator[Callable[[int], object]]:
    """Show a progress bar if stderr is a terminal and stdout is not; yield a function that advances it by bytes."""
    if not redraws(sys.stderr) or sys.stdout.isatty() or stream.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    from regard.text.files.compressed import COMPRESSED

    compressed = file is not None and file.suffix.lower() in COMPRESSED
    total = None if compressed else os.fstat(stream.fileno()).st_size or None  # the size of a pipe is 0
    columns = ("translating", BarColumn(24), TaskProgressColumn(), DownloadColumn(), TimeRemainingColumn())
    # Messages on stderr appear above the bar; results on stdout are not redirected.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=total)
        yield lambda size: bar.advance(task, size)
