"""The lines of a command's input, however large it is and however slowly it comes: a window of them at a time."""

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

CHUNK = 1 << 18  # bytes asked for at once; a pipe gives what it has
WINDOW = 2048  # lines that are held at once: sorted by length, translated, and written in their order
LONGEST = 1 << 20  # bytes of a line; what is longer is no sentence, and shall not fill the memory


@contextmanager
def open_lines(file: Path | None) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where its name says so, or of stdin where there is none or it is `-`."""
    if file is None or file == STDIN:
        yield sys.stdin.buffer
        return
    from regard.text.files.compressed import open_decompressed

    with open_decompressed(file) as stream:
        yield stream


def line_windows(stream: IO[bytes], first: int) -> Iterator[list[bytes]]:
    r"""The lines that the input has to offer now, up to WINDOW of them at a time; only \n ends a line.

    The windows begin with `first` lines and grow, so that of a long file, too, something comes out soon. A line that
    is too long is cut off, but not to what would be allowed.
    """
    from regard.text.files.compressed import READ_ERRORS

    rest, size = b"", first
    typed = stream.isatty()
    while True:
        if typed:
            typer.echo("> ", err=True, nl=False)
        try:
            chunk = stream.read1(CHUNK)  # type: ignore[attr-defined]  # buffered readers have it
        except READ_ERRORS as error:
            raise DataError(f"the input is damaged or cut off: {error}") from error
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        rest = rest[: LONGEST + 1]
        while lines:
            yield lines[:size]
            lines, size = lines[size:], max(first, min(2 * size, WINDOW))
    if rest:
        yield [rest]


def read_line(line: bytes) -> str:
    """A line as text; a DataError where it is none."""
    if len(line) > LONGEST:
        raise DataError(f"longer than {LONGEST:,} bytes: split it")
    if b"\0" in line:
        raise DataError(f"a NUL at byte {line.index(0) + 1}, as UTF-16 has them: convert it with iconv -t utf-8")
    try:
        return line.removesuffix(b"\r").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8: {error.reason} at byte {error.start + 1}") from None


@contextmanager
def progress(stream: IO[bytes], file: Path | None) -> Iterator[Callable[[int], object]]:
    """A bar on stderr, where somebody sees it and no results are on the screen; it is told how many bytes are done."""
    if not sys.stderr.isatty() or sys.stdout.isatty() or stream.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    from regard.text.files.compressed import COMPRESSED

    packed = file is not None and file.suffix.lower() in COMPRESSED
    total = None if packed else os.fstat(stream.fileno()).st_size or None  # that of a pipe is 0
    columns = ("translating", BarColumn(24), TaskProgressColumn(), DownloadColumn(), TimeRemainingColumn())
    # Messages go above the bar; the results do not pass through it.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=total)
        yield lambda size: bar.advance(task, size)
