"""How a training says how it goes.

A progress bar where there is a terminal, else one plain line an interval, both on stderr; `metrics.jsonl` in the run's
folder always; TensorBoard when it is asked for.
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
from regard.files import replace_file


class Report:
    """Takes numbers by step; `with` it, so that the bar is taken down whatever happens."""

    def __init__(
        self,
        folder: Path,
        *,
        steps: int,
        start: int = 0,
        quiet: bool = False,
        tensorboard: bool = False,
        silent: bool = False,  # of several processes one reports; the others write and say nothing
    ) -> None:
        self.path = Path(os.devnull) if silent else folder / "metrics.jsonl"
        self.steps, self.start, self.quiet = steps, start, quiet or silent
        self.terminal = sys.stderr.isatty() and not self.quiet
        self.began = time.monotonic()
        if self.path.exists() and not silent:
            # A run that goes on from step s says everything after s once more.
            replace_file(self.path, b"".join(line for line in _lines(self.path) if _step(line) <= start))
        self.file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115  # closed by __exit__
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
            self.bar.stop()
        if self.board is not None:
            self.board.close()
        self.file.close()

    def step(self, step: int) -> None:
        """Move the bar."""
        if self.bar is not None:
            self.bar.update(self.task, completed=step)

    def numbers(self, step: int, kind: str, values: dict[str, Any], line: str) -> None:
        """Write the values of a step down, and show `line`."""
        record = {"step": step, "kind": kind, **values}
        self.file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self.file.flush()
        if self.board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self.board.add_scalar(f"{kind}/{name}", value, step)
        if self.bar is not None and kind == "train":
            self.bar.update(self.task, description=line, completed=step)
        else:
            self.say(f"step {step}/{self.steps}  {line}{self._left(step) if kind == 'train' else ''}")

    def say(self, text: str) -> None:
        """A line for the reader, above the bar where there is one."""
        if self.quiet:
            return
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def _left(self, step: int) -> str:
        done = step - self.start
        return f"  {duration((time.monotonic() - self.began) / done * (self.steps - step))} left" if done else ""


def duration(seconds: float) -> str:
    """12 s, 3 min 05 s, 2 h 07 min."""
    if not math.isfinite(seconds):
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def time_of(seconds: float, preparing: float) -> str:
    """How long steps took; what went into compiling and recording them is told apart."""
    told = duration(seconds - preparing)
    return told if preparing < 1 else f"{told}, and {duration(preparing)} to prepare the steps"


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def _step(line: bytes) -> float:
    """The step of a line; a line that was cut off belongs to no step."""
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
