"""Everything that a model did with an image, a video, a series or a recording, as data.

H4. The input is a grid of numbers. A query or key of an attention map is a place: a rectangle of the grid, such as a
patch, or a token without one, such as the class token or a word of a caption. So one page and one file format show all
of these models. The format is regard-input/1 (`file_format.py`).

    T frames (1 unless it is a video)   R rows   K columns   C channels   F columns that are forecast
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError, unknown_name
from regard.look.trace.attention_map import Map, shape_text
from regard.look.trace.trace import Model

FORMS = {  # of the grid
    "pixels": "an image, or the frames of a video: bytes, row 0 at the top",
    "lines": "a series: a row for each variable, a column for each point in time",
    "bands": "a spectrogram: a row for each band, the lowest first, a column for each frame",
}


@dataclass(frozen=True)
class Place:
    """A query or a key of an attention map."""

    text: str
    box: tuple[float, ...] | None = None  # frame, left, top, width, height in cells of the grid; None: it has no place


@dataclass(frozen=True)
class Ruler:
    """What the rows or the columns of a grid are."""

    title: str
    start: float = 0.0  # of the first one
    step: float = 1.0  # from one to the next
    labels: tuple[str, ...] = ()  # in place of numbers


@dataclass(frozen=True, eq=False)
class InputMap:
    """The attention of one stack of layers. Its axes are `axes` of the trace."""

    title: str
    attention: Map
    row: int | None = None  # of the grid: a forecaster attends to each variable by itself


@dataclass(frozen=True)
class ClassScore:
    """A class and its probability."""

    text: str
    probability: float


@dataclass(frozen=True, eq=False)
class Continuation:
    """The forecast of a series, and what really came."""

    values: NDArray[Any]  # [R, F]
    truth: NDArray[Any] | None = None  # [R, up to F]
    first: int = 0  # row of the series that is forecast first
    least: int = 0  # the first and the last row that it could be
    most: int = 0


@dataclass(frozen=True, eq=False)
class InputTrace:
    """Everything that a model did with one input that is no text."""

    model: Model
    form: str  # of FORMS
    values: NDArray[Any]  # [T, R, K, C]
    axes: dict[str, tuple[Place, ...]]
    maps: tuple[InputMap, ...]
    columns: Ruler
    rows: Ruler
    source: str = ""  # the name of the input
    output: str = ""  # the class or the text
    scores: tuple[ClassScore, ...] = ()  # the most probable classes, highest first
    continuation: Continuation | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise DataError(unknown_name("form", self.form, tuple(FORMS)))
        values = np.asarray(self.values)
        if values.ndim != 4 or not values.size:
            raise DataError(f"values must be [frame, row, column, channel], got the shape {shape_text(values)}")
        pixels = self.form == "pixels"
        if pixels and (values.dtype != np.uint8 or values.shape[3] not in (1, 3)):
            raise DataError(
                f"the values of pixels must be bytes with 1 or 3 channels, got {values.dtype} {shape_text(values)}"
            )
        object.__setattr__(self, "values", values if pixels else finite("values", values))
        for name, places in self.axes.items():
            for i, place in enumerate(places):
                self._check_place(f"axes.{name}[{i}]", place)
        for i, entry in enumerate(self.maps):
            self._check_map(f"maps[{i}]", entry)
        if self.continuation is not None:
            self._check_continuation(self.continuation)

    def _check_place(self, where: str, place: Place) -> None:
        if place.box is None:
            return
        if len(place.box) != 5:
            raise DataError(f"{where}.box must be frame, left, top, width and height, got {len(place.box)} numbers")
        frame, left, top, width, height = place.box
        frames, rows, columns, _ = self.values.shape
        is_inside = 0 <= left < left + width <= columns and 0 <= top < top + height <= rows
        if frame not in range(frames) or not is_inside:
            raise DataError(f"{where}.box {list(place.box)} is not inside {frames} frames of {rows} x {columns} cells")

    def _check_map(self, where: str, entry: InputMap) -> None:
        attention = entry.attention
        for axis, length in zip((attention.query, attention.key), attention.weights.shape[2:], strict=True):
            if axis not in self.axes:
                raise DataError(f"{where}: {unknown_name('axis', axis, tuple(self.axes))}")
            if len(self.axes[axis]) != length:
                raise DataError(
                    f"{where}: {shape_text(attention.weights)} does not fit the {len(self.axes[axis])} places of {axis}"
                )
        if entry.row is not None and not 0 <= entry.row < self.values.shape[1]:
            raise DataError(f"{where}.row is {entry.row}, but there are {self.values.shape[1]} rows")

    def _check_continuation(self, continuation: Continuation) -> None:
        for name in ("values", "truth"):
            if getattr(continuation, name) is None:
                continue
            numbers = finite(f"continuation.{name}", getattr(continuation, name))
            if numbers.ndim != 2 or len(numbers) != self.values.shape[1]:
                raise DataError(
                    f"continuation.{name} must have {self.values.shape[1]} rows, got the shape {shape_text(numbers)}"
                )
            object.__setattr__(continuation, name, numbers)

    def save(self, path: str | Path) -> Path:
        """Write the trace as .json or .json.gz."""
        from regard.look.trace.file_format import write_trace

        return write_trace(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> InputTrace:
        """Load a trace from a file; DataError with the position of the error if the file is not a valid trace."""
        from regard.look.trace.file_format import read_any_trace

        trace = read_any_trace(Path(path))
        if not isinstance(trace, InputTrace):
            raise DataError(f"{path}: the trace of a text: load it with Trace.load")
        return trace

    def explore(self, path: str | Path | None = None, *, state: str = "", show: bool = True) -> Path:
        """Write the explorer page with this trace as one .html file and open it in the browser, without a server.

        Without a path, it is a temporary file; `state` as in `write_page`.
        """
        from regard.look.page.single_file import open_page

        return open_page([self], path, state, show)

    def _repr_html_(self) -> str:
        """Display the page in a frame in a notebook."""
        from regard.look.page.single_file import make_frame

        return make_frame([self])

    def __repr__(self) -> str:
        maps = ", ".join(f"{entry.title} {shape_text(entry.attention.weights)}" for entry in self.maps)
        return f"InputTrace({self.model.name!r}: {self.source!r} -> {self.output!r}; {maps or 'no attention'})"

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as JSON data."""
        from regard.look.trace.file_format import to_json

        return to_json(self)

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> InputTrace:
        """Return the trace of the JSON data that `to_dict` returns."""
        from regard.look.trace.file_format import any_from_json

        trace = any_from_json(content)
        if not isinstance(trace, InputTrace):
            raise DataError("the trace of a text: read it with Trace.from_dict")
        return trace


def finite(name: str, values: Any) -> NDArray[np.float64]:
    """Return numbers as float64; DataError if one is not finite in a file, which has float32."""
    numbers = np.asarray(values, dtype=np.float64)
    if not (np.abs(numbers) <= np.finfo(np.float32).max).all():
        raise DataError(f"{name} must be finite numbers of float32")
    return numbers
