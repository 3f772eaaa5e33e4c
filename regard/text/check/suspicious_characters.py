"""Characters out of place: invisible ones, traces of a wrong encoding or of HTML, letters of another script."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache
from html.entities import html5

MOJIBAKE = "UTF-8 that was read as another encoding"
REPLACED = "replacement characters U+FFFD"
CONTROL = "control characters"
INVISIBLE = "invisible characters"
PRIVATE = "characters for private use"
HTML = "HTML left over"
NOT_NFC = "not in Unicode's form NFC"
SCRIPT = "letters of another script"

# Whose letters are told apart, by the first word of their names. Latin ones are at home everywhere: names, formulas.
NAMES = """
ARABIC ARMENIAN BENGALI CHEROKEE CYRILLIC DEVANAGARI ETHIOPIC GEORGIAN GREEK GUJARATI GURMUKHI HANGUL HEBREW KANNADA
KHMER LAO MALAYALAM MONGOLIAN MYANMAR ORIYA SINHALA SYRIAC TAMIL TELUGU THAANA THAI TIBETAN
"""
SCRIPTS = frozenset([*NAMES.split(), "EAST ASIAN"])
EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO")  # which are written together
AT_HOME = 0.05  # share of a file's characters from which on a script is one of its own

# é read as Latin-1 or Windows-1252 is Ã©: a lead byte of UTF-8 and one or two that follow it, as characters. Quotation
# marks and dashes may also follow a capital letter, so after them a word must go on.
TRAILS = "\u0080-\u00aa\u00ac-\u00b6\u00b8-\u00ba\u00bc-\u00bf€ƒ†‡ˆ‰Š‹ŒŽ™š›œžŸ˜"
MARKS = "\u00ab\u00b7\u00bb‚„…‘’“”•–—"
MOJIBAKE_PATTERN = re.compile(
    rf"[ÂÃ](?:[{TRAILS}]|[{MARKS}](?=\w))|[ÄÅ][{TRAILS}{MARKS}](?=[a-z])|â€[{TRAILS}{MARKS}]?"
    rf"|(?:[ÐÑ][{TRAILS}{MARKS}]){{2}}|(?:[ÎÏ][{TRAILS}{MARKS}]){{2}}"
)
TAG_PATTERN = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|body|br|center|cite|code|dd|div|dl|dt|em|font|form|h[1-6]|head|hr|html|i|img|li|link"
    r"|meta|ol|p|pre|q|s|script|small|span|strike|strong|style|sub|sup|table|tbody|td|th|thead|title|tr|tt|u|ul)"
    r"(?:\s[^<>]*)?/?>|&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,30});",
    re.IGNORECASE,
)
UNSEEN = frozenset("\u00ad\u034f\u115f\u1160\u180e\u200b\u2060\u2061\u2062\u2063\u2064\ufeff\ufff9\ufffa\ufffb")
UNSEEN |= frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x2070))))
# Joiners and direction marks have their work in Arabic, Hebrew, Indian scripts and emoji, and none elsewhere.
JOINERS = frozenset("\u200c\u200d\u200e\u200f\u061c")
JOINING = re.compile(
    "[\u0590-\u109f\u1700-\u18af\u1900-\u1cff\u2600-\u27bf\ufb1d-\ufdff\ufe70-\ufefc\U0001f000-\U0001faff]"
)
SUSPECT_ASCII = re.compile(r"[\x00-\x1f\x7f<&]")
BREAKS = re.compile(r"[\n\t]")
LEADS = {**dict.fromkeys("<&", HTML), **dict.fromkeys("ÂÃÄÅâÐÑÎÏ", MOJIBAKE)}  # what makes a closer look worth its time


class Oddities:
    """Looks at the lines of one side of the data, which may have a script of its own."""

    def __init__(self) -> None:
        self.characters = 0
        self.scripts = Counter[str]()  # characters of each script but Latin
        self._plain = set[str]()  # characters that are known to be nothing special

    def look(self, text: str, *, breaks: bool = False) -> dict[str, int]:
        """The kinds of oddities of a text and where each begins; other scripts by their names, in capitals.

        With `breaks`, line breaks and tabs are part of the text.
        """
        line = BREAKS.sub(" ", text) if breaks else text
        self.characters += len(line)
        if line.isascii() and not SUSPECT_ASCII.search(line):
            return {}
        found: dict[str, int] = {}
        for character in set(line).difference(self._plain):
            kind = _kind(character)
            if kind is None:
                self._plain.add(character)
                continue
            if kind in SCRIPTS:
                self.scripts[kind] += line.count(character)
            elif (character in LEADS and not _proven(kind, line)) or (character in JOINERS and JOINING.search(line)):
                continue
            found[kind] = min(line.index(character), found.get(kind, len(line)))
        if MOJIBAKE in found:  # some bytes of UTF-8 are control characters elsewhere
            found.pop(CONTROL, None)
        if not unicodedata.is_normalized("NFC", line):
            found[NOT_NFC] = _first_difference(line, unicodedata.normalize("NFC", line))
        return found

    def at_home(self, script: str) -> bool:
        """Whether a script is one of the file's own, by what has been seen of it."""
        return self.scripts[script] >= AT_HOME * self.characters


@cache
def _kind(character: str) -> str | None:
    """What a character may mean: a kind of oddity, the name of its script, or nothing."""
    if character in LEADS:
        return LEADS[character]
    if character == "\ufffd":
        return REPLACED
    if character in UNSEEN or character in JOINERS:
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


def _proven(kind: str, line: str) -> bool:
    """Whether a line has what one of its characters may be the beginning of."""
    if kind == MOJIBAKE:
        return MOJIBAKE_PATTERN.search(line) is not None
    return any(found[0] == "<" or found[1:2] == "#" or found[1:] in html5 for found in TAG_PATTERN.findall(line))


def _first_difference(line: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(line, other, strict=False)) if a != b), min(len(line), len(other)))
