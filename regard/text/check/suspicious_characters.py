"""Find suspicious characters: invisible ones, traces of a wrong encoding or of HTML, letters of another script."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache
from html.entities import html5

from regard.text.files.mojibake import MOJIBAKE_PATTERN
from regard.text.tokenizers.special_tokens import SEPARATOR

MOJIBAKE = "UTF-8 decoded with the wrong encoding"
REPLACED = "replacement characters U+FFFD"
CONTROL = "control characters"
TAB = "tabs inside a line"
INVISIBLE = "invisible characters"
PRIVATE = "private-use characters"
HTML = "leftover HTML"
NOT_NFC = "not in Unicode normalization form NFC"
SCRIPT = "letters of another script"

# The scripts that are distinguished, by the first word of their letters' names. Latin letters are accepted everywhere:
# names and formulas contain them.
SCRIPT_NAMES = """
ARABIC ARMENIAN BENGALI CHEROKEE CYRILLIC DEVANAGARI ETHIOPIC GEORGIAN GREEK GUJARATI GURMUKHI HANGUL HEBREW KANNADA
KHMER LAO MALAYALAM MONGOLIAN MYANMAR ORIYA SINHALA SYRIAC TAMIL TELUGU THAANA THAI TIBETAN
"""
SCRIPTS = frozenset([*SCRIPT_NAMES.split(), "EAST ASIAN"])
EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO")  # which are written together
COMMON_SHARE = 0.05  # of a file's characters, from which a script counts as one of the file's own

HTML_PATTERN = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|body|br|center|cite|code|dd|div|dl|dt|em|font|form|h[1-6]|head|hr|html|i|img|li|link"
    r"|meta|ol|p|pre|q|s|script|small|span|strike|strong|style|sub|sup|table|tbody|td|th|thead|title|tr|tt|u|ul)"
    r"(?:\s[^<>]*)?/?>|&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,30});",
    re.IGNORECASE,
)
ZERO_WIDTH = frozenset("\u00ad\u034f\u115f\u1160\u180e\u200b\u2060\u2061\u2062\u2063\u2064\ufeff\ufff9\ufffa\ufffb")
ZERO_WIDTH |= frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x2070))))
# Joiners and direction marks are legitimate in Arabic, Hebrew, Indian scripts and emoji, and nowhere else.
JOINERS = frozenset("\u200c\u200d\u200e\u200f\u061c")
NEEDS_JOINERS = re.compile(
    "[\u0590-\u109f\u1700-\u18af\u1900-\u1cff\u2600-\u27bf\ufb1d-\ufdff\ufe70-\ufefc\U0001f000-\U0001faff]"
)
SUSPICIOUS_ASCII = re.compile(r"[\x00-\x1f\x7f<&]")
BREAKS = re.compile(r"[\n\t]")
LEADS = {**dict.fromkeys("<&", HTML), **dict.fromkeys("ÂÃÄÅâÐÑÎÏ", MOJIBAKE)}  # characters that need a closer look


class CharacterChecker:
    """Checks the lines of one side of the data, which may have a script of its own."""

    def __init__(self) -> None:
        self.characters = 0
        self.scripts = Counter[str]()  # characters of each script except Latin
        self._harmless = {SEPARATOR}  # characters that are known to be unsuspicious

    def find(self, text: str, *, has_breaks: bool = False) -> dict[str, int]:
        """Return the kinds of problems of a text and the first offset of each; other scripts by name, in capitals.

        With `has_breaks`, line breaks and tabs are part of the text.
        """
        line = BREAKS.sub(" ", text) if has_breaks else text
        self.characters += len(line)
        if line.isascii() and not SUSPICIOUS_ASCII.search(line):
            return {}
        offsets: dict[str, int] = {}
        for character in set(line).difference(self._harmless):
            kind = _kind(character)
            if kind is None:
                self._harmless.add(character)
                continue
            if kind in SCRIPTS:
                self.scripts[kind] += line.count(character)
            elif (character in LEADS and not _confirmed(kind, line)) or (
                character in JOINERS and NEEDS_JOINERS.search(line)
            ):
                continue
            offsets[kind] = min(line.index(character), offsets.get(kind, len(line)))
        if MOJIBAKE in offsets:  # some bytes of UTF-8 are control characters in other encodings
            offsets.pop(CONTROL, None)
        if not unicodedata.is_normalized("NFC", line):
            offsets[NOT_NFC] = _first_difference(line, unicodedata.normalize("NFC", line))
        return offsets

    def is_common(self, script: str) -> bool:
        """Whether a script has enough characters to be one of the file's own."""
        return self.scripts[script] >= COMMON_SHARE * self.characters


@cache
def _kind(character: str) -> str | None:
    """Return the kind of problem that a character may indicate, the name of its script, or None."""
    if character in LEADS:
        return LEADS[character]
    if character == "\ufffd":
        return REPLACED
    if character == "\t":
        return TAB
    if character in ZERO_WIDTH or character in JOINERS:
        return INVISIBLE
    category = unicodedata.category(character)
    if category in ("Cc", "Zl", "Zp"):
        return CONTROL
    if category == "Co" or (
        category == "Cn" and (ord(character) & 0xFFFE == 0xFFFE or "\ufdd0" <= character <= "\ufdef")
    ):
        return PRIVATE
    script = unicodedata.name(character, "").partition(" ")[0] if category.startswith("L") else ""
    return "EAST ASIAN" if script in EAST_ASIAN else script if script in SCRIPTS else None


def _confirmed(kind: str, line: str) -> bool:
    """Whether a line contains the whole pattern that a suspicious character may begin."""
    if kind == MOJIBAKE:
        return MOJIBAKE_PATTERN.search(line) is not None
    return any(tag[0] == "<" or tag[1:2] == "#" or tag[1:] in html5 for tag in HTML_PATTERN.findall(line))


def _first_difference(line: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(line, other, strict=False)) if a != b), min(len(line), len(other)))
