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
CHUNK_BYTES = 2**10  # of a .zst file that are decompressed at a time: they may become 32 MB
BUFFER_BYTES = 2**18
# Limits on files whose size does not show how much text they contain: compressed files, pipes, devices.
MAX_LINE_BYTES = 2**27  # the longest line of a usual corpus, text8, has 10^8
MAX_EXPANSION = 200  # text shrinks to a third or a tenth
ALWAYS_ALLOWED_BYTES = 2**24  # whatever the expansion
SIGNATURES = {  # the first bytes of a file -> its format, and what to do
    b"\x1f\x8b": "a gzip file: rename it to end in .gz",
    b"\xfd7zXZ": "an xz file: rename it to end in .xz",
    b"\x28\xb5\x2f\xfd": "a zstd file: rename it to end in .zst",
    b"PK\x03\x04": "a zip archive: extract it first",
    b"PAR1": "a parquet file: rename it to end in .parquet",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
}


def open_decompressed(path: Path) -> IO[bytes]:
    """Open a file as bytes and decompress it according to its suffix; raise DataError if that is impossible."""
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder: give the files in it, for example {path}/train.fr")
        match path.suffix.lower():
            case ".gz":
                return _bounded(path, cast(IO[bytes], gzip.open(path, "rb")))
            case ".xz":
                return _bounded(path, lzma.open(path, "rb"))
            case ".zst":
                return _bounded(path, io.BufferedReader(_ZstdFile(path)))
            case _:
                file = open(path, "rb")  # noqa: SIM115  # closed by the caller
                return file if path.is_file() else _bounded(path, file)
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
    if " " in path.name and not path.suffix.strip(". "):
        return f"{path}: no such file; if this is a text, pipe it: echo TEXT | regard …"
    if not path.parent.is_dir():
        return f"{path}: no such file, because there is no folder {path.parent}"
    near = difflib.get_close_matches(path.name, sorted(entry.name for entry in path.parent.iterdir()), n=1)
    return f"{path}: no such file" + (f"; did you mean {path.parent / near[0]}?" if near else "")


def detected_format(first_bytes: bytes) -> str | None:
    """Return the binary format of a file that should be text, from its first bytes; None if it is not recognized."""
    return next((kind for signature, kind in SIGNATURES.items() if first_bytes.startswith(signature)), None)


def _bounded(path: Path, file: Any) -> IO[bytes]:
    return io.BufferedReader(_BoundedFile(path, file), BUFFER_BYTES)


class _BoundedFile(io.RawIOBase):
    """A stream of text that raises DataError where it grows beyond all reason, before it fills the memory.

    A compressed file of a few megabytes can contain gigabytes (a "bomb"), and /dev/zero has no end.
    """

    def __init__(self, path: Path, file: Any) -> None:
        self._path, self._file = path, file
        is_compressed = path.suffix.lower() in COMPRESSED and path.is_file()
        self._limit = max(ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * path.stat().st_size) if is_compressed else None
        self._read, self._line = 0, 0  # bytes so far, in all and of the current line

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._file.read1(len(buffer))
        self._read += len(chunk)
        newline = chunk.rfind(b"\n")
        self._line = len(chunk) - newline - 1 if newline >= 0 else self._line + len(chunk)
        if self._line > MAX_LINE_BYTES:
            raise DataError(f"{self._path}: a line has more than {MAX_LINE_BYTES // 2**20} MB, so this is not text")
        if self._limit is not None and self._read > self._limit:
            raise DataError(
                f"{self._path}: decompresses to more than {MAX_EXPANSION} times its size, which text does not; "
                f"if it is valid, decompress it first and pass the plain file"
            )
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _ZstdFile(io.RawIOBase):
    """A .zst file, decompressed frame by frame.

    zstandard's own stream reader does not report a truncated file. This class raises EOFError, as gzip does.
    """

    def __init__(self, path: Path) -> None:
        zstandard = _import_zstandard(path)
        self._decompressor, self._error = zstandard.ZstdDecompressor(), zstandard.ZstdError
        self._file = open(path, "rb")  # noqa: SIM115  # closed by close
        self._frame: Any = None  # the frame that is being decompressed
        self._compressed, self._decompressed = b"", io.BytesIO()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not (length := self._decompressed.readinto(buffer)):
            self._compressed = self._compressed or self._file.read(CHUNK_BYTES)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("the file ends in the middle of a frame")
                return 0
            self._decompress()
        return length

    def _decompress(self) -> None:
        self._frame = self._frame or self._decompressor.decompressobj()
        try:
            self._decompressed = io.BytesIO(self._frame.decompress(self._compressed))
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
