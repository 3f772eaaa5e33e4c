"""Boxes and arrows for the diagrams of E11.

A Board is a sheet measured in inches from the lower left corner. Boxes are placed by their centre, and an arrow
runs through points, most of which are edges of boxes: board.arrow(embedding.top, attention.bottom).
"""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from regard.look.pictures.drawing.colours import INK, MUTED, PAPER, RULE, TINTS, ink_on

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle with the centre (x, y), and the points where arrows meet it."""

    x: float
    y: float
    width: float
    height: float

    @property
    def top(self) -> Point:
        return self.x, self.y + self.height / 2

    @property
    def bottom(self) -> Point:
        return self.x, self.y - self.height / 2

    @property
    def left(self) -> Point:
        return self.x - self.width / 2, self.y

    @property
    def right(self) -> Point:
        return self.x + self.width / 2, self.y


class Board:
    """A drawing area of width x height inches for boxes, notes and arrows.

    Every artist carries a gid (box-3, box-3-text, arrow-7, note-2), which is also its id in an SVG file.
    """

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width, height), facecolor=PAPER)
        FigureCanvasAgg(self.figure)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(0, height))
        self.axes.axis("off")
        self.count: dict[str, int] = {}

    def name(self, kind: str) -> str:
        """Return the next free gid of a kind."""
        self.count[kind] = self.count.get(kind, 0) + 1
        return f"{kind}-{self.count[kind]}"

    def box(
        self, x: float, y: float, text: str, *, tint: str = "plain", width: float = 1.9, height: float = 0.46,
        size: float = 11, layers: int = 1, bold: bool = False, fill: str | None = None,
    ) -> Box:  # fmt: skip
        """Draw a rounded box with text in its middle; layers > 1 draws copies behind it (the heads of D11).

        Its colour is a tint by name, or any other by fill; the text is dark or light to suit.
        """
        colour = TINTS[tint] if fill is None else fill
        ink = INK if fill is None else ink_on(fill)
        shape = Box(x, y, width, height)
        gid = self.name("box")
        for layer in reversed(range(layers)):
            shift = 0.07 * layer
            patch = FancyBboxPatch(
                (x - width / 2 + shift, y - height / 2 + shift), width, height,
                boxstyle="round,pad=0,rounding_size=0.08", facecolor=colour, edgecolor=INK, linewidth=1,
                zorder=3, gid=gid if layer == 0 else self.name("copy"),
            )  # fmt: skip
            self.axes.add_patch(patch)
        weight = "bold" if bold else "normal"
        self.axes.text(
            x, y, text, ha="center", va="center", fontsize=size, color=ink, zorder=4, weight=weight,
            linespacing=1.25, gid=f"{gid}-text",
        )  # fmt: skip
        return shape

    def sum(self, x: float, y: float, sign: str = "+", *, radius: float = 0.16) -> Box:
        """Draw a small circle where two arrows meet and are added (or multiplied)."""
        gid = self.name("box")
        self.axes.add_patch(Circle((x, y), radius, facecolor=PAPER, edgecolor=INK, linewidth=1, zorder=3, gid=gid))
        self.axes.text(
            x, y, sign, ha="center", va="center_baseline", fontsize=12, color=INK, zorder=4, gid=f"{gid}-text"
        )
        return Box(x, y, 2 * radius, 2 * radius)

    def frame(self, x: float, y: float, width: float, height: float) -> Box:
        """Draw a pale frame behind boxes that belong together, at its centre."""
        self.axes.add_patch(
            FancyBboxPatch(
                (x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0,rounding_size=0.15",
                facecolor=TINTS["frame"], edgecolor=RULE, linewidth=1.2, zorder=1, gid=self.name("frame"),
            )
        )  # fmt: skip
        return Box(x, y, width, height)

    def note(
        self, x: float, y: float, text: str, *, size: float = 10, colour: str = MUTED, align: str = "center",
        bold: bool = False,
    ) -> None:  # fmt: skip
        """Draw text without a box; x is its left edge, centre or right edge, depending on `align`."""
        middle = "center" if "\n" in text else "center_baseline"  # single lines share a baseline
        self.axes.text(
            x, y, text, ha=align, va=middle, fontsize=size, color=colour, zorder=5, linespacing=1.3,
            weight="bold" if bold else "normal", gid=self.name("note"),
        )  # fmt: skip

    def arrow(
        self, *points: Point, head: bool = True, colour: str = INK, weight: float = 1.2, over: bool = False
    ) -> None:
        """Draw a line through points with rounded corners, by default an arrow; `over` bridges other lines."""
        path, gid = rounded(points, bend=0.1), self.name("arrow")
        if over:
            self._line(path, "-", PAPER, weight + 4, 2.4, f"{gid}-gap")
        style = "-|>,head_length=0.5,head_width=0.22" if head else "-"
        self._line(path, style, colour, weight, 2.5 if over else 2.0, gid)

    def _line(self, path: Path, style: str, colour: str, weight: float, zorder: float, gid: str) -> None:
        self.axes.add_patch(
            FancyArrowPatch(
                path=path, arrowstyle=style, mutation_scale=12, color=colour, linewidth=weight, zorder=zorder,
                joinstyle="miter", capstyle="butt", shrinkA=0, shrinkB=0, gid=gid,
            )
        )  # fmt: skip


def rounded(points: tuple[Point, ...], bend: float) -> Path:
    """Return the path through points, with inner corners rounded by quadratic curves of size `bend`."""
    vertices, codes = [points[0]], [Path.MOVETO]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        vertices += [towards(corner, before, bend), corner, towards(corner, after, bend)]
        codes += [Path.LINETO, Path.CURVE3, Path.CURVE3]
    return Path([*vertices, points[-1]], [*codes, Path.LINETO])


def towards(start: Point, goal: Point, length: float) -> Point:
    """Return the point at most `length` (and at most half-way) from `start` towards `goal`."""
    dx, dy = goal[0] - start[0], goal[1] - start[1]
    distance = (dx * dx + dy * dy) ** 0.5
    share = min(length / distance, 0.5) if distance else 0.0
    return start[0] + share * dx, start[1] + share * dy
