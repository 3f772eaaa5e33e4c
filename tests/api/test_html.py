"""What notebooks show: small HTML without scripts, whose text is escaped, and pictures."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.api.html import MAX_WORDS
from regard.api.results import Alignment
from regard.api.translator import Translator
from regard.errors import UsageError

Make = Callable[..., Any]
HOSTILE = ('"><img src=x onerror=alert(1)>', "</script><script>alert(1)</script>", "</td></table>", "&lt;b&gt;")
TAGS = {"table", "tr", "th", "td", "p", "br"}


class Content(HTMLParser):
    """The tags, attributes and texts of a document."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def content_of(shown: Any) -> Content:
    content = Content(shown._repr_html_())
    assert content.tags <= TAGS and content.attributes <= {"style"}
    return content


@pytest.mark.parametrize("text", HOSTILE)
def test_a_translation_shows_its_texts(translator_of: Make, text: str) -> None:
    result = translator_of().translate(text, alternatives=3, max_tokens=4, guard=False)
    for number, alternative in enumerate(result.alternatives):
        alternative.text = f"{number} {text}"
    content = content_of(result)
    assert text in content.texts
    assert [alternative.text in content.texts for alternative in result.alternatives] == [True] * 3


@pytest.mark.parametrize("text", HOSTILE)
def test_an_alignment_shows_its_weights(text: str) -> None:
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]])
    content = content_of(Alignment(weights, [text, "</s>"], ["cat", text], [(0, 0)]))
    assert content.texts == [text, "</s>", "cat", "0.25", "0.75", text, "1.00", "0.00"]


def test_a_large_alignment_is_cut() -> None:
    n = MAX_WORDS + 5
    content = content_of(Alignment(torch.eye(n), ["a"] * n, ["b"] * n, []))
    assert content.texts.count("a") == content.texts.count("b") == MAX_WORDS
    assert content.texts[-1] == f"only the first {MAX_WORDS} words of each side are shown"


@pytest.mark.parametrize("text", HOSTILE)
def test_models_show_what_they_are(translator_of: Make, writer_of: Make, text: str) -> None:
    languages = {"source": text, "target": "en"}
    translator, writer = translator_of(languages=languages), writer_of()
    content = content_of(translator)
    assert {f"{text} to en", "transformer", "Translator", 'translator.translate("…")'} <= set(content.texts)
    assert repr(translator).startswith(f"Translator(transformer, {text} to en, ")
    assert "transformer-lm" in content_of(writer).texts and repr(writer).startswith("Writer(transformer-lm, ")


def test_an_embedder_shows_what_it_is(embedder: Any) -> None:
    assert "encoder" in content_of(embedder).texts and repr(embedder).startswith("Embedder(encoder, ")


def test_a_plot_without_a_path_is_shown(translator_of: Make, tmp_path: Path) -> None:
    translator: Translator = translator_of()
    translation = translator.translate("le chat noir", max_tokens=5)
    picture = translation.plot()
    assert picture._repr_png_().startswith(b"\x89PNG") and "notebook" in repr(picture)
    assert picture.save(tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    assert translation.plot(tmp_path / "b.png") == tmp_path / "b.png"


def test_the_kind_of_a_trace_picture_may_stand_alone(translator_of: Make, tmp_path: Path) -> None:
    from regard.look import trace_text

    shown = trace_text(translator_of(), "le chat noir", target="the cat")
    wide, narrow = shown.plot("heads"), shown.plot()
    assert wide.figure.get_size_inches().tolist() != narrow.figure.get_size_inches().tolist()
    assert shown.plot(tmp_path / "heads.svg", "heads") == tmp_path / "heads.svg"
    with pytest.raises(UsageError, match=r"has no suffix; use one of .png, .svg, .pdf"):
        shown.plot("head")
