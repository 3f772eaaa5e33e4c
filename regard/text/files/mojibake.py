"""Mojibake: UTF-8 that was decoded as Latin-1 or Windows-1252, so that é became Ã©. Find it; undo it where certain."""

from __future__ import annotations

import re
import unicodedata

# Read as Latin-1 or Windows-1252, é becomes Ã©: the lead byte of a UTF-8 sequence and its one or two continuation
# bytes, each as a character. Quotation marks and dashes may also follow a capital letter in correct text, so a word
# character must come after them.
CONTINUATION = "\u0080-\u00aa\u00ac-\u00b6\u00b8-\u00ba\u00bc-\u00bf€ƒ†‡ˆ‰Š‹ŒŽ™š›œžŸ˜"
PUNCTUATION = "\u00ab\u00b7\u00bb‚„…‘’“”•–—"
MOJIBAKE_PATTERN = re.compile(
    rf"[ÂÃ](?:[{CONTINUATION}]|[{PUNCTUATION}](?=\w))|[ÄÅ][{CONTINUATION}{PUNCTUATION}](?=[a-z])"
    rf"|â€[{CONTINUATION}{PUNCTUATION}]?"
    rf"|(?:[ÐÑ][{CONTINUATION}{PUNCTUATION}]){{2}}|(?:[ÎÏ][{CONTINUATION}{PUNCTUATION}]){{2}}"
)
ANY = rf"[{CONTINUATION}{PUNCTUATION}]"
# Characters that stand for the bytes of UTF-8, two to four for each character.
RUN = re.compile(rf"(?:[Â-ß]{ANY}|[à-ï]{ANY}{{2}}|[ð-ô]{ANY}{{3}})+")
# Characters that may follow a capital Ã or Â in correct text: AMANHÃ », with a no-break space.
AFTER_A_WORD = frozenset("\u00a0\u00a9\u00aa\u00ae\u00b0\u00b2\u00b3\u00b9\u00ba\u00ab\u00bb‚„…‘’“”•–—™")


def without_mojibake(text: str) -> str:
    """Return the text with every run of mojibake decoded that is beyond doubt; the rest stays as it is."""
    if not MOJIBAKE_PATTERN.search(text):
        return text
    without_runs = RUN.sub(_decoded, text)
    if without_runs == text:
        return text
    try:  # if all of the text can be decoded, all of it is mojibake
        return b"".join(map(_byte, text)).decode()
    except UnicodeError:
        return without_runs


def _decoded(match: re.Match[str]) -> str:
    """Decode a run of characters that stand for bytes; return it unchanged if it may be correct text."""
    run, before = match[0], match.string[: match.start()][-1:]
    certain = len(run) > 2 or MOJIBAKE_PATTERN.match(match.string, match.start())
    if not certain or (before.isupper() and run[0] in "ÂÃ" and run[1] in AFTER_A_WORD and len(run) == 2):
        return run
    try:
        text = b"".join(map(_byte, run)).decode()
    except UnicodeDecodeError:
        return run
    return text if all(unicodedata.category(character) not in ("Cc", "Cn", "Co") for character in text) else run


def _byte(character: str) -> bytes:
    """Return the byte that a character stands for. Windows-1252 lacks five of them; Latin-1 has all."""
    try:
        return character.encode("cp1252")
    except UnicodeEncodeError:
        return character.encode("latin-1")
