"""Diagrams are measured: text inside its box, no overlap, arrows that run around boxes and meet their edges."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from regard.look.lecture_examples import jane_flow
from regard.look.pictures.architecture import architecture_diagram, multi_head_diagram, scaled_dot_product_diagram
from regard.look.pictures.attention_flow import qkv_flow_diagram
from regard.look.pictures.drawing.boxes import Board, Box, rounded

DIAGRAMS: dict[str, Callable[[], Figure]] = {
    "architecture": architecture_diagram,
    "architecture, large": lambda: architecture_diagram(layers=96, dim=12288, heads=96),
    "scaled dot-product": scaled_dot_product_diagram,
    "multi-head": multi_head_diagram,
    "multi-head, large": lambda: multi_head_diagram(dim=12288, heads=96),
    **{f"flow of word {i}": lambda i=i: qkv_flow_diagram(word=i) for i in (0, 2, 4)},
}
Points = tuple[tuple[float, float], ...]


class Drawn:
    """A diagram, its artists by gid in inches, and the points of its arrows."""

    def __init__(self, figure: Figure, arrows: list[Points]) -> None:
        figure.canvas.draw()
        self.figure, self.arrows = figure, arrows
        self.artists: dict[str, Artist] = {a.get_gid(): a for a in figure.findobj(Artist) if a.get_gid()}

    def extent(self, gid: str) -> Bbox:
        return Bbox(self.artists[gid].get_window_extent().get_points() / self.figure.dpi)

    def named(self, kind: str) -> Iterator[str]:
        """The gids kind-1, kind-2, … (and not box-1-text)."""
        return (gid for gid in self.artists if gid.startswith(f"{kind}-") and gid.count("-") == 1)

    def boxes(self) -> dict[str, Bbox]:
        return {gid: self.extent(gid) for gid in self.named("box")}

    def notes(self) -> dict[str, Bbox]:
        texts = {gid: self.artists[gid] for gid in self.named("note")}
        return {gid: self.extent(gid) for gid, text in texts.items() if isinstance(text, Text) and text.get_text()}


REPEATS = ("flow of word 0", "flow of word 2")


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.slow] if name in REPEATS else []) for name in DIAGRAMS],
    scope="module",
)
def drawn(request: pytest.FixtureRequest) -> Drawn:
    arrows: list[Points] = []
    draw = Board.arrow

    def arrow(self: Board, *points: tuple[float, float], **look: object) -> None:
        arrows.append(points)
        draw(self, *points, **look)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Board, "arrow", arrow)
        return Drawn(DIAGRAMS[request.param](), arrows)


def inside(inner: Bbox, outer: Bbox, margin: float) -> bool:
    return bool(
        outer.x0 + margin <= inner.x0 and inner.x1 <= outer.x1 - margin
        and outer.y0 + margin <= inner.y0 and inner.y1 <= outer.y1 - margin
    )  # fmt: skip


def overlap(a: Bbox, b: Bbox) -> bool:
    return bool(a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1)


def crosses(points: Points, box: Bbox) -> bool:
    """Whether a line of upright and level parts runs through a box; touching its edge is not crossing."""
    parts = (Bbox([np.minimum(a, b), np.maximum(a, b)]).padded(1e-6) for a, b in itertools.pairwise(np.array(points)))
    return any(overlap(part, box) for part in parts)


def test_each_text_lies_inside_its_box(drawn: Drawn) -> None:
    boxes = drawn.boxes()
    assert len(boxes) >= 5
    for gid, box in boxes.items():
        text = drawn.extent(f"{gid}-text")
        assert inside(text, box, margin=0.02), f"{drawn.artists[f'{gid}-text'].get_text()!r} sticks out of {gid}"


def test_no_two_boxes_overlap(drawn: Drawn) -> None:
    for (a, one), (b, two) in itertools.combinations(drawn.boxes().items(), 2):
        assert not overlap(one, two), f"{a} and {b}"


def test_notes_overlap_nothing_and_lie_on_the_sheet(drawn: Drawn) -> None:
    sheet = Bbox.from_bounds(0, 0, drawn.figure.get_figwidth(), drawn.figure.get_figheight())
    notes, boxes = drawn.notes(), drawn.boxes()
    assert notes
    for gid, note in notes.items():
        text = drawn.artists[gid].get_text()
        assert inside(note, sheet, margin=0.05), text
        for other, box in boxes.items():
            assert not overlap(note, box), f"{text!r} and {other}"
        for points in drawn.arrows:
            assert not crosses(points, note), f"an arrow runs through {text!r}"
    for (a, one), (b, two) in itertools.combinations(notes.items(), 2):
        assert not overlap(one, two), f"{a} and {b}"
    for gid, box in boxes.items():
        assert inside(box, sheet, margin=0.05), gid


def test_frames_hold_boxes_wholly_or_not_at_all(drawn: Drawn) -> None:
    for gid in drawn.named("frame"):
        frame = drawn.extent(gid)
        held = [box for box in drawn.boxes().values() if overlap(box, frame)]
        assert held
        assert all(inside(box, frame, margin=0.05) for box in held)


def test_arrows_run_around_boxes(drawn: Drawn) -> None:
    assert len(drawn.arrows) >= 5
    boxes = drawn.boxes()
    for points in drawn.arrows:
        for gid, box in boxes.items():
            assert not crosses(points, box.padded(-0.02)), f"{points} runs through {gid}"


def test_arrows_are_upright_and_level(drawn: Drawn) -> None:
    for points in drawn.arrows:
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            assert abs(x0 - x1) < 1e-9 or abs(y0 - y1) < 1e-9, points


def test_flow_shows_the_numbers_of_attention() -> None:
    """Softmax and sums written out in numpy; the texts of the boxes are these numbers."""
    flow = jane_flow()
    q, k, v = (tensor.numpy().astype("float64") for tensor in (flow.q, flow.k, flow.v))
    for word in (0, 3):
        scores = k @ q[word] / np.sqrt(3)
        weights = np.exp(scores) / np.exp(scores).sum()
        y = weights @ v
        figure = qkv_flow_diagram(word=word)
        texts = [t.get_text() for t in figure.findobj(Text) if (t.get_gid() or "").startswith("box")]
        for number in (*scores, *weights):
            assert f"{number:.2f}" in texts
        assert "  ".join(f"{number:.1f}" for number in y) in texts
        assert "\n".join(f"{number:.1f}" for number in q[word]) in texts
        for row in (*k, *v):
            assert "\n".join(f"{number:.1f}" for number in row) in texts


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: architecture_diagram(layers=0), "layers must be at least 1, not 0"),
        (lambda: architecture_diagram(heads=7), "dim must be a multiple of heads, but 512 is not one of 7"),
        (lambda: multi_head_diagram(dim=10, heads=4), "dim must be a multiple of heads, but 10 is not one of 4"),
        (lambda: multi_head_diagram(heads=0), "heads must be at least 1, not 0"),
        (lambda: qkv_flow_diagram(word=5), "word must be an index from 0 to 4, not 5"),
    ],
)
def test_errors(draw: Callable[[], Figure], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()


def test_a_box_knows_its_edges() -> None:
    box = Box(x=2, y=3, width=1, height=0.5)
    assert (box.left, box.right, box.top, box.bottom) == ((1.5, 3), (2.5, 3), (2, 3.25), (2, 2.75))


def test_rounded_corners_keep_the_ends() -> None:
    path = rounded(((0, 0), (0, 1), (1, 1)), bend=0.1)
    assert path.vertices.tolist() == [[0, 0], [0, 0.9], [0, 1], [0.1, 1], [1, 1]]
    short = rounded(((0, 0), (0, 0.1), (1, 0.1)), bend=0.1)
    assert short.vertices[1].tolist() == pytest.approx([0, 0.05])  # at most half-way
