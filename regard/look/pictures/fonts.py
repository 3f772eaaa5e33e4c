"""Fonts that have the letters of a picture's words, whatever the script.

matplotlib sets text from right to left and joins letters by itself (since 3.11); what it needs is a font that has them.
Its own, DejaVu Sans, has Latin, Greek, Cyrillic, Hebrew and Arabic; for others the fonts of the machine are searched.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable
from functools import cache

from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

FIRST = "DejaVu Sans"
# Good ones for scripts that DejaVu lacks; whatever else is there comes after them.
KNOWN = (
    "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Source Han Sans SC", "WenQuanYi Zen Hei",
    "IPAexGothic", "PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Arial Unicode MS", "Microsoft YaHei",
    "Yu Gothic", "MS Gothic", "Malgun Gothic", "Nirmala UI", "Leelawadee UI", "Segoe UI Emoji", "Noto Emoji",
)  # fmt: skip
FAKE = ("Last Resort",)  # has a box for every letter
SIGNS = {"\n": "↵", "\t": "⇥"}
PACKAGES = {"CJK": "Noto Sans CJK", "HIRAGANA": "Noto Sans CJK", "KATAKANA": "Noto Sans CJK", "HANGUL": "Noto Sans CJK"}


def families_for(texts: Iterable[str]) -> tuple[list[str], set[str]]:
    """Font families that together have the letters of the texts, the usual one first, and the letters that none has."""
    fonts = _fonts()
    missing = {letter for text in texts for letter in text if letter.isprintable()} - letters_of(fonts.pop(FIRST))
    families = [FIRST]
    for name, path in fonts.items() if missing else ():
        if found := missing & letters_of(path):
            families.append(name)
            missing -= found
        if not missing:
            break
    return families, missing


def fit_fonts(figure: Figure) -> Figure:
    """Give every text of a figure the fonts that its letters need; a warning where there are none."""
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    families, missing = families_for(text.get_text() for text in texts)
    if len(families) > 1:
        for text in texts:
            text.set_fontfamily(families)
    if missing:
        shown = "".join(sorted(missing)[:12])
        warnings.warn(f"no font on this machine has the letters {shown}: install {_wanted(missing)}", stacklevel=3)
    return figure


def printable(text: str) -> str:
    """The text with signs for what no font has a letter for: line ends, tabs, others by their number."""
    return "".join(one if one.isprintable() else SIGNS.get(one, f"<{ord(one):02X}>") for one in text)


@cache
def letters_of(path: str) -> frozenset[str]:
    """The letters that a font file has."""
    return frozenset(map(chr, FT2Font(path).get_charmap()))


def _fonts() -> dict[str, str]:
    """The families that are there with the file of each: the usual one first, then those known to be good."""
    files: dict[str, str] = {}
    for entry in sorted(fontManager.ttflist, key=lambda entry: (entry.style != "normal", abs(_weight(entry) - 400))):
        if not entry.name.startswith(FAKE):
            files.setdefault(entry.name, entry.fname)
    order = dict.fromkeys((FIRST, *KNOWN, *sorted(files)))
    return {name: files[name] for name in order if name in files}


def _weight(entry: FontEntry) -> int:
    return entry.weight if isinstance(entry.weight, int) else 400  # "normal"


def _wanted(letters: Iterable[str]) -> str:
    """What to install for these letters."""
    scripts = sorted({unicodedata.name(letter, "UNKNOWN").split()[0] for letter in letters})
    return ", ".join(dict.fromkeys(PACKAGES.get(script, f"Noto Sans {script.title()}") for script in scripts))
