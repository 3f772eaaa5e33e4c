"""Read what Marian writes as YAML: flat settings, and vocabularies. No YAML library reads them, and nothing runs.

Settings are lines "key: value" and lists of "- item". Vocabularies are lines "piece: number", where pieces may have
quotes with escapes; a piece too long for that is "? piece" and ": number" on two lines.
"""

from __future__ import annotations

import re
from typing import Any

from regard.errors import ModelError
from regard.models.folder.config_file import shortened

MAX_LINES = 2**21
ESCAPES = {
    "\\": "\\",
    '"': '"',
    "/": "/",
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
}
ESCAPES |= {"f": "\f", "v": "\v", " ": " ", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}
ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
WHOLE = re.compile(r"[-+]?[0-9]{1,18}")
NUMBER = re.compile(r"[-+]?[0-9]{1,18}(\.[0-9]{0,18})?([eE][-+]?[0-9]{1,3})?")
KEY = re.compile(r"[A-Za-z0-9_.-]+")


def read_settings(text: str, path: object) -> dict[str, Any]:
    """Return the settings in a text: words, numbers, true and false, and lists of them."""
    settings: dict[str, Any] = {}
    key = ""
    for number, line in enumerate(_lines(text, path), 1):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        where = f"{path}: line {number}"
        if content.startswith("- ") or content == "-":
            if not isinstance(settings.get(key), list):
                raise ModelError(f"{where}: an item of a list that has no name")
            settings[key].append(_value(content[1:].strip(), where))
            continue
        if content == "[]" and settings.get(key) == []:
            continue
        name, colon, value = content.partition(":")
        if not colon or line[0] in " \t" or not KEY.fullmatch(name) or name in settings:
            raise ModelError(f"{where}: must be `key: value` with a new key, got {shortened(repr(content))}")
        key = name
        settings[key] = [] if value.strip() in ("", "[]") else _value(value.strip(), where)
    return settings


def read_vocabulary(text: str, path: object) -> dict[str, int]:
    """Return the numbers of pieces."""
    numbers: dict[str, int] = {}
    pending: str | None = None  # a piece that stands on a line of its own
    for count, line in enumerate(_lines(text, path), 1):
        where = f"{path}: line {count}"
        if line.startswith("? "):
            pending, rest = _piece(line[2:], where)
        elif pending is not None:
            piece, rest, pending = pending, line, None
            _add(numbers, piece, rest, where)
            continue
        elif not line.strip():
            continue
        else:
            piece, rest = _piece(line, where)
            _add(numbers, piece, rest, where)
            continue
        if rest.strip():
            raise ModelError(f"{where}: {shortened(repr(rest))} after a piece")
    if pending is not None:
        raise ModelError(f"{path}: the last piece has no number")
    return numbers


def _add(numbers: dict[str, int], piece: str, rest: str, where: str) -> None:
    value = rest.strip().removeprefix(":").strip()
    if not rest.strip().startswith(":") or not WHOLE.fullmatch(value):
        raise ModelError(f"{where}: the piece {shortened(repr(piece))} has no number")
    if piece in numbers:
        raise ModelError(f"{where}: the piece {shortened(repr(piece))} occurs twice")
    numbers[piece] = int(value)


def _piece(text: str, where: str) -> tuple[str, str]:
    """Return the piece at the start of a text, and what follows it."""
    text = text.lstrip(" ")
    if text.startswith('"'):
        end = re.match(r'"(?:[^"\\]|\\.)*"', text)
        if end is None:
            raise ModelError(f"{where}: quotes that do not end")
        return ESCAPE.sub(lambda match: _unescape(match, where), end[0][1:-1]), text[end.end() :]
    if text.startswith("'"):
        end = re.match(r"'(?:[^']|'')*'", text)
        if end is None:
            raise ModelError(f"{where}: quotes that do not end")
        return end[0][1:-1].replace("''", "'"), text[end.end() :]
    at = text.rfind(": ")  # a piece without quotes may contain a colon
    return (text[:at], text[at:]) if at > 0 else (text, "")


def _unescape(match: re.Match[str], where: str) -> str:
    code = match[1] or match[2] or match[3]
    if code is not None:
        number = int(code, 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise ModelError(f"{where}: {match[0]} is no character")
        return chr(number)
    if match[4] not in ESCAPES:
        raise ModelError(f"{where}: unknown escape {shortened(repr(match[0]))}")
    return ESCAPES[match[4]]


def _value(text: str, where: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if text[:1] in ("'", '"'):
        value, rest = _piece(text, where)
        if rest.strip():
            raise ModelError(f"{where}: {shortened(repr(rest))} after a text in quotes")
        return value
    if WHOLE.fullmatch(text):
        return int(text)
    if NUMBER.fullmatch(text):
        return float(text)
    if text in ("~", "null"):
        return None
    if text[:1] in ("[", "{", "&", "*", "!", "|", ">", "%", "@", "`"):
        raise ModelError(f"{where}: {shortened(repr(text))} is YAML that Marian does not write")
    return text


def _lines(text: str, path: object) -> list[str]:
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise ModelError(f"{path}: more than {MAX_LINES} lines")
    return [line.removesuffix("\r") for line in lines]
