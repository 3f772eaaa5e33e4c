"""Find fonts with the letters of a picture, in any script.

matplotlib handles right-to-left text and joins letters itself (since 3.11); it needs a font with the letters. Its own
font, DejaVu Sans, has Latin, Greek, Cyrillic, Hebrew and Arabic; for others the fonts of the machine are searched.
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
    """Return font families that together have the letters of the texts, and the letters that no font has."""
    fonts = _fonts()
    missing = {letter for text in texts for letter in text if letter.isprintable()} - letters_of(fonts.pop(FIRST))
    families = [FIRST]
    for name, path in fonts.items() if missing else ():
        if covered := missing & letters_of(path):
            families.append(name)
            missing -= covered
        if not missing:
            break
    return families, missing


def fit_fonts(figure: Figure) -> Figure:
    """Set the fonts that the texts of a figure need; warn if there are none."""
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    families, missing = families_for(text.get_text() for text in texts)
    if len(families) > 1:
        for text in texts:
            text.set_fontfamily(families)
    if missing:
        shown = "".join(sorted(missing)[:12])
        warnings.warn(
            f"no font on this machine has the letters {shown}: install {_packages_for(missing)}", stacklevel=3
        )
    return figure


def printable(text: str) -> str:
    """Replace unprintable characters: line breaks and tabs by symbols, others by their code."""
    return "".join(letter if letter.isprintable() else SIGNS.get(letter, f"<{ord(letter):02X}>") for letter in text)


@cache
def letters_of(path: str) -> frozenset[str]:
    """Return the letters of a font file."""
    return frozenset(map(chr, FT2Font(path).get_charmap()))


def _fonts() -> dict[str, str]:
    """Return the installed families with their files: the default first, then those known to be good."""
    files: dict[str, str] = {}
    for entry in sorted(fontManager.ttflist, key=lambda entry: (entry.style != "normal", abs(_weight(entry) - 400))):
        if not entry.name.startswith(FAKE):
            files.setdefault(entry.name, entry.fname)
    order = dict.fromkeys((FIRST, *KNOWN, *sorted(files)))
    return {name: files[name] for name in order if name in files}


def _weight(entry: FontEntry) -> int:
    return entry.weight if isinstance(entry.weight, int) else 400  # "normal"


def _packages_for(letters: Iterable[str]) -> str:
    """Return the fonts to install for these letters."""
    scripts = sorted({unicodedata.name(letter, "UNKNOWN").split()[0] for letter in letters})
    return ", ".join(dict.fromkeys(PACKAGES.get(script, f"Noto Sans {script.title()}") for script in scripts))
