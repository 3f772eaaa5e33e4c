"""Texts from the columns of a .parquet file, some thousand rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.errors import DataError, UsageError, unknown_name
from regard.text.files.compressed import missing_file
from regard.text.files.lines import NOT_UTF8, NUL, Fault

ROWS_AT_ONCE = 8_192


def parquet_texts(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str | Fault]]]:
    """The number of each row, from 1, and its texts in these columns; a missing value is an empty text.

    A column within a column is named with a dot: translation.fr.
    """
    pyarrow = _pyarrow(path)
    if not path.exists():
        raise DataError(missing_file(path))
    done = 0
    try:
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            _check_columns(path, file, columns)
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=list(columns), use_threads=False):
                sides = [_bytes_of(pyarrow, _column(batch, name)) for name in columns]
                for row, values in enumerate(zip(*sides, strict=True), start=done + 1):
                    named = zip(columns, values, strict=True)
                    yield row, [_text(path, row, name, value) for name, value in named]
                done += len(batch)
    except (pyarrow.ArrowException, OSError, EOFError, UnicodeError) as error:  # names of columns are text too
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path}: damaged or no parquet file, after row {done} ({reason}): download it again"
        ) from error


def _check_columns(path: Path, file: Any, columns: Sequence[str]) -> None:
    there = {file.schema.column(i).path: file.schema.column(i) for i in range(len(file.schema))}
    for name in columns:
        if name not in there:
            raise DataError(f"{path}: {unknown_name('column', name, tuple(there))}")
        held = "lists" if there[name].max_repetition_level else there[name].physical_type
        if held != "BYTE_ARRAY":  # text, or bytes that may be
            raise DataError(f"{path}: column {name!r} holds {held}, not text")


def _column(batch: Any, name: str) -> Any:
    """A column of a batch of rows; of one with a dot, the part within."""
    first, *inner = name.split(".")
    if name in batch.schema.names:
        first, inner = name, []
    column = batch.column(first)
    for part in inner:
        column = column.field(part)
    return column


def _bytes_of(pyarrow: Any, column: Any) -> list[bytes | None]:
    """The values as bytes, for parquet does not promise that its texts are UTF-8."""
    if isinstance(column, pyarrow.DictionaryArray):
        column = column.dictionary_decode()
    return column.cast(pyarrow.large_binary()).to_pylist()


def _text(path: Path, row: int, name: str, value: bytes | None) -> str | Fault:
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError as error:
        kind, message, shown = NOT_UTF8, f"{name!r} is not UTF-8 ({error.reason})", repr(error.object[:60])
    else:
        if "\0" not in text:
            return text
        kind, message, shown = NUL, f"{name!r} holds a NUL character", text[:60]
    return Fault(path, row, kind, f"{path}:{row}: {message}", shown)


def _pyarrow(path: Path) -> Any:
    """The package that reads parquet; an extra, for it is large."""
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError:
        raise UsageError(f"{path}: .parquet files need another package: pip install 'regard[parquet]'") from None
    return pyarrow
