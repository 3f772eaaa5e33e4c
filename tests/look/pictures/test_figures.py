"""Files are what their suffix says, the same each time, and a file that cannot be written is a short message."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from PIL import Image

from regard.errors import UsageError
from regard.look.pictures.drawing.figures import caption, new_figure, save


def picture() -> Figure:
    figure = new_figure(3, 2)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1])
    axes.set_title("a title")
    return figure


@pytest.fixture
def figure() -> Figure:
    return picture()


def test_png_has_the_size_asked_for(figure: Figure, tmp_path: Path) -> None:
    path = save(figure, tmp_path / "a.png", dpi=100)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(path) as image:
        image.load()
        assert image.size == (300, 200)


def test_svg_is_xml(figure: Figure, tmp_path: Path) -> None:
    root = ET.parse(save(figure, tmp_path / "a.SVG")).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("width") == "216pt"  # 3 inches


def test_pdf_is_whole(figure: Figure, tmp_path: Path) -> None:
    data = save(figure, str(tmp_path / "a.pdf")).read_bytes()
    assert data.startswith(b"%PDF-") and data.rstrip().endswith(b"%%EOF")


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_picture_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    first = save(picture(), tmp_path / f"a.{suffix}").read_bytes()
    assert save(picture(), tmp_path / f"b.{suffix}").read_bytes() == first


@pytest.mark.parametrize(("name", "given"), [("a.gif", "the suffix '.gif'"), ("picture", "no suffix")])
def test_another_suffix_is_refused(figure: Figure, tmp_path: Path, name: str, given: str) -> None:
    with pytest.raises(UsageError, match=rf"{name} has {given}; use one of \.png, \.svg, \.pdf"):
        save(figure, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(figure: Figure, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot write .*nowhere/a\.png: No such file or directory"):
        save(figure, tmp_path / "nowhere" / "a.png")


def test_a_folder_in_the_way_is_named(figure: Figure, tmp_path: Path) -> None:
    (tmp_path / "a.png").mkdir()
    with pytest.raises(UsageError, match=r"cannot write .*a\.png: Is a directory"):
        save(figure, tmp_path / "a.png")


def test_a_long_caption_is_broken_and_not_clipped(figure: Figure, clipped) -> None:
    caption(figure, "words and more words " * 4)
    assert clipped(figure) == []
