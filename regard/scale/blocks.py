"""Blocks of input lines and rows of results, and their bytes in pipes and in the parts of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from regard.errors import DataError
from regard.text.files.compressed import open_decompressed
from regard.text.files.input_windows import FIRST_LINES, line_windows

ERROR_SPACE = str.maketrans("\t\r\n", "   ")  # an error message is one field of a row


@dataclass(frozen=True)
class Block:
    """Successive lines of one file, which are translated together."""

    number: int  # counted over all files of the job
    file: Path
    first: int  # number of lines in front of it in its file
    lines: Sequence[bytes]

    def halves(self) -> tuple[Block, Block]:
        """Cut the block in two."""
        middle = len(self.lines) // 2
        return (
            Block(self.number, self.file, self.first, self.lines[:middle]),
            Block(self.number, self.file, self.first + middle, self.lines[middle:]),
        )


@dataclass(frozen=True)
class Row:
    """What became of one line; `output` has several lines if several translations were asked for."""

    number: int  # of the line in its file, from 1
    error: str  # empty if all is well
    output: str


def read_blocks(file: Path, batch: int, *, number: int = 0) -> Iterator[Block]:
    """Yield the blocks of a file: the windows in which `regard translate` reads it, so its batches are the same."""
    first = 0
    with open_decompressed(file) as stream:
        try:
            for lines in line_windows(stream, min(batch, FIRST_LINES)):
                yield Block(number, file, first, lines)
                number, first = number + 1, first + len(lines)
        except DataError as error:
            raise DataError(f"{file}, after line {first}: {error}") from error


def encode_block(block: Block) -> bytes:
    """Return the request of a block to a worker: the position and number of its lines, and the lines."""
    return b"".join([b"%d %d\n" % (block.first, len(block.lines)), *(line + b"\n" for line in block.lines)])


def decode_block(stream: IO[bytes]) -> tuple[int, list[bytes]] | None:
    """Read a request; None at the end of the stream."""
    header = stream.readline()
    if not header.endswith(b"\n"):
        return None
    first, count = map(int, header.split())
    lines = [stream.readline() for _ in range(count)]
    return (first, [line[:-1] for line in lines]) if all(line.endswith(b"\n") for line in lines) else None


def encode_rows(rows: Sequence[Row]) -> bytes:
    """Return rows as tab-separated text: line number, error message, output; one row for each line of the output."""
    return "".join(
        f"{row.number}\t{row.error.translate(ERROR_SPACE)}\t{line}\n" for row in rows for line in row.output.split("\n")
    ).encode("utf-8", "surrogatepass")


def decode_rows(content: bytes) -> list[Row] | None:
    """Return the rows of a part; None if it is damaged."""
    rows: list[Row] = []
    try:
        *records, rest = content.decode("utf-8", "surrogatepass").split("\n")
        for record in records:
            number, error, output = record.split("\t", maxsplit=2)
            if rows and rows[-1].number == int(number):
                rows[-1] = Row(rows[-1].number, error, f"{rows[-1].output}\n{output}")
            else:
                rows.append(Row(int(number), error, output))
    except ValueError:  # also UnicodeDecodeError
        return None
    return None if rest else rows


def belongs_to(rows: Sequence[Row] | None, block: Block) -> bool:
    """Tell whether rows are those of a block's lines, one for each in their order."""
    numbers = range(block.first + 1, block.first + 1 + len(block.lines))
    return rows is not None and [row.number for row in rows] == [*numbers]
