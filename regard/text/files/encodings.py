"""The encoding of a text file: which lines are UTF-8, whether the others are certainly Western European, and advice."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from regard.text.files.compressed import READ_ERRORS, content_name, open_decompressed
from regard.text.files.mojibake import MOJIBAKE_PATTERN

BOM = b"\xef\xbb\xbf"
WIDE_BOMS = {b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
NUL_SHARE = 0.3  # of the bytes of a text in UTF-16 without a byte order mark
MAX_HIGH_SHARE = 0.3  # of the bytes of a Western European line that are accented; in Cyrillic or Greek it is higher
MIN_LETTERS = 50  # of the lines in UTF-8, from which they show which letters the language has
CERTAIN_SHARE = 0.98  # of the lines, and of their letters
# The letters beyond ASCII of languages that Windows-1252 was made for. A file in another encoding of one byte a
# letter, decoded as Windows-1252, mixes letters of several of them.
ALPHABETS = tuple(
    map(
        frozenset,
        (
            "àâæçèéêëîïôœùûüÿ",  # French
            "äöüßé",  # German
            "áéíñóúü",  # Spanish
            "áâãàçéêíóôõúü",  # Portuguese
            "àèéìíîòóùú",  # Italian, Gaelic
            "àçèéíïóòúü",  # Catalan
            "áèéêëíïóöúü",  # Dutch
            "åæøéèêóòôâ",  # Danish, Norwegian
            "åäöéüà",  # Swedish, Finnish
            "áéíóúýþæöð",  # Icelandic
            "äöõü",  # Estonian
            "éèêëïîôöüçñàáâíóä",  # English, in names and loan words
        ),
    )
)
LETTERS = frozenset().union(*ALPHABETS)
# Symbols of Windows-1252 in ordinary text, and those that may stand inside a word.
SYMBOLS = frozenset("«»‹›“”„‚‘’–—…•·¡¿§°©®™€£¥¢½¼¾²³¹ªº×÷±µ†‡‰\u00a0\u00ad")
INSIDE_WORDS = frozenset("‘’–—·ªº…\u00a0\u00ad")
IMPLAUSIBLE = re.compile(
    rf"(?<=[^\W\d_])[{re.escape(''.join(sorted(SYMBOLS - INSIDE_WORDS)))}](?=[^\W\d_])"  # ³ in a word was a letter
    r"|(?<=[^\W\d_])[‚„]|(?:(?![a-z])[^\W\d_]){4}"  # an opening quotation mark after a letter; four accented letters
)


@dataclass
class EncodingSurvey:
    """What the lines of a file are: ASCII, UTF-8, or something else."""

    path: Path
    wide: str | None = None  # utf-16 or utf-32, if the whole file is in it
    lines: int = 0
    utf8_lines: int = 0  # with at least one character beyond ASCII
    other_lines: int = 0  # not UTF-8
    plausible_lines: int = 0  # those of the other lines that make sense as Windows-1252
    has_windows_bytes: bool = False  # 0x80 to 0x9f, which are control characters in Latin-1
    utf8_letters: Counter[str] = field(default_factory=Counter)
    other_letters: Counter[str] = field(default_factory=Counter)  # of the plausible lines
    letters_of_lines: set[frozenset[str]] = field(default_factory=set)  # the letters of each plausible line

    @cached_property
    def certain(self) -> bool:
        """Whether some lines are not UTF-8, and are Windows-1252 beyond doubt."""
        if self._known_letters:
            return any(letters <= self._known_letters for letters in self.letters_of_lines)
        return bool(self.plausible_lines) and self._is_western

    def decode(self, raw: bytes) -> str | None:
        """Decode a line that is not UTF-8; None if its encoding is in doubt."""
        text = _as_windows_1252(raw) if self.certain else None
        if text is None or (self._known_letters and not self._known_letters.issuperset(_letters_of(text))):
            return None
        return text

    def advice(self) -> str:
        """Return what to do about a file that is not UTF-8, as the end of a sentence; empty if all of it is."""
        fix = "regard check FILES --fix FOLDER"
        if self.wide:
            return f"convert it with {self.conversion(self.wide)}, or with {fix}"
        if not self.other_lines:
            return ""
        counts = f"{self.other_lines:,} of the {self.lines:,} lines of {self.path} are not UTF-8"
        if self.utf8_lines:
            counts += f" and {self.utf8_lines:,} contain UTF-8, so do not convert the whole file"
            skip = "leave the faulty lines out with --set data.faults=skip"
            remedy = f"{fix} repairs it line by line" if self.certain else "correct it"
            return f"{counts}: {remedy}, or {skip}"
        if not self.certain:
            return f"{counts} and none contains UTF-8: convert the file with {self.conversion('ENCODING')}"
        name, label = ("windows-1252", "Windows-1252") if self.has_windows_bytes else ("latin1", "Latin-1")
        looks = f"{counts} and none contains UTF-8, so the file looks like {label}"
        return f"{looks}: convert it with {self.conversion(name)}, or with {fix}"

    def conversion(self, encoding: str) -> str:
        """Return the command that converts the file to UTF-8, into a new file."""
        content = content_name(self.path)
        new = shlex.quote(str(content.with_name(f"{content.stem}.utf8{content.suffix}")))
        old = shlex.quote(str(self.path))
        if content == self.path:
            return f"iconv -f {encoding} -t utf-8 {old} > {new}"
        unpack = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}[self.path.suffix.lower()]
        return f"{unpack} -dc {old} | iconv -f {encoding} -t utf-8 > {new}"

    @property
    def is_wholly_other(self) -> bool:
        """Whether no line has a character in UTF-8 beyond ASCII, so that the whole file can be converted."""
        return bool(self.wide) or (bool(self.other_lines) and not self.utf8_lines)

    @cached_property
    def _known_letters(self) -> frozenset[str]:
        """The letters that the lines in UTF-8 show the language to have; empty if there are too few of them."""
        if self.utf8_letters.total() < MIN_LETTERS:
            return frozenset()
        alphabet, share = _best_alphabet(self.utf8_letters)
        return frozenset(self.utf8_letters) | (alphabet if share >= CERTAIN_SHARE else frozenset())

    @cached_property
    def _is_western(self) -> bool:
        """Whether the lines that are not UTF-8 make sense, with the letters of one language."""
        if self.plausible_lines < CERTAIN_SHARE * self.other_lines:
            return False
        return not self.other_letters or _best_alphabet(self.other_letters)[1] >= CERTAIN_SHARE


def survey_encoding(path: Path) -> EncodingSurvey:
    """Read a file, decompressed, and count what its lines are; a damaged file is read as far as possible."""
    survey = EncodingSurvey(path)
    with open_decompressed(path) as file, suppress(*READ_ERRORS):
        for raw in file:
            if not survey.lines and (wide := wide_encoding(raw)):
                survey.wide = wide
                return survey
            survey.lines += 1
            if not raw.isascii():
                _count_line(survey, raw)
    return survey


def _count_line(survey: EncodingSurvey, raw: bytes) -> None:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        survey.other_lines += 1
        survey.has_windows_bytes |= any(0x80 <= byte <= 0x9F for byte in raw)
        text = _as_windows_1252(raw) or ""
        # A part of the line may be UTF-8: then the line is in both encodings, or ends inside a character.
        survey.utf8_lines += text != _decode_all(raw) if text else _is_mostly_utf8(raw)
        if text:
            survey.plausible_lines += 1
            survey.other_letters.update(_letters_of(text))
            survey.letters_of_lines.add(frozenset(_letters_of(text)))
    else:
        survey.utf8_lines += not text.isascii()
        survey.utf8_letters.update(_letters_of(text))


def _is_mostly_utf8(raw: bytes) -> bool:
    """Whether a line that is not UTF-8 has more characters of UTF-8 beyond ASCII than bytes that are not UTF-8."""
    text = raw.decode(errors="surrogateescape")
    wrong = sum("\udc80" <= character <= "\udcff" for character in text)
    return sum(not character.isascii() for character in text) > 2 * wrong or (wrong == 1 and len(text) < len(raw))


def wide_encoding(first_line: bytes) -> str | None:
    """Return "utf-16", "utf-16le", "utf-16be" or "utf-32" for the first bytes of such a text; None for other files."""
    for mark, name in WIDE_BOMS.items():
        if first_line.startswith(mark):
            return name
    nuls = first_line.count(0)
    if len(first_line) < 4 or nuls < NUL_SHARE * len(first_line):
        return None
    if first_line[1::2].count(0) == nuls:
        return "utf-16le"
    return "utf-16be" if first_line[0::2].count(0) == nuls else None


def _as_windows_1252(raw: bytes) -> str | None:
    """Decode a line that is not UTF-8 as Windows-1252, or as a mixture; None if the result makes no sense."""
    if sum(byte >= 0xC0 for byte in raw) > MAX_HIGH_SHARE * len(raw) + 2:  # "été" is a line, too
        return None
    readings = dict.fromkeys([_decode_all(raw), _decode_rest(raw)])
    plausible = [text for text in readings if text is not None and _is_plausible(text)]
    return plausible[0] if len(plausible) == 1 else None


def _decode_all(raw: bytes) -> str | None:
    try:
        return raw.decode("cp1252")
    except UnicodeDecodeError:
        return None


def _decode_rest(raw: bytes) -> str | None:
    """Decode what is UTF-8 as UTF-8, and other bytes as Windows-1252; capitals may be the first half of a character."""
    text = raw.decode(errors="surrogateescape")
    rest = [
        character.encode("utf-8", "surrogateescape") for character in set(text) if "\udc80" <= character <= "\udcff"
    ]
    decoded = {ord(byte.decode(errors="surrogateescape")): byte.decode("cp1252", "replace") for byte in rest}
    if any(character.isupper() or character == "\ufffd" for character in decoded.values()):
        return None
    return text.translate(decoded)


def _is_plausible(text: str) -> bool:
    if MOJIBAKE_PATTERN.search(text) or IMPLAUSIBLE.search(text.lower()):
        return False
    return all(x.isascii() or x.lower() in LETTERS or x in SYMBOLS for x in set(text))


def _letters_of(text: str) -> Iterator[str]:
    return (character.lower() for character in text if not character.isascii() and character.isalpha())


def _best_alphabet(letters: Counter[str]) -> tuple[frozenset[str], float]:
    """Return the alphabet that has most of these letters, and their share."""
    counts = {alphabet: sum(letters[letter] for letter in alphabet) for alphabet in ALPHABETS}
    best = max(counts, key=counts.__getitem__)
    return best, counts[best] / letters.total()
