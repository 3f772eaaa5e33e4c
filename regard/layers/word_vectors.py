"""Word vectors in the text files of word2vec and GloVe: read, copied into an embedding table, and written.

Mikolov et al. 2013, Pennington et al. 2014; A2.
"""

from __future__ import annotations

import warnings
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from regard.errors import DataError, UsageError, unknown_name
from regard.layers.embedding import Embedding
from regard.text.files.compressed import open_decompressed

VectorFormat = Literal["word2vec", "glove"]


def read_vectors(path: str | Path, *, limit: int | None = None) -> tuple[list[str], Tensor]:
    """Read the words of a vector file and their matrix (words, width); word2vec or GloVe text, also gzipped.

    A2. The first line of a word2vec file holds two whole numbers, count and width; a GloVe file has no such line.
    `limit` reads the first words only (files list frequent words first). For a repeated word the first row counts, and
    a warning gives the number of such rows.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, or None for all, got {limit}")
    path = Path(path)
    words: dict[str, None] = {}
    numbers = array("f")
    repeated = 0
    for row in _rows(path):
        if row.word in words:
            repeated += 1
            continue
        words[row.word] = None
        numbers.frombytes(_parse(path, row).tobytes())
        if len(words) == limit:
            break
    if repeated:
        text = f"{path}: {repeated} rows repeat a word; the first row of each word is kept"
        warnings.warn(text, stacklevel=2)
    return list(words), torch.tensor(np.frombuffer(numbers, dtype=np.float32)).view(len(words), -1)


def write_vectors(
    path: str | Path, words: Sequence[str], vectors: Tensor, *, format: VectorFormat = "word2vec"
) -> Path:
    """Write words and their vectors (words, width) as a text file of word2vec, or of GloVe, which has no first line.

    A2. The numbers have nine digits, so `read_vectors` returns the same float32.
    """
    path = Path(path)
    if format not in get_args(VectorFormat):
        raise UsageError(unknown_name("format", format, get_args(VectorFormat)))
    if vectors.dim() != 2 or len(vectors) != len(words):
        raise ValueError(f"vectors must be ({len(words)}, width), one row for each word, got {tuple(vectors.shape)}")
    try:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            if format == "word2vec":
                file.write(f"{len(words)} {vectors.shape[1]}\n")
            for word, row in zip(words, vectors.float().cpu(), strict=True):
                file.write(f"{word} {' '.join(f'{number:.9g}' for number in row.tolist())}\n")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error
    return path


@dataclass(frozen=True)
class FillReport:
    """The result of fill_from_vectors: how many tokens were found, which were missing, and the width of the vectors."""

    found: int
    missing: tuple[str, ...]
    dim: int


def fill_from_vectors(embedding: Embedding, tokens: Sequence[str], path: str | Path) -> FillReport:
    """Copy vectors from a word2vec or GloVe text file into the rows of `tokens`, token i being row i.

    A2. A token takes the vector of the identical word, else of its lower-cased form. All other rows, and the padding
    row, stay unchanged. Numbers of words that are no tokens are not parsed, so large files are read quickly.
    """
    path = Path(path)
    if len(tokens) != embedding.vocabulary:
        raise ValueError(f"tokens must name each of the table's {embedding.vocabulary} rows, got {len(tokens)} tokens")
    rows_to_fill = {row: token for row, token in enumerate(tokens) if row != embedding.pad_id}
    wanted = set(rows_to_fill.values()) | {token.lower() for token in rows_to_fill.values()}
    vectors: dict[str, np.ndarray] = {}
    for row in _rows(path):
        if len(row.numbers) != embedding.dim:
            raise DataError(
                f"{path}: its vectors are {len(row.numbers)} wide, but the embedding's dim is {embedding.dim}"
            )
        if row.word in wanted and row.word not in vectors:
            vectors[row.word] = _parse(path, row)

    missing = []
    with torch.no_grad():  # after the whole file was read, so that a damaged file leaves the table unchanged
        for index, token in rows_to_fill.items():
            vector = vectors.get(token, vectors.get(token.lower()))
            if vector is None:
                missing.append(token)
            else:
                embedding.weight[index] = torch.from_numpy(vector)
    return FillReport(len(rows_to_fill) - len(missing), tuple(missing), embedding.dim)


class _Row(NamedTuple):
    line: int
    word: str
    numbers: list[str]  # not parsed yet


def _rows(path: Path) -> Iterator[_Row]:
    """Yield the rows of a vector file, all with the same number of columns."""
    promised, dim, count = None, 0, 0
    for line, text in _lines(path):
        fields = text.split(" ")  # at blanks only: words may contain other white space
        if line == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
            promised, dim = int(fields[0]), int(fields[1])
            continue
        dim = dim or len(fields) - 1
        # Some words of the large GloVe files contain a blank (". . ."), so the numbers are the last columns. A number
        # within the word is one column too many.
        extra = fields[1:-dim] if dim else []
        if len(fields) < dim + 1 or dim == 0 or any(_is_number(field) for field in extra):
            expected = f"a word and {dim} numbers" if dim else "a word and its numbers"
            raise DataError(f"{path}, line {line}: expected {expected}, got {len(fields)} columns")
        count += 1
        yield _Row(line, " ".join(fields[:-dim]), fields[-dim:])
    if count == 0:
        raise DataError(f"{path}: no word vectors in this file; expected lines of a word and its numbers")
    if promised not in (None, count):
        raise DataError(f"{path}: its first line promises {promised} words, but {count} follow; is it cut short?")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a UTF-8 file, gzipped or not, without line ends."""
    line = 0
    try:
        with open_decompressed(path) as file:
            for line, raw in enumerate(file, start=1):
                yield line, raw.decode("utf-8").rstrip(" \r\n")  # word2vec leaves a blank at the end
    except UnicodeDecodeError as error:
        reason = "not UTF-8 text; word2vec's binary format is not read, save the vectors as text"
        raise DataError(f"{path}, line {line}: {reason}") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"{path}, after line {line}: cannot be read: {reason}") from error


def _parse(path: Path, row: _Row) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):
            vector = np.array([float(number) for number in row.numbers], dtype=np.float32)
    except ValueError as error:
        bad = next(number for number in row.numbers if not _is_number(number))
        raise DataError(f"{path}, line {row.line}: {bad!r} is not a number") from error
    if not np.isfinite(vector).all():
        bad = row.numbers[int(np.flatnonzero(~np.isfinite(vector))[0])]
        raise DataError(f"{path}, line {row.line}: {bad!r} is not a finite number")
    return vector


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
