"""Find the spans of a text that a translation must carry over: numbers, dates, times, web addresses, file names, code.

Two spans mean the same if their keys are equal, whatever each language writes: "1,5" and "1.5", "14 h 30" and "2:30".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal, NamedTuple

from regard.text.placeholders.number_words import MONTHS, ORDINAL_ENDINGS, ordinal
from regard.text.tokenizers.placeholder_tokens import ANY_PLACEHOLDER

Kind = Literal["number", "time", "word"]  # a time of day is one, and so is a date

SOME_SPAN = re.compile(r"[\d@#_/\\`(½¼¾-]|\.\w")  # every span contains one of these: most texts need no closer look
BLANK = "[ \u00a0\u202f\u2009]"
NUMBER = rf"""(?:(?<![\w)\]])[-−–+±])?  (?:
    \d{{1,3}}(?:{BLANK}\d{{3}})+(?!\d)(?:[.,]\d+)? |  # 1 234,56
    \d+(?:[.,:/×-]\d+)*[½¼¾]? | [½¼¾]                 # 1,5  12/05/2024  2024-05-12  16:9
)"""
UNIT = r"""(?:
    °{BLANK}?[CFK] | [%‰€$£¥°] | km/h | m/s | [cdkmµnh]?m[²³23]? | [kmµn]?g | [cdmkh]?[lL] |
    [kMGT]?(?:Hz|Wh|W|V|J|Pa|cal) | [kKMGT]?(?:o|B|bits?)(?:/s)? | min | ms | s | mn | ha | bar | dB | ppm |
    EUR | USD | CHF | GBP | CAD | [kM]€
)(?![\w'’])""".replace("{BLANK}", BLANK)
TLD = "com|org|net|info|io|eu|fr|de|es|it|be|ch|ca|uk|us|edu|gov|example|test"
FILE_TYPES = (
    "pdf|txt|csv|tsv|json|xml|html?|css|js|ts|py|c|h|cpp|java|rs|go|sh|md|toml|ya?ml|docx?|xlsx?|pptx?|odt|ods|"
    "jpe?g|png|gif|svg|mp[34]|wav|avi|mov|zip|gz|tar|xz|exe|iso|log|ini|cfg|conf|sql|bak"
)
WORD = rf"""
    `[^`]+` |
    [\w.+-]+@[\w-]+(?:\.[\w-]+)+ |                                       # contact@example.org
    (?:\w+://|www\.)[^\s<>"«»“”]*[^\s<>"«»“”.,;:!?…)'’\]] |
    (?<![\w.])(?:[\w-]+\.)+(?:{TLD})(?!\w)(?:/[^\s<>"«»]*[^\s<>"«».,;:!?…)'’])? |
    (?<!\w)[A-Za-z]:\\[^\s,;]+ | (?<![\w/])(?:~|\.{{1,2}})?(?:/[\w.-]*\w)+/?(?!\w) |   # C:\x  ~/notes  /etc/hosts
    (?<![\w.])[\w-]+(?:\.[\w-]+)*\.(?:{FILE_TYPES})(?!\w) |              # rapport_v2.pdf
    (?<!\w)[@\#]\w+ | (?<![\w-])--?[a-zA-Z][\w-]*(?=\s|$) |                 # @handle  --option
    \w+(?:\.\w+)*\([^()\s]*\) |                                          # print(x)
    (?<!\w)(?:v\d+(?:\.\d+)+|\w*[^\W_]_\w+|_\w+) |                       # v2.1  max_length
    (?<![\w-])(?=[\w-]*\d)(?=[\w-]*[^\W\d_])[^\W_][\w-]*\w               # A380  COVID-19  4x4
"""
TIME = rf"""
    (?<![\d:,.])\d{{1,2}}{BLANK}?[hH]{BLANK}?\d{{2}}(?![\w:]) | (?<![\d:,.])\d{{1,2}}{BLANK}?[hH](?![\w'’]) |
    (?<![\d:,.])\d{{1,2}}:\d{{2}}(?::\d{{2}})?(?![\w:])(?:\s?[ap]\.?m\b\.?)? | (?<![\d:,.])\d{{1,2}}\s?[ap]\.?m\b\.?
"""
PHONE = rf"(?<!\w)(?:\+\d{{1,3}}{BLANK}?)?(?:\(0\){BLANK}?)?\d{{1,4}}(?:(?:{BLANK}|[.-])\d{{2,4}}){{3,}}(?!\w)"

NUMERIC_DATE = re.compile(r"\d{1,2}([/.-])\d{1,2}\1\d{2,4}|\d{4}-\d\d-\d\d")


class Span(NamedTuple):
    """A span text[start:end), and what it means."""

    start: int
    end: int
    kind: Kind
    key: str

    def text(self, text: str) -> str:
        return text[self.start : self.end]


def find_spans(text: str, language: str | None = None) -> Iterator[Span]:
    """Yield the spans of a text in order. With a known language, dates with a month and ordinals are spans, too."""
    if not SOME_SPAN.search(text) or ANY_PLACEHOLDER.search(text):  # it would be taken for one of ours
        return
    for match in _pattern(language).finditer(text):
        kind, key = _meaning(str(match.lastgroup), match[0], language)
        yield Span(*match.span(), kind, key)


def localised(span: Span, text: str, target: str | None) -> str:
    """Return a span as the target language writes it: dates with a month and ordinals; all others stay as they are."""
    name, _, value = span.key.partition(" ")
    if name == "date" and target in MONTHS:
        day, month, year = value.split("/")
        return " ".join(filter(None, [day, MONTHS[target][int(month) - 1], year]))
    if name == "ordinal" and target is not None:
        return ordinal(int(value), target) or span.text(text)
    return span.text(text)


@cache
def _pattern(language: str | None) -> re.Pattern[str]:
    """Return the pattern of all spans; the first alternative that matches at a position counts."""
    parts = {"word": WORD}
    if language in MONTHS:
        month, ending, blank = "|".join(MONTHS[language]), ORDINAL_ENDINGS[language], BLANK
        day, year = rf"(?<![\w.,:/-])\d{{1,2}}(?:{ending})?", rf"(?:,?{blank}\d{{4}}(?![\w'’]))?"
        dates = rf"{day}{blank}(?:of{blank})?(?:{month})(?!\w){year}"
        if language == "en":
            dates += rf"|\b(?:{month}){blank}\d{{1,2}}(?:{ending})?(?![\w:/-]){year}"
        parts = {"date": dates, "ordinal": rf"(?<![\w.,:/-])\d+(?:{ending})(?![\w'’-])", **parts}
    parts |= {"time": TIME, "phone": PHONE}
    # The time comes before the word: 17h45 is not code.
    order = ["date", "time", "phone", "ordinal", "measure", "word", "number"]
    parts |= {"measure": rf"{NUMBER}{BLANK}?{UNIT}|(?<!\w)[$€£¥]{BLANK}?{NUMBER}", "number": rf"(?<!\w){NUMBER}"}
    return re.compile("|".join(f"(?P<{name}>{parts[name]})" for name in order if name in parts), re.VERBOSE)


def _meaning(name: str, text: str, language: str | None) -> tuple[Kind, str]:
    """Return the kind of a span and its key."""
    if name == "word":
        return "word", text
    digits = re.findall(r"\d+", text)
    if name == "date" and language is not None:
        month = next(i for i, month in enumerate(MONTHS[language], start=1) if month in text)
        return "time", f"date {int(digits[0])}/{month}/{digits[1] if len(digits) > 1 else ''}"
    if name == "ordinal":
        return "number", f"ordinal {int(digits[0])}"
    if name == "time":
        hour, minute = int(digits[0]), digits[1] if len(digits) > 1 else "00"
        return "time", f"time {hour % 12}:{minute}"
    kind: Kind = "time" if NUMERIC_DATE.fullmatch(text) else "number"
    marks = "".join(sorted(re.sub(r"[\d\s.,]", "", text)))  # the sign and the unit
    return kind, f"{''.join(digits)}{marks}"
