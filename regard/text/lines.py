"""The lines of a text file: plain, .gz or .xz, strict UTF-8, and every fault told with its file and line."""

from __future__ import annotations

import difflib
import gzip
import lzma
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from regard.errors import DataError

PLACES_KEPT = 5
BOM = b"\xef\xbb\xbf"
BOMS_OF_OTHERS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
SIGNATURES = {b"\x1f\x8b": "gzip: name it .gz", b"\xfd7zXZ": "xz: name it .xz", b"PK\x03\x04": "zip: unpack it first"}


@dataclass
class Finding:
    """How often something was met in the data, and where the first few times."""

    count: int = 0
    places: list[str] = field(default_factory=list)

    def add(self, path: object, line: int) -> None:
        self.count += 1
        if len(self.places) < PLACES_KEPT:
            self.places.append(f"{path}:{line}")


def no_findings() -> defaultdict[str, Finding]:
    """An empty table of what was met, by kind."""
    return defaultdict(Finding)


def read_lines(path: str | Path, findings: defaultdict[str, Finding] | None = None) -> Iterator[str]:
    r"""The lines of a file without their ends; files named .gz and .xz are unpacked.

    Only \n ends a line, as for every tool that writes parallel files: U+2028, \x0b, \x0c and their kind, at which
    str.splitlines would cut, stay inside the sentence. A byte order mark and the \r of \r\n are taken off and
    counted in `findings`.
    """
    path, found = Path(path), no_findings() if findings is None else findings
    with _opened(path) as file:
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
                try:
                    line = raw.decode()
                except UnicodeDecodeError as error:
                    raise DataError(_wrong_encoding(path, number, raw, error)) from None
                if "\0" in line:
                    raise DataError(
                        f"{path}:{number}: a NUL byte at byte {raw.index(0) + 1} of the line, so this is no "
                        "text in UTF-8 (perhaps UTF-16, or a binary file): convert it, for instance with "
                        "iconv -f utf-16 -t utf-8"
                    )
                yield line
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise DataError(
                f"{path}: damaged or cut off after line {number} ({error}): download or pack it again, "
                f"or name it without {path.suffix} if it is not packed"
            ) from error


def _opened(path: Path) -> IO[bytes]:
    """The file as bytes, unpacked, or a DataError that says what is there instead."""
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder: name the files in it, for instance {path}/train.fr")
        if path.suffix == ".gz":
            return cast(IO[bytes], gzip.open(path, "rb"))
        return lzma.open(path, "rb") if path.suffix == ".xz" else open(path, "rb")
    except FileNotFoundError:
        raise DataError(missing_file(path)) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be opened: {error.strerror or error}") from error


def missing_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f"{path}: no such file, and no folder {path.parent}"
    near = difflib.get_close_matches(path.name, sorted(entry.name for entry in path.parent.iterdir()), n=1)
    return f"{path}: no such file" + (f"; did you mean {path.parent / near[0]}?" if near else "")


def _without_mark(path: Path, raw: bytes, found: defaultdict[str, Finding]) -> bytes:
    """The first line without its byte order mark."""
    for mark, name in BOMS_OF_OTHERS.items():
        if raw.startswith(mark):
            raise DataError(f"{path}:1: begins with the mark of {name}: convert it with iconv -f {name} -t utf-8")
    if raw.startswith(BOM):
        found["byte order marks"].add(path, 1)
        return raw[len(BOM) :]
    return raw


def _wrong_encoding(path: Path, number: int, raw: bytes, error: UnicodeDecodeError) -> str:
    """What to say of bytes that are not UTF-8, with a guess at what they are."""
    for signature, advice in SIGNATURES.items():
        if number == 1 and raw.startswith(signature):
            return f"{path}:1: no text; it begins like a file packed with {advice}"
    # In Western text most letters are ASCII; in Cyrillic, Greek or Chinese encodings most bytes are above it.
    western = sum(byte > 127 for byte in raw) <= 0.3 * len(raw)
    guess = (
        "looks like Latin-1: convert with iconv -f latin1 -t utf-8"
        if western
        else "convert it with iconv -f ENCODING -t utf-8"
    )
    return (
        f"{path}:{number}: byte 0x{raw[error.start]:02x} at byte {error.start + 1} of the line is not UTF-8 "
        f"({error.reason}); {guess}"
    )
