"""The input of a command, a file or stdin, and its progress bar."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from regard.cli.shared.model_options import STDIN
from regard.machine import redraws


@contextmanager
def open_lines(file: Path | None) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if its suffix says so, or stdin if the file is None or `-`."""
    if file is None or file == STDIN:
        yield sys.stdin.buffer
        return
    from regard.text.files.compressed import open_decompressed

    with open_decompressed(file) as stream:
        yield stream


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
