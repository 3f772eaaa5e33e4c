"""Repair the characters of a text where the repair is certain: entities, mojibake, control characters, tabs."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable
from html.entities import html5
from typing import NamedTuple

from regard.text.check.suspicious_characters import CONTROL, HTML, INVISIBLE, MOJIBAKE, SUSPICIOUS_ASCII, TAB
from regard.text.files.lines import MARK
from regard.text.files.mojibake import without_mojibake

CHARACTER_KINDS = (HTML, MOJIBAKE, CONTROL, TAB, INVISIBLE)  # kinds of problems that may be repaired
MAX_ROUNDS = 20  # a repair may reveal another: &amp;amp;eacute;
ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,30});")
TABS = re.compile(r"[ \t]*\t[ \t]*")
ESCAPED_BYTES = re.compile("[\ud800-\udfff]")  # bytes that are not UTF-8, and halves of characters
CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


class Change(NamedTuple):
    """One repair of a text."""

    kind: str
    before: str
    after: str


class Repair(NamedTuple):
    """A repaired text and the changes that led to it."""

    text: str
    changes: list[Change]


def repaired(text: str, *, keep_breaks: bool = False) -> Repair:
    """Repair a text until nothing is left to repair. With `keep_breaks`, line breaks and tabs are part of the text."""
    changes: list[Change] = []
    if (text.isascii() and not SUSPICIOUS_ASCII.search(text)) or ESCAPED_BYTES.search(text):
        return Repair(text, changes)
    for _ in range(MAX_ROUNDS):
        before = text
        for kind, repair in REPAIRS:
            after = repair(text)
            if after != text and not (keep_breaks and kind == TAB):
                changes.append(Change(kind, text, after))
                text = after
        if not keep_breaks and "\n" in text:
            after = text.replace("\n", " ")
            changes.append(Change(CONTROL, text, after))
            text = after
        if text == before:
            break
    return Repair(text, changes)


def _without_mark(text: str) -> str:
    """Remove byte order marks from the beginning of a line, where joined files leave them."""
    return text.lstrip("\ufeff")


def _without_entities(text: str) -> str:
    return ENTITY.sub(_character, text) if "&" in text else text


def _character(entity: re.Match[str]) -> str:
    """Return the character of an HTML entity; an unknown entity, and one that is not a character, stay as they are."""
    if entity[0][1] != "#" and entity[0][1:] not in html5:
        return entity[0]
    character = html.unescape(entity[0])
    if character.isspace() and character != "\u00a0":
        return " "
    categories = {unicodedata.category(part) for part in character}
    return entity[0] if categories & {"Cc", "Cn", "Co", "Cs"} or character == "\ufffd" else character


def _without_controls(text: str) -> str:
    return CONTROLS.sub(_replacement, text)


def _replacement(control: re.Match[str]) -> str:
    """Return a space for a control character that is whitespace, a character of Windows-1252, or nothing."""
    character = control[0]
    if character == "\n":
        return character
    if character.isspace():
        return " "
    return bytes([ord(character)]).decode("cp1252", "ignore") if "\x80" <= character <= "\x9f" else ""


def _without_tabs(text: str) -> str:
    return TABS.sub(" ", text.strip(" \t")) if "\t" in text else text


REPAIRS: tuple[tuple[str, Callable[[str], str]], ...] = (
    (MARK, _without_mark),
    (HTML, _without_entities),
    (MOJIBAKE, without_mojibake),
    (CONTROL, _without_controls),
    (TAB, _without_tabs),
)
