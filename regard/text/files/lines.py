"""Read the lines of a plain or compressed text file as strict UTF-8; each fault is reported with its file and line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from regard.errors import DataError
from regard.text.files.compressed import READ_ERRORS, detected_format, open_decompressed
from regard.text.files.encodings import BOM, EncodingSurvey, survey_encoding, wide_encoding

MAX_LOCATIONS = 5  # of a finding
NOT_UTF8, NUL = "not UTF-8", "NUL bytes"  # kinds of faults
MARK, CRLF = "byte order marks", "CRLF line ends"  # kinds of findings


@dataclass
class Finding:
    """The number of occurrences of one problem in the data, and the first few locations as file:line."""

    count: int = 0
    locations: list[str] = field(default_factory=list)

    def add(self, path: object, line: int) -> None:
        self.count += 1
        if len(self.locations) < MAX_LOCATIONS:
            self.locations.append(f"{path}:{line}")


@dataclass(frozen=True)
class Fault:
    """A line that cannot be read."""

    path: Path
    line: int
    kind: str
    message: str  # begins with file and line
    excerpt: str  # printable part of the line
    text: str = ""  # the line; bytes that are not UTF-8 are escaped as surrogates

    def error(self) -> DataError:
        """Return the error for a reader that stops here, with advice on the encoding of the whole file."""
        advice = survey_encoding(self.path).advice() if self.kind == NOT_UTF8 and self.text else ""
        return DataError(f"{self.message}. {advice}" if advice else self.message)


def no_findings() -> defaultdict[str, Finding]:
    """Return an empty table of findings by kind."""
    return defaultdict(Finding)


def read_lines(path: str | Path, findings: defaultdict[str, Finding] | None = None) -> Iterator[str]:
    """Yield the lines of a file without their line endings; raise DataError at the first line that cannot be read."""
    for line in try_lines(path, findings):
        if isinstance(line, Fault):
            raise line.error()
        yield line


def try_lines(path: str | Path, findings: defaultdict[str, Finding] | None = None) -> Iterator[str | Fault]:
    r"""Yield the lines of a file without their line endings, and a Fault for each line that cannot be read.

    Only \n ends a line, as in all tools that write parallel files. U+2028, \x0b, \x0c and the like, at which
    str.splitlines would split, stay inside the sentence. A byte order mark and the \r of \r\n are removed and
    counted in `findings`. A damaged file, or one that is not text at all, raises DataError.
    """
    path, findings = Path(path), no_findings() if findings is None else findings
    with open_decompressed(path) as file:
        number = 0
        try:
            for number, raw in enumerate(file, start=1):
                if number == 1:
                    raw = _strip_byte_order_mark(path, raw, findings)
                if raw.endswith(b"\r\n"):
                    findings[CRLF].add(path, number)
                    raw = raw[:-2]
                elif raw.endswith(b"\n"):
                    raw = raw[:-1]
                yield _decoded(path, number, raw)
        except READ_ERRORS as error:
            raise DataError(
                f"{path}: damaged or truncated after line {number} ({error}): download or compress it again, "
                f"or remove {path.suffix} from its name if it is not compressed"
            ) from error


def count_lines(path: Path) -> int:
    """Return the number of lines of a file, as far as it can be read."""
    count = 0
    with open_decompressed(path) as file, suppress(*READ_ERRORS):
        for _ in file:
            count += 1
    return count


def _decoded(path: Path, number: int, raw: bytes) -> str | Fault:
    """Return a line as text, or a Fault that says why it is not UTF-8 text."""
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        kind, offset = NOT_UTF8, error.start
        message = f"byte 0x{raw[offset]:02x} at byte {offset + 1} of the line is not UTF-8 ({error.reason})"
    else:
        if "\0" not in line:
            return line
        kind, offset = NUL, raw.index(0)
        message = (
            f"a NUL byte at byte {offset + 1} of the line, which text does not contain: "
            "if this is not a binary file, regard check FILES --fix FOLDER removes it"
        )
    if number == 1 and (file_format := detected_format(raw)):
        raise DataError(f"{path}:1: not a text file; it looks like {file_format}")
    excerpt = raw[max(0, offset - 30) : offset + 30].decode(errors="backslashreplace")
    text = raw.decode(errors="surrogateescape")
    return Fault(path, number, kind, f"{path}:{number}: {message}", excerpt, text)


def _strip_byte_order_mark(path: Path, raw: bytes, findings: defaultdict[str, Finding]) -> bytes:
    """Remove the byte order mark from the first line of a file."""
    if wide := wide_encoding(raw):
        advice = EncodingSurvey(path, wide).advice()
        raise DataError(f"{path}:1: the file is in {wide[:6].upper()}: {advice}")
    if raw.startswith(BOM):
        findings[MARK].add(path, 1)
        return raw[len(BOM) :]
    return raw
