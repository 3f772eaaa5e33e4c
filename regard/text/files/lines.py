"""The lines of a text file: plain or packed, strict UTF-8, and every fault told with its file and line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regard.errors import DataError
from regard.text.files.compressed import DAMAGE, open_unpacked, true_kind

PLACES_KEPT = 5
BOM = b"\xef\xbb\xbf"
BOMS_OF_OTHERS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
NOT_UTF8, NUL = "not UTF-8", "NUL bytes"  # kinds of faults


@dataclass
class Finding:
    """How often something was met in the data, and where the first few times."""

    count: int = 0
    places: list[str] = field(default_factory=list)

    def add(self, path: object, line: int) -> None:
        self.count += 1
        if len(self.places) < PLACES_KEPT:
            self.places.append(f"{path}:{line}")


@dataclass(frozen=True)
class Fault:
    """A line that cannot be read: where, the kind of fault, what to say of it, and what can be shown of the line."""

    path: Path
    line: int
    kind: str
    message: str  # begins with file and line
    shown: str


def no_findings() -> defaultdict[str, Finding]:
    """An empty table of what was met, by kind."""
    return defaultdict(Finding)


def read_lines(path: str | Path, findings: defaultdict[str, Finding] | None = None) -> Iterator[str]:
    """The lines of a file without their ends; the first that cannot be read is a DataError."""
    for line in try_lines(path, findings):
        if isinstance(line, Fault):
            raise DataError(line.message)
        yield line


def try_lines(path: str | Path, findings: defaultdict[str, Finding] | None = None) -> Iterator[str | Fault]:
    r"""The lines of a file without their ends, a Fault in place of each that cannot be read.

    Only \n ends a line, as for every tool that writes parallel files: U+2028, \x0b, \x0c and their kind, at which
    str.splitlines would cut, stay inside the sentence. A byte order mark and the \r of \r\n are taken off and
    counted in `findings`. A file that is no text as a whole, or is damaged, is a DataError.
    """
    path, found = Path(path), no_findings() if findings is None else findings
    with open_unpacked(path) as file:
        number = 0
        try:
            for number, raw in enumerate(file, start=1):
                if number == 1:
                    raw = _without_mark(path, raw, found)
                if raw.endswith(b"\r\n"):
                    found["CRLF line ends"].add(path, number)
                    raw = raw[:-2]
                elif raw.endswith(b"\n"):
                    raw = raw[:-1]
                yield _decoded(path, number, raw)
        except DAMAGE as error:
            raise DataError(
                f"{path}: damaged or cut off after line {number} ({error}): download or pack it again, "
                f"or name it without {path.suffix} if it is not packed"
            ) from error


def _decoded(path: Path, number: int, raw: bytes) -> str | Fault:
    """A line as text, or what is wrong with it."""
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        kind, message, at = NOT_UTF8, _wrong_encoding(raw, error), error.start
    else:
        if "\0" not in line:
            return line
        at = raw.index(0)
        kind, message = (
            NUL,
            f"a NUL byte at byte {at + 1} of the line, so this is no text in UTF-8 (perhaps UTF-16, or a binary file): "
            "convert it, for instance with iconv -f utf-16 -t utf-8",
        )
    if number == 1 and (other := true_kind(raw)):
        raise DataError(f"{path}:1: no text; it begins like a file {other}")
    shown = raw[max(0, at - 30) : at + 30].decode(errors="backslashreplace")
    return Fault(path, number, kind, f"{path}:{number}: {message}", shown)


def _without_mark(path: Path, raw: bytes, found: defaultdict[str, Finding]) -> bytes:
    """The first line without its byte order mark."""
    for mark, name in BOMS_OF_OTHERS.items():
        if raw.startswith(mark):
            raise DataError(f"{path}:1: begins with the mark of {name}: convert it with iconv -f {name} -t utf-8")
    if raw.startswith(BOM):
        found["byte order marks"].add(path, 1)
        return raw[len(BOM) :]
    return raw


def _wrong_encoding(raw: bytes, error: UnicodeDecodeError) -> str:
    """What to say of bytes that are not UTF-8, with a guess at what they are."""
    # In Western text most letters are ASCII; in Cyrillic, Greek or Chinese encodings most bytes are above it.
    western = sum(byte > 127 for byte in raw) <= 0.3 * len(raw)
    guess = (
        "looks like Latin-1: convert with iconv -f latin1 -t utf-8"
        if western
        else "convert it with iconv -f ENCODING -t utf-8"
    )
    return f"byte 0x{raw[error.start]:02x} at byte {error.start + 1} of the line is not UTF-8 ({error.reason}); {guess}"
