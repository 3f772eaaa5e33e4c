"""Slides as a PDF of 16:9 pages, drawn with matplotlib: a page with the question, and one with the answer."""

from __future__ import annotations

import textwrap
from io import BytesIO
from pathlib import Path

from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.image import imread

from regard.look.pictures.drawing.colours import INK, MUTED
from regard.look.pictures.drawing.figures import new_figure
from regard.look.pictures.drawing.fonts import fit_fonts
from regard.look.slides.deck import Deck, Slide, marked
from regard.look.slides.pictures import picture_of

WIDTH, HEIGHT = 13.333, 7.5  # inches
TEXT_WIDTH = 4.9  # of the left column
LEFT, TOP = 0.6, 0.6
GOOD = "#0b7a5e"
PICTURE_DPI = 150
LINE = 1.32  # line height in font sizes


def write_pdf(deck: Deck, path: Path) -> None:
    """Write the slides: a title page, then two pages for each scene."""
    with PdfPages(path, metadata={"Title": deck.title, "CreationDate": None}) as pages:
        pages.savefig(_title_page(deck))
        for slide in deck.slides:
            draw = picture_of(slide)
            picture = None if draw is None else draw()
            for answered in (False, True):
                pages.savefig(_page(slide, picture if answered else None, answered))


def _title_page(deck: Deck) -> Figure:
    figure = new_figure(WIDTH, HEIGHT, layout=None)
    figure.text(0.5, 0.56, deck.title, ha="center", fontsize=34, weight="bold", color=INK)
    figure.text(0.5, 0.46, deck.subtitle, ha="center", fontsize=16, color=MUTED)
    return fit_fonts(figure)


def _page(slide: Slide, picture: Figure | None, answered: bool) -> Figure:
    figure = new_figure(WIDTH, HEIGHT, layout=None)
    minutes = f"   {slide.minutes} min" if slide.minutes else ""
    figure.text(
        LEFT / WIDTH, 1 - TOP / HEIGHT, plain_text(slide.title), fontsize=26, weight="bold", color=INK, va="top"
    )
    figure.text(1 - LEFT / WIDTH, 1 - TOP / HEIGHT, slide.tag + minutes, fontsize=12, color=MUTED, va="top", ha="right")
    column = TEXT_WIDTH if picture is not None else WIDTH - 2 * LEFT
    size = _fitting_size(slide, column, answered)
    y = TOP + 0.85
    for text, scale, colour, bold in _paragraphs(slide, answered):
        lines = _wrapped(text, column, size * scale)
        weight = "bold" if bold else "normal"
        where = (LEFT / WIDTH, 1 - y / HEIGHT)
        figure.text(*where, lines, fontsize=size * scale, color=colour, va="top", linespacing=LINE, weight=weight)
        y += _height(lines, size * scale) + 0.16
    if picture is not None:
        _place(figure, picture, LEFT + column + 0.4, TOP + 0.75)
    return fit_fonts(figure)


def _paragraphs(slide: Slide, answered: bool) -> list[tuple[str, float, str, bool]]:
    """Return the texts of a page, each with its relative size, its colour, and whether it is bold."""
    paragraphs = [(slide.question, 1.15, INK, False)]
    for i, choice in enumerate(slide.choices):
        right = answered and i == slide.right
        paragraphs.append((f"{'✓' if right else '•'}  {choice}", 1.0, GOOD if right else INK, right))
    if answered:
        paragraphs.append((slide.answer, 1.0, INK, False))
        if slide.notes:
            paragraphs.append((slide.notes, 0.8, MUTED, False))
    return paragraphs


def _fitting_size(slide: Slide, column: float, answered: bool) -> float:
    """Return the largest font size at which all texts fit on the page."""
    for size in (18.0, 17.0, 16.0, 15.0, 14.0, 13.0, 12.0, 11.0):
        heights = [
            _height(_wrapped(text, column, size * scale), size * scale) + 0.16
            for text, scale, _, _ in _paragraphs(slide, answered)
        ]
        if TOP + 0.85 + sum(heights) < HEIGHT - 0.4:
            return size
    return 10.0


def _wrapped(text: str, column: float, size: float) -> str:
    letters = int(column * 72 / (0.56 * size))  # of the average width in DejaVu Sans
    return textwrap.fill(plain_text(text), letters)


def _height(lines: str, size: float) -> float:
    return (lines.count("\n") + 1) * size * LINE / 72


def plain_text(text: str) -> str:
    """Return a text without its marks: c_i stays, 10000^(2i/d) too, code loses its backticks."""
    return marked(
        text,
        plain=str,
        style=lambda kind, content: (
            content if kind == "code" else f"{kind}{content if len(content) < 2 else f'({content})'}"
        ),
    )


def _place(figure: Figure, picture: Figure, left: float, top: float) -> None:
    """Place a picture in the room that is left of a page, as large as it fits."""
    buffer = BytesIO()
    picture.savefig(buffer, format="png", dpi=PICTURE_DPI)
    buffer.seek(0)
    image = imread(buffer)
    room_wide, room_high = WIDTH - left - LEFT, HEIGHT - top - 0.4
    ratio = image.shape[1] / image.shape[0]
    wide = min(room_wide, room_high * ratio)
    high = wide / ratio
    bottom = HEIGHT - top - (room_high + high) / 2
    axes = figure.add_axes(((left + (room_wide - wide) / 2) / WIDTH, bottom / HEIGHT, wide / WIDTH, high / HEIGHT))
    axes.imshow(image, interpolation="antialiased")
    axes.set_axis_off()
