"""Reports of a training run's progress.

On stderr a progress bar if it is a terminal, otherwise one plain line per interval, in a notebook too; always
`metrics.jsonl` in the run's folder; TensorBoard on request.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from regard.errors import UsageError
from regard.machine import redraws
from regard.system.files import replace_file
from regard.system.terminal import perhaps_closed_terminal


class Report:
    """Writes the numbers of each step. Use it as a context manager, so the progress bar is always removed."""

    def __init__(
        self,
        folder: Path,
        *,
        steps: int,
        start: int = 0,
        quiet: bool = False,
        tensorboard: bool = False,
        silent: bool = False,  # write and print nothing: of several processes only the first one reports
    ) -> None:
        self.path = Path(os.devnull) if silent else folder / "metrics.jsonl"
        self.steps, self.start, self.quiet = steps, start, quiet or silent
        self.terminal = redraws(sys.stderr) and not self.quiet
        self.started = time.monotonic()
        if self.path.exists() and not silent:
            # A run that continues from step s reports everything after s again.
            replace_file(self.path, b"".join(line for line in _lines(self.path) if _step(line) <= start))
        self.file = open(self.path, "a", encoding="utf-8", newline="\n")  # noqa: SIM115  # closed by __exit__
        self.board = _board(folder) if tensorboard and not silent else None
        self.bar: Any = None

    def __enter__(self) -> Report:
        if self.terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self.bar = Progress(
                TextColumn("training"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
                console=_console(),
            )
            self.bar.start()
            self.task = self.bar.add_task("", total=self.steps, completed=self.start)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            with perhaps_closed_terminal():
                self.bar.stop()
        if self.board is not None:
            self.board.close()
        self.file.close()

    def step(self, step: int) -> None:
        """Move the progress bar."""
        if self.bar is not None:
            with perhaps_closed_terminal():
                self.bar.update(self.task, completed=step)

    def log(self, step: int, kind: str, values: dict[str, Any], line: str) -> None:
        """Write the values of a step to the files, and show `line`."""
        record = {"step": step, "kind": kind, **values}
        self.file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self.file.flush()
        if self.board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self.board.add_scalar(f"{kind}/{name}", value, step)
        if self.bar is not None and kind == "train":
            with perhaps_closed_terminal():
                self.bar.update(self.task, description=line, completed=step)
        else:
            self.say(f"step {step}/{self.steps}  {line}{self._time_left(step) if kind == 'train' else ''}")

    def say(self, text: str) -> None:
        """Print a line, above the progress bar if there is one."""
        if self.quiet:
            return
        with perhaps_closed_terminal():
            if self.bar is not None:
                self.bar.console.print(text, markup=False, highlight=False)
            else:
                sys.stderr.write(text + "\n")
                sys.stderr.flush()

    def _time_left(self, step: int) -> str:
        done = step - self.start
        return f"  {duration((time.monotonic() - self.started) / done * (self.steps - step))} left" if done else ""


def duration(seconds: float) -> str:
    """Format seconds: 12 s, 3 min 05 s, 2 h 07 min."""
    if not math.isfinite(seconds):
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def training_time(seconds: float, preparing: float) -> str:
    """Format how long the steps took; the time to compile and capture them is given separately."""
    steps = duration(seconds - preparing)
    return steps if preparing < 1 else f"{steps}, and {duration(preparing)} to prepare the steps"


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def _step(line: bytes) -> float:
    """Return the step of a line; an incomplete line belongs to no step."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UsageError("TensorBoard is not installed: pip install 'regard[tensorboard]'") from error
    return SummaryWriter(str(folder / "tensorboard"))
