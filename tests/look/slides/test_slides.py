"""Slides of the scenes: every scene with its question and its answer, as HTML that needs nothing else, and as a PDF."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.errors import UsageError
from regard.look.slides.deck import marked, read_deck
from regard.look.slides.html_file import make_html
from regard.look.slides.pdf_file import plain_text, write_pdf
from regard.look.slides.pictures import picture_of

WITHOUT_PICTURE = {"a3", "c1", "c4"}  # they need a model: the page shows them


def test_a_deck_follows_the_plan_of_its_lecture() -> None:
    deck = read_deck("L2")
    assert deck.title == "Transformers for translation" and deck.subtitle.endswith("63 minutes")
    assert [slide.id for slide in deck.slides][:3] == ["d14", "d16", "d17"]
    assert all(slide.minutes for slide in deck.slides)
    assert len(read_deck().slides) == 50
    with pytest.raises(UsageError, match="L9"):
        read_deck("L9")


def test_every_scene_has_a_picture_that_needs_no_browser() -> None:
    missing = {slide.id for slide in read_deck().slides if picture_of(slide) is None}
    assert missing == WITHOUT_PICTURE


def test_the_html_file_has_every_question_and_answer_and_needs_no_network() -> None:
    deck = read_deck("L0")
    deck = type(deck)(deck.title, deck.subtitle, deck.slides[4:8])  # B2 to D11: formulas and traces
    page = make_html(deck)
    assert page.count("<section") == len(deck.slides) + 1 and page.count("class=right") == len(deck.slides)
    assert page.count("data:image/png;base64,") == sum(picture_of(slide) is not None for slide in deck.slides)
    assert not re.search(r"(src|href)=.?https?:", page) and "default-src 'none'" in page
    assert "10000<sup>2i/d</sup>" in page and "<code>regard plot three-heads</code>" in page


def test_the_pdf_has_two_pages_for_each_scene(tmp_path: Path) -> None:
    deck = read_deck("L0")
    short = type(deck)(deck.title, deck.subtitle, deck.slides[:3])
    write_pdf(short, tmp_path / "slides.pdf")
    content = (tmp_path / "slides.pdf").read_bytes()
    assert content.startswith(b"%PDF") and len(re.findall(rb"/Type /Page\b", content)) == 1 + 2 * 3


def test_marks_are_set_or_taken_away() -> None:
    assert plain_text("W_Q and s_(i−1), 10^(2i/d), `code`") == "W_Q and s_(i−1), 10^(2i/d), code"
    assert marked("a_i", plain=str, style=lambda kind, content: f"[{kind}{content}]") == "a[_i]"


def test_the_command_writes_what_its_file_name_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.look.slides.html_file.make_html", lambda deck: f"<p>{deck.title}</p>")
    result = CliRunner().invoke(app, ["slides", "L1", "-o", str(tmp_path / "l1.html")])
    assert result.exit_code == 0 and (tmp_path / "l1.html").read_text("utf-8").startswith("<p>Attention neural")
    refused = CliRunner().invoke(app, ["slides", "-o", str(tmp_path / "l1.pptx")])
    assert refused.exit_code == 2 and "slides are .html or .pdf" in refused.output
