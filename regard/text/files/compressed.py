"""Open plain and compressed files (.gz, .xz, .zst) as bytes, and explain why a file cannot be read."""

from __future__ import annotations

import difflib
import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import IO, Any, cast

from regard.errors import DataError, UsageError

COMPRESSED = (".gz", ".xz", ".zst")
READ_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError)  # raised while a damaged file is read
CHUNK_BYTES = 2**14  # compressed bytes that are decompressed at a time
SIGNATURES = {  # the first bytes of a file -> its format, and what to do
    b"\x1f\x8b": "a gzip file: rename it to end in .gz",
    b"\xfd7zXZ": "an xz file: rename it to end in .xz",
    b"\x28\xb5\x2f\xfd": "a zstd file: rename it to end in .zst",
    b"PK\x03\x04": "a zip archive: extract it first",
    b"PAR1": "a parquet file: rename it to end in .parquet",
}


def open_decompressed(path: Path) -> IO[bytes]:
    """Open a file as bytes and decompress it according to its suffix; raise DataError if that is impossible."""
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder: give the files in it, for example {path}/train.fr")
        match path.suffix.lower():
            case ".gz":
                return cast(IO[bytes], gzip.open(path, "rb"))
            case ".xz":
                return lzma.open(path, "rb")
            case ".zst":
                return io.BufferedReader(_ZstdFile(path))
            case _:
                return open(path, "rb")
    except FileNotFoundError:
        raise DataError(missing_file(path)) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be opened: {error.strerror or error}") from error


def create_compressed(path: Path) -> IO[bytes]:
    """Create a file for bytes, and compress them according to its suffix."""
    match path.suffix.lower():
        case ".gz":
            return cast(IO[bytes], gzip.GzipFile(path, "wb", mtime=0))
        case ".xz":
            return lzma.open(path, "wb")
        case ".zst":
            return cast(IO[bytes], _import_zstandard(path).open(path, "wb"))
        case _:
            return open(path, "wb")


def content_name(path: Path) -> Path:
    """Remove the suffix of a compression format: a.tsv.gz becomes a.tsv."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSED else path


def missing_file(path: Path) -> str:
    """Return the message for a file that does not exist, with the most similar name that does."""
    if not path.parent.is_dir():
        return f"{path}: no such file, because there is no folder {path.parent}"
    near = difflib.get_close_matches(path.name, sorted(entry.name for entry in path.parent.iterdir()), n=1)
    return f"{path}: no such file" + (f"; did you mean {path.parent / near[0]}?" if near else "")


def detected_format(first_bytes: bytes) -> str | None:
    """Return the binary format of a file that should be text, from its first bytes; None if it is not recognized."""
    return next((kind for signature, kind in SIGNATURES.items() if first_bytes.startswith(signature)), None)


class _ZstdFile(io.RawIOBase):
    """A .zst file, decompressed frame by frame.

    zstandard's own stream reader does not report a truncated file. This class raises EOFError, as gzip does.
    """

    def __init__(self, path: Path) -> None:
        zstandard = _import_zstandard(path)
        self._decompressor, self._error = zstandard.ZstdDecompressor(), zstandard.ZstdError
        self._file = open(path, "rb")  # noqa: SIM115  # closed by close
        self._frame: Any = None  # the frame that is being decompressed
        self._compressed, self._decompressed = b"", b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._decompressed:
            self._compressed = self._compressed or self._file.read(CHUNK_BYTES)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("the file ends in the middle of a frame")
                return 0
            self._decompress()
        chunk = self._decompressed[: len(buffer)]
        self._decompressed = self._decompressed[len(chunk) :]
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def _decompress(self) -> None:
        self._frame = self._frame or self._decompressor.decompressobj()
        try:
            self._decompressed = self._frame.decompress(self._compressed)
        except self._error as error:
            raise OSError(str(error)) from error
        self._compressed = self._frame.unused_data
        if self._frame.eof:
            self._frame = None

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _import_zstandard(path: Path) -> Any:
    """Import zstandard, an optional dependency because few files need it."""
    try:
        import zstandard
    except ImportError:
        raise UsageError(f"{path}: .zst files need an extra package: pip install 'regard[zst]'") from None
    return zstandard
