"""Read texts from the columns of a .parquet file, a few thousand rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.errors import DataError, UsageError, unknown_name
from regard.text.files.column_names import columns_option, suggested_keys
from regard.text.files.compressed import ALWAYS_ALLOWED_BYTES, MAX_EXPANSION, missing_file
from regard.text.files.lines import NOT_UTF8, NUL, Fault

BATCH_ROWS = 8_192


def parquet_texts(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str | Fault]]]:
    """Yield the number of each row, from 1, and its texts in these columns; a missing value is an empty text.

    A dot names a nested column: translation.fr.
    """
    pyarrow = _import_pyarrow(path)
    if not path.exists():
        raise DataError(missing_file(path))
    rows_read, bytes_read = 0, 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check_columns(path, file, columns)
        # As dictionaries, so that the length of a text that many rows share is known before there are many copies.
        options = {"page_checksum_verification": True, "read_dictionary": list(columns)}
        with pyarrow.parquet.ParquetFile(path, **options) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(columns), use_threads=False):
                texts = [_column(batch, name) for name in columns]
                bytes_read += sum(_text_bytes(pyarrow, column) for column in texts)
                if bytes_read > max(ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * path.stat().st_size):
                    raise DataError(f"{path}: contains more than {MAX_EXPANSION} times its size, which text does not")
                sides = [_as_bytes(pyarrow, column) for column in texts]
                for row, values in enumerate(zip(*sides, strict=True), start=rows_read + 1):
                    cells = zip(columns, values, strict=True)
                    yield row, [_decoded(path, row, name, value) for name, value in cells]
                rows_read += len(batch)
    except (pyarrow.ArrowException, OSError, EOFError, UnicodeError) as error:  # column names may be bad UTF-8, too
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path}: damaged after row {rows_read}, or not a parquet file ({reason}): download it again"
        ) from error


def _check_columns(path: Path, file: Any, columns: Sequence[str]) -> None:
    schema = {file.schema.column(i).path: file.schema.column(i) for i in range(len(file.schema))}
    for name in columns:
        if name not in schema:
            texts = [key for key, column in schema.items() if column.physical_type == "BYTE_ARRAY"]
            pair = suggested_keys(texts) if len(columns) == 2 else None
            hint = f". Choose the source and the target, for example with {columns_option(pair)}" if pair else ""
            raise DataError(f"{path}: {unknown_name('column', name, tuple(schema))}{hint}")
        content = "lists" if schema[name].max_repetition_level else schema[name].physical_type
        if content != "BYTE_ARRAY":  # the type of text, and of bytes that may be text
            raise DataError(f"{path}: column {name!r} contains {content}, not text")


def _column(batch: Any, name: str) -> Any:
    """Return a column of a batch of rows; a dot in the name leads to a nested column."""
    first, *inner = name.split(".")
    if name in batch.schema.names:
        first, inner = name, []
    column = batch.column(first)
    for part in inner:
        column = column.field(part)
    return column


def _text_bytes(pyarrow: Any, column: Any) -> int:
    """Return the bytes of all texts of a column, of which a dictionary stores each one once."""
    if not isinstance(column, pyarrow.DictionaryArray):
        return column.nbytes
    lengths = pyarrow.compute.binary_length(column.dictionary)
    return pyarrow.compute.sum(lengths.take(column.indices).cast(pyarrow.int64())).as_py() or 0


def _as_bytes(pyarrow: Any, column: Any) -> list[bytes | None]:
    """Return the values as bytes, because parquet does not guarantee that its texts are UTF-8."""
    if isinstance(column, pyarrow.DictionaryArray):
        column = column.dictionary_decode()
    return column.cast(pyarrow.large_binary()).to_pylist()


def _decoded(path: Path, row: int, name: str, value: bytes | None) -> str | Fault:
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError as error:
        kind, message, excerpt = NOT_UTF8, f"{name!r} is not UTF-8 ({error.reason})", repr(error.object[:60])
    else:
        if "\0" not in text:
            return text
        kind, message, excerpt = NUL, f"{name!r} contains a NUL character", text[:60]
    return Fault(path, row, kind, f"{path}:{row}: {message}", excerpt)


def _import_pyarrow(path: Path) -> Any:
    """Import pyarrow, an optional dependency because it is large."""
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.compute  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError:
        raise UsageError(f"{path}: .parquet files need an extra package: pip install 'regard[parquet]'") from None
    return pyarrow
