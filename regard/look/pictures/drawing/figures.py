"""Create and save figures without pyplot, so there is no global state and no display is needed."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Literal, overload

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from regard.errors import UsageError
from regard.look.pictures.drawing.colours import INK, MUTED, PAPER, RULE

SUFFIXES = (".png", ".svg", ".pdf")
NOTEBOOK_DPI = 110


def new_figure(width: float, height: float, *, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """Return a white figure of width x height inches; it fits its labels unless layout is None."""
    figure = Figure(figsize=(width, height), facecolor=PAPER)
    if layout is not None:
        figure.set_layout_engine(layout, w_pad=0.12, h_pad=0.12)
    FigureCanvasAgg(figure)
    return figure


def axes_at(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Return axes at a position in inches, for pictures whose cells must have the same size."""
    across, up = figure.get_size_inches()
    return figure.add_axes((left / across, bottom / up, width / across, height / up))


def quiet(axes: Axes) -> None:
    """Draw thin grey axes, so that the data stands out."""
    for side in axes.spines.values():
        side.set_color(RULE)
    axes.tick_params(colors=INK, color=RULE, labelsize=10)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)


def wrapped(text: str, width: float) -> str:
    """Wrap text of 9 points to lines of at most `width` inches."""
    return fill(text, max(10, int(12 * width)))


def caption(figure: Figure, text: str) -> None:
    """Add a grey caption below the picture that says how its numbers were computed."""
    figure.supxlabel(wrapped(text, figure.get_figwidth()), fontsize=9, color=MUTED)


def save(figure: Figure, path: str | Path, *, dpi: int = 160) -> Path:
    """Write a figure as PNG, SVG or PDF, by the suffix of path; the same picture gives the same bytes."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        actual = f"the suffix {path.suffix!r}" if path.suffix else "no suffix"
        raise UsageError(f"{path} has {actual}; use one of {', '.join(SUFFIXES)}")
    buffer = BytesIO()
    undated = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[suffix]
    with rc_context({"svg.hashsalt": "regard"}):
        figure.savefig(buffer, format=suffix[1:], dpi=dpi, metadata=undated)
    try:
        path.write_bytes(buffer.getvalue())
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise UsageError(f"cannot write {path}: {error.strerror or error}; choose another file") from error
    return path


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure that a notebook shows; `save` writes it to a file."""

    figure: Figure

    def save(self, path: str | Path) -> Path:
        """Write the picture as PNG, SVG or PDF."""
        return save(self.figure, path)

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.figure.savefig(buffer, format="png", dpi=NOTEBOOK_DPI)
        return buffer.getvalue()

    def __repr__(self) -> str:
        width, height = self.figure.get_size_inches()
        return f'Picture({width:.1f} x {height:.1f} inches): a notebook shows it, .save("picture.png") writes it'


@overload
def save_or_show(figure: Figure, path: str | Path) -> Path: ...


@overload
def save_or_show(figure: Figure, path: None) -> Picture: ...


@overload
def save_or_show(figure: Figure, path: str | Path | None) -> Path | Picture: ...


def save_or_show(figure: Figure, path: str | Path | None) -> Path | Picture:
    """Write a figure and return its path; without a path, return it as a picture that a notebook shows."""
    return Picture(figure) if path is None else save(figure, path)
