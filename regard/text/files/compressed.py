"""Files as bytes, unpacked on the way: plain, .gz, .xz and .zst, and what is wrong with one that cannot be read."""

from __future__ import annotations

import difflib
import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import IO, Any, cast

from regard.errors import DataError, UsageError

PACKED = (".gz", ".xz", ".zst")
DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)  # what reading a damaged file raises
READ_AT_ONCE = 2**14  # packed bytes; what they unpack to is in memory at a time
SIGNATURES = {
    b"\x1f\x8b": "packed with gzip: name it .gz",
    b"\xfd7zXZ": "packed with xz: name it .xz",
    b"\x28\xb5\x2f\xfd": "packed with zstd: name it .zst",
    b"PK\x03\x04": "packed with zip: unpack it first",
    b"PAR1": "in parquet: name it .parquet",
}


def open_unpacked(path: Path) -> IO[bytes]:
    """The file as bytes, unpacked by its name's end, or a DataError that says what is there instead."""
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder: name the files in it, for instance {path}/train.fr")
        match path.suffix.lower():
            case ".gz":
                return cast(IO[bytes], gzip.open(path, "rb"))
            case ".xz":
                return lzma.open(path, "rb")
            case ".zst":
                return io.BufferedReader(_Zst(path))
            case _:
                return open(path, "rb")
    except FileNotFoundError:
        raise DataError(missing_file(path)) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be opened: {error.strerror or error}") from error


def content_name(path: Path) -> Path:
    """The name without the packing's: a.tsv for a.tsv.gz."""
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


def missing_file(path: Path) -> str:
    """What to say of a file that is not there, with the nearest name that is."""
    if not path.parent.is_dir():
        return f"{path}: no such file, and no folder {path.parent}"
    near = difflib.get_close_matches(path.name, sorted(entry.name for entry in path.parent.iterdir()), n=1)
    return f"{path}: no such file" + (f"; did you mean {path.parent / near[0]}?" if near else "")


def true_kind(first: bytes) -> str | None:
    """What a file is that begins so and should be text; None where nothing is known of it."""
    return next((kind for signature, kind in SIGNATURES.items() if first.startswith(signature)), None)


class _Zst(io.RawIOBase):
    """A .zst file unpacked, frame after frame.

    zstandard's own stream takes a file that is cut off for one that ends; here that is an EOFError, as with gzip.
    """

    def __init__(self, path: Path) -> None:
        zstandard = _zstandard(path)
        self._unpacker, self._error = zstandard.ZstdDecompressor(), zstandard.ZstdError
        self._file = open(path, "rb")  # noqa: SIM115  # closed by close
        self._frame: Any = None  # the one that is being unpacked
        self._packed, self._ready = b"", b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            self._packed = self._packed or self._file.read(READ_AT_ONCE)
            if not self._packed:
                if self._frame is not None:
                    raise EOFError("the file ended before the end of its last frame")
                return 0
            self._unpack()
        given = self._ready[: len(buffer)]
        self._ready = self._ready[len(given) :]
        buffer[: len(given)] = given
        return len(given)

    def _unpack(self) -> None:
        self._frame = self._frame or self._unpacker.decompressobj()
        try:
            self._ready = self._frame.decompress(self._packed)
        except self._error as error:
            raise OSError(str(error)) from error
        self._packed = self._frame.unused_data
        if self._frame.eof:
            self._frame = None

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _zstandard(path: Path) -> Any:
    """The package that unpacks; an extra, for few files are packed so."""
    try:
        import zstandard
    except ImportError:
        raise UsageError(f"{path}: .zst files need another package: pip install 'regard[zst]'") from None
    return zstandard
