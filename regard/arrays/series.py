"""Read a series of numbers from a CSV file: one row per point in time, one column per variable.

The first line names the columns. A column of times is recognized by its name or its values; the times must increase.
Reading is strict: a missing value, a text among the numbers or a time out of order is an error with its line.

    T points in time   C columns
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.arrays.samples import ArrayReport, array_fingerprint
from regard.errors import DataError
from regard.text.files.lines import read_lines

TIME_NAMES = ("date", "time", "datetime", "timestamp")
MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "-")
DELIMITERS = (",", ";", "\t")
STEP_TOLERANCE = 0.15  # of the usual time between two rows: months differ, but a missing row doubles it


@dataclass(frozen=True)
class Scale:
    """The mean and the standard deviation of each column, (C,)."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Scale:
        """Return the scale of values (T, C); a column whose values are all equal gets the deviation 1."""
        deviation = values.std(axis=0)
        return cls(values.mean(axis=0), np.where(deviation > 0, deviation, 1.0))

    def standardise(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values (T, C) in deviations from the mean."""
        return (values - self.mean) / self.deviation

    def restore(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return standardised values (T, C) in the units of the series."""
        return values * self.deviation + self.mean


@dataclass(frozen=True)
class Series:
    """The values of some variables at successive points in time, and the scale on which a model sees them."""

    values: NDArray[np.float64] = field(repr=False)  # (T, C)
    columns: tuple[str, ...]
    times: tuple[str, ...] | None = field(repr=False)  # as in the file; None if it has none
    report: ArrayReport
    first_line: int = field(default=2, repr=False)  # in the file, of row 0
    scale: Scale | None = field(default=None, repr=False)  # None: that of the values themselves

    def __len__(self) -> int:
        return len(self.values)

    def location(self, i: int) -> str:
        """Return the location of row i as file:line."""
        return f"{self.report.files[0]}:{self.first_line + i}"

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the values and the names of the columns."""
        return array_fingerprint(self.values, self.columns)

    @property
    def standardised(self) -> NDArray[np.float64]:
        """The values on their scale, (T, C)."""
        return (self.scale or Scale.of(self.values)).standardise(self.values)

    def rows(self, start: int, stop: int) -> Series:
        """Return the rows from `start` to before `stop`."""
        times = None if self.times is None else self.times[start:stop]
        return replace(self, values=self.values[start:stop], times=times, first_line=self.first_line + start)


def make_series(values: NDArray, columns: Sequence[str] | None = None, *, name: str = "series") -> Series:
    """Make a series of values (T, C) or (T,) in memory; DataError if a value is missing."""
    array = np.asarray(values, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not array.size:
        raise DataError(f"{name}: a series is (time, columns) or (time,), got {tuple(np.shape(values))}")
    names = tuple(columns) if columns is not None else tuple(f"column {i}" for i in range(array.shape[1]))
    if len(names) != array.shape[1]:
        raise DataError(f"{name}: there are {len(names)} names for {array.shape[1]} columns")
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0].tolist()
        raise DataError(f"{name}: row {row}, {names[column]!r}: the value is missing or not finite: fill it in")
    return Series(array, names, None, ArrayReport((name,), _describe(array)), first_line=0)


def read_series(path: str | Path, variables: Sequence[str] = ()) -> Series:
    """Read a CSV file, which may be compressed; `variables` names the columns to keep, by default all of them."""
    path = Path(path)
    lines = list(read_rows(path))
    while lines and not lines[-1].strip():
        lines.pop()
    if len(lines) < 2:
        raise DataError(f"{path}: a series needs a line with the names of its columns, and rows of numbers below it")
    if returns := [number for number, line in enumerate(lines, start=1) if "\r" in line]:
        raise DataError(f"{path}:{returns[0]}: a carriage return inside the line: end lines with \\n or \\r\\n only")
    delimiter = max(DELIMITERS, key=lines[0].count)
    try:
        header, *table = csv.reader(lines, delimiter=delimiter)
    except csv.Error as error:
        raise DataError(f"{path}: not a table with {delimiter!r} between its cells: {error}") from error
    names = [name.strip() for name in header]
    _check_table(path, names, table)
    time_column = _time_column(names, table[0])
    chosen = _chosen_columns(path, names, variables, time_column)
    values = _numbers(path, names, table, chosen, delimiter)
    times: tuple[str, ...] | None = None
    changes: tuple[str, ...] = ()
    if time_column is not None:
        times = tuple(row[time_column].strip() for row in table)
        changes = _check_times(path, times)
    report = ArrayReport((str(path),), _describe(values), changes)
    return Series(values, tuple(names[i] for i in chosen), times, report)


def read_rows(path: Path) -> Iterator[str]:
    """Yield the lines of a CSV file, which may be compressed."""
    if path.is_dir():
        raise DataError(f"{path} is a folder: give a CSV file")
    yield from read_lines(path)


def _describe(values: NDArray) -> str:
    return f"{len(values):,} points in time with {values.shape[1]} columns"


def _check_table(path: Path, names: list[str], table: list[list[str]]) -> None:
    """Raise DataError unless all rows have as many cells as the header, and the header has names."""
    if any(_is_number(name) for name in names):
        raise DataError(
            f"{path}:1: the first line must name the columns, and {next(filter(_is_number, names))!r} is a number: "
            "add a line with names"
        )
    if duplicates := {name for name in names if names.count(name) > 1}:
        raise DataError(f"{path}:1: the name {min(duplicates)!r} occurs twice: each column needs its own")
    for line, row in enumerate(table, start=2):
        if len(row) != len(names):
            raise DataError(f"{path}:{line}: {len(row)} cells, but the first line names {len(names)} columns")


def _time_column(names: list[str], first_row: list[str]) -> int | None:
    """Return the column of times: the one with a usual name, else the first one if its first value is a time."""
    for i, name in enumerate(names):
        if name.lower() in TIME_NAMES:
            return i
    is_time = not _is_number(first_row[0]) and _read_time(first_row[0].strip()) is not None
    return 0 if is_time else None


def _chosen_columns(path: Path, names: list[str], variables: Sequence[str], time_column: int | None) -> list[int]:
    for name in variables:
        if name not in names:
            raise DataError(f"{path}:1: there is no column {name!r}: the columns are {', '.join(names)}")
    chosen = [names.index(name) for name in variables] or [i for i in range(len(names)) if i != time_column]
    if not chosen:
        raise DataError(f"{path}:1: there is no column beside the times in {names[0]!r}")
    return chosen


def _numbers(
    path: Path, names: list[str], table: list[list[str]], chosen: list[int], delimiter: str
) -> NDArray[np.float64]:
    """Return the chosen cells as numbers (T, C); DataError at the first that is none."""
    values = np.empty((len(table), len(chosen)))
    for row, cells in enumerate(table):
        for i, column in enumerate(chosen):
            try:
                number = float(cells[column])
            except ValueError:
                number = math.nan
            if not math.isfinite(number):
                where = f"{path}:{row + 2}, column {names[column]!r}"
                raise DataError(f"{where}: {_complaint(cells[column].strip(), delimiter)}")
            values[row, i] = number
    return values


def _complaint(cell: str, delimiter: str) -> str:
    """Say what is wrong with a cell that is no finite number."""
    if cell.lower() in MISSING:
        return "the value is missing: fill it in, for example by interpolation, or leave the row out"
    if delimiter != "," and _is_number(cell.replace(",", ".")):
        return f"{cell!r} has a decimal comma: write a point"
    if _is_number(cell):
        return f"{cell!r} is not finite: replace it"
    return f"{cell!r} is not a number: name the columns to use with data.variables"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_time(text: str) -> float | None:
    """Return a time in seconds: a number, or a date in ISO 8601; None if it is neither."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (time.replace(tzinfo=UTC) if time.tzinfo is None else time).timestamp()


def _check_times(path: Path, times: Sequence[str]) -> tuple[str, ...]:
    """Raise DataError unless the times increase; return a note if their steps differ."""
    seconds: list[float] = []
    for line, text in enumerate(times, start=2):
        time = _read_time(text)
        if time is None or not math.isfinite(time):
            raise DataError(f"{path}:{line}: {text!r} is not a time: write 2016-07-01 00:00:00, or a number")
        if seconds and time <= seconds[-1]:
            problem = "occurs twice" if time == seconds[-1] else "comes after a later one"
            raise DataError(f"{path}:{line}: the time {text!r} {problem}: sort the rows by time, each time once")
        seconds.append(time)
    steps = np.diff(seconds)
    usual = float(np.median(steps)) if len(steps) else 0.0
    irregular = np.flatnonzero(~np.isclose(steps, usual, rtol=STEP_TOLERANCE))
    if not len(irregular):
        return ()
    return (f"the time between two rows differs at {len(irregular):,} rows, first at line {int(irregular[0]) + 3}",)
