"""model.bin of CTranslate2: named arrays one after the other, and names that stand for other names.

Format 6: u32 version, the name of the model's kind, u32 revision, u32 count; of each array its name, u8 dimensions,
u32 sizes, u8 type, u32 bytes, numbers; then u32 count and pairs of names. A text is u16 bytes, the bytes and a NUL.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.errors import ModelError
from regard.machine.lazy_torch import torch
from regard.models.folder.config_file import shortened

VERSION = 6
DTYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")  # by the number in the file
BYTES = {"float32": 4, "int8": 1, "int16": 2, "int32": 4, "float16": 2, "bfloat16": 2}
MAX_ARRAYS = 2**17
MAX_DIMENSIONS = 4
SCALE = "_scale"  # weight_scale beside an int8 weight: w = q / scale


class StoredArray(NamedTuple):
    """Where an array lies in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int  # bytes


class CTranslate2File:
    """The arrays of a file by name; their numbers are read one array at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.arrays: dict[str, StoredArray] = {}
        self.aliases: dict[str, str] = {}
        try:
            self.size = path.stat().st_size
            with open(path, "rb") as file:
                self._read(_Reader(file, self.size))
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{path}: cannot be read: {shortened(error)}") from error
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from error

    def _read(self, reader: _Reader) -> None:
        if (version := reader.number("<I")) != VERSION:
            raise ModelError(f"its format is {version}, and regard reads format {VERSION} of model.bin")
        self.kind, self.revision = reader.text(), reader.number("<I")
        for _ in range(reader.count(MAX_ARRAYS)):
            name = reader.text()
            if name in self.arrays:
                raise ModelError(f"{shortened(repr(name))} occurs twice")
            self.arrays[name] = reader.array(name)
        for _ in range(reader.count(MAX_ARRAYS)):
            alias, name = reader.text(), reader.text()
            if name not in self.arrays or alias in self.arrays:
                raise ModelError(f"{shortened(repr(alias))} stands for {shortened(repr(name))}, which is not there")
            self.aliases[alias] = name
        if reader.offset != self.size:
            raise ModelError(f"{self.size - reader.offset} bytes follow the last name")

    def resolve(self, name: str) -> str:
        """Return the name of the array that a name stands for."""
        return self.aliases.get(name, name)

    def same(self, a: str, b: str) -> bool:
        """Whether two names stand for one array, which is there."""
        return self.resolve(a) == self.resolve(b) in self.arrays

    def scalar(self, name: str) -> int | float:
        """Return the number of an array without dimensions."""
        return _numbers(self._bytes(self.arrays[name]), self.arrays[name]).item()

    def get(self, name: str) -> torch.Tensor:
        """Return a weight, in the type in which it is stored; an int8 or int16 weight in float32."""
        name = self.aliases.get(name, name)
        array = self.arrays[name]
        weight = _numbers(self._bytes(array), array)
        scale_name = self.aliases.get(name + SCALE, name + SCALE)
        if array.dtype not in ("int8", "int16") or not array.shape:
            return weight
        if scale_name not in self.arrays:
            raise ModelError(f"{self.path}: {shortened(repr(name))} has no scale")
        scale = self.arrays[scale_name]
        if scale.dtype != "float32" or scale.shape not in ((), array.shape[:1]):
            raise ModelError(f"{self.path}: the scale of {shortened(repr(name))} must have one number for each row")
        numbers = _numbers(self._bytes(scale), scale)
        if not bool(((numbers > 0) & numbers.isfinite()).all()):
            raise ModelError(f"{self.path}: a scale of {shortened(repr(name))} is not a positive number")
        return weight.float() / numbers.reshape(-1, *[1] * (weight.dim() - 1))

    def _bytes(self, array: StoredArray) -> bytearray:
        with open(self.path, "rb") as file:
            file.seek(array.start)
            return bytearray(file.read(array.size))


class _Reader:
    """Reads the file in order, within its size."""

    def __init__(self, file: Any, size: int) -> None:
        self.file, self.size, self.offset = file, size, 0

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def count(self, most: int) -> int:
        count = self.number("<I")
        if count > most:
            raise ModelError(f"it has {count} entries, and at most {most} are expected")
        return count

    def take(self, count: int) -> bytes:
        self._advance(count)
        content: bytes = self.file.read(count)
        return content

    def text(self) -> str:
        content = self.take(self.number("<H"))
        if content[-1:] != b"\0":
            raise ModelError(f"the text before byte {self.offset} has no end")
        return content[:-1].decode()

    def array(self, name: str) -> StoredArray:
        dimensions = self.number("<B")
        if dimensions > MAX_DIMENSIONS:
            raise ModelError(f"{shortened(repr(name))} has {dimensions} dimensions")
        shape = tuple(self.number("<I") for _ in range(dimensions))
        code, size = self.number("<B"), self.number("<I")
        if code >= len(DTYPES):
            raise ModelError(f"{shortened(repr(name))} has the unknown type {code}")
        count = 1
        for length in shape:
            count *= length
        if size != count * BYTES[DTYPES[code]]:
            raise ModelError(f"{shortened(repr(name))} has {size} bytes, which its shape {shape} does not need")
        start = self.offset
        self._advance(size)
        self.file.seek(size, 1)
        return StoredArray(DTYPES[code], shape, start, size)

    def _advance(self, count: int) -> None:
        if self.offset + count > self.size:
            raise ModelError(f"it is cut off at byte {self.size}")
        self.offset += count


def _numbers(content: bytearray, array: StoredArray) -> torch.Tensor:
    if not content:
        return torch.empty(array.shape, dtype=getattr(torch, array.dtype))
    return torch.frombuffer(content, dtype=getattr(torch, array.dtype)).reshape(array.shape)


def write_file(
    path: Path, kind: str, revision: int, arrays: Iterable[tuple[str, torch.Tensor]], aliases: Mapping[str, str]
) -> None:
    """Write model.bin; the arrays may come one at a time."""
    with open(path, "wb") as file:
        file.write(struct.pack("<I", VERSION) + _text(kind) + struct.pack("<I", revision))
        start, count = file.tell(), 0
        file.write(struct.pack("<I", 0))
        for name, array in arrays:
            count += 1
            dtype = str(array.dtype).removeprefix("torch.")
            shape = struct.pack(f"<B{array.dim()}I", array.dim(), *array.shape)
            content = array.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data
            file.write(_text(name) + shape + struct.pack("<BI", DTYPES.index(dtype), len(content)))
            file.write(content)
        file.write(struct.pack("<I", len(aliases)))
        for alias, name in aliases.items():
            file.write(_text(alias) + _text(name))
        file.seek(start)
        file.write(struct.pack("<I", count))


def quantized(name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return a matrix as int8 with the scale of each row, 127 divided by its largest number."""
    largest = weight.float().abs().amax(1)
    scale = 127 / torch.where(largest == 0, 127.0, largest)
    rounded = (weight.float() * scale[:, None]).round().to(torch.int8)
    return {name: rounded, name + SCALE: scale}


def _text(text: str) -> bytes:
    content = text.encode() + b"\0"
    return struct.pack("<H", len(content)) + content


def scalar(value: int | float, dtype: str) -> torch.Tensor:
    """Return a number as an array without dimensions."""
    return torch.from_numpy(np.array(value, dtype=dtype))
