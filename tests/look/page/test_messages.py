"""The page's texts in other languages: no text is missing in a catalogue, none is unused, none is left out of t()."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "web/src"
CATALOGUES = {path.stem: path for path in (SOURCES / "text/messages").glob("*.json")}
# Whatever a reader sees in these files goes through t().
COVERED = (
    *("main.tsx", "header/header.tsx", "header/key_form.tsx", "header/tools.tsx", "tour/tour.tsx"),
    *("controls/help.tsx", "controls/sentence.tsx"),
)
NAMES = {"regard", "PyTorch"}  # the same in every language
STRING = r'"((?:[^"\\]|\\.)*)"'


def source(name: str) -> str:
    return (SOURCES / name).read_text(encoding="utf-8")


def table(name: str, begin: str, end: str = "\n};") -> str:
    """The part of a file from a declaration to its end."""
    text = source(name)
    start = text.index(begin)
    return text[start : text.index(end, start)]


def direct_texts() -> set[str]:
    """The texts in calls of t()."""
    files = (path for pattern in ("*.ts", "*.tsx") for path in SOURCES.rglob(pattern))
    return {text for path in files for text in re.findall(rf"\bt\(\s*{STRING}", path.read_text(encoding="utf-8"))}


def table_texts() -> set[str]:
    """The texts in tables whose entries are passed to t()."""
    explanations = table("controls/explanations.ts", "EXPLANATIONS")
    labels = re.findall(rf'^  (?:"([^"]+)"|(\w+)): {STRING}', explanations, re.MULTILINE)
    texts = {text for row in labels for text in row if text}
    tabs = re.findall(rf"entry\({STRING}, {STRING}, {STRING}, {STRING}", table("tabs/tabs.tsx", "TABS", "\n];"))
    texts |= {text for _, _, title, about in tabs for text in (title, about)}
    texts |= set(re.findall(rf"about: {STRING}", table("tabs/tabs.tsx", "TABS", "\n];")))
    texts |= set(re.findall(rf": {STRING}", table("tabs/input/state.ts", "const TITLES", "}")))
    texts |= {
        t for row in re.findall(rf"\[{STRING}, {STRING}\]", table("controls/help.tsx", "KEYS", "\n];")) for t in row
    }
    texts |= set(re.findall(rf"(?:title|text): {STRING}", source("tour/steps.ts")))
    for name in ("LABELS", "VERBS"):
        texts |= set(re.findall(rf": {STRING}", table("controls/sentence.tsx", f"const {name}")))
    return texts


def used_texts() -> set[str]:
    return direct_texts() | {text for text in table_texts() if re.search(r"[A-Za-z]{2}", text)}


def left_out(text: str) -> list[str]:
    """Words between tags, and attributes that are read, that are not in t()."""
    code = re.sub(r"^\s*(//|\*|/\*).*$|\{/\*.*?\*/\}", "", text, flags=re.MULTILINE)
    between = re.findall(r"(?<![=-])>\s*([^<>{}()=;|&]*[A-Za-z]{2}[^<>{}()=;|&]*?)\s*(?=[<{])", code)
    attributes = re.findall(rf"\b(?:title|aria-label|placeholder|alt|label)={STRING}", code)
    return [text for text in (*between, *attributes) if text not in NAMES and re.search(r"[A-Za-z]{2}", text)]


@pytest.mark.parametrize("language", CATALOGUES)
def test_catalogue_has_every_text_and_no_other(language: str) -> None:
    catalogue = json.loads(CATALOGUES[language].read_text(encoding="utf-8"))
    assert sorted(used_texts() - catalogue.keys()) == []
    assert sorted(catalogue.keys() - used_texts()) == []
    assert all(translation.strip() for translation in catalogue.values())


@pytest.mark.parametrize("language", CATALOGUES)
def test_translations_have_the_same_places_for_values(language: str) -> None:
    catalogue = json.loads(CATALOGUES[language].read_text(encoding="utf-8"))
    for english, translation in catalogue.items():
        assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", translation)), english


def test_there_are_spanish_and_french() -> None:
    assert set(CATALOGUES) == {"es", "fr"}
    assert set(re.findall(r"^  (\w\w): \{ name", source("text/messages/messages.ts"), re.MULTILINE)) == {
        "en",
        *CATALOGUES,
    }


@pytest.mark.parametrize("file", COVERED)
def test_no_text_of_a_covered_file_is_left_out(file: str) -> None:
    assert left_out(source(file)) == []


@pytest.mark.parametrize(
    "planted", ["<p>Some words</p>", '<b title="Some words">x</b>', "<p>\n  Some words {count}\n</p>", "<h2>Words</h2>"]
)
def test_a_planted_text_is_found(planted: str) -> None:
    assert left_out(planted) != []


@pytest.mark.parametrize("fine", ['<p>{t("Some words")}</p>', "<b>regard</b>", "() => <i>×</i>", 'class="a b"'])
def test_what_is_allowed_is_not_reported(fine: str) -> None:
    assert left_out(fine) == []
