"""GGUF files of llama.cpp: settings by name, then weights by name, whose shapes are listed from the last dimension.

Version 3: "GGUF", u32 version, u64 weights, u64 settings; each setting is a name, a u32 type and a value; each weight a
name, u32 dimensions, u64 sizes, u32 type, u64 offset; the numbers begin at the next multiple of the alignment. A text
is u64 bytes and the bytes.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.errors import ModelError
from regard.interop.files.gguf_blocks import QUANTIZED
from regard.machine.lazy_torch import torch
from regard.models.folder.config_file import shortened

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
MAX_SETTINGS, MAX_WEIGHTS, MAX_DIMENSIONS = 4096, 2**17, 4
MAX_TEXT_BYTES = 2**20
MAX_LIST = 2**22
# Types of settings: the form of a number, or None for texts and lists.
FORMS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
TEXT, LIST = 8, 9
# Types of weights with one number each, by their number in the file: our name and their bytes.
PLAIN = {0: ("F32", 4), 1: ("F16", 2), 30: ("BF16", 2)}
TORCH_TYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class StoredWeight(NamedTuple):
    """Where a weight lies in the file."""

    kind: int
    shape: tuple[int, ...]
    start: int
    size: int  # bytes


class GGUFFile:
    """The settings of a file, and its weights, read one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings: dict[str, Any] = {}
        self.weights: dict[str, StoredWeight] = {}
        try:
            with open(path, "rb") as file:
                if not path.stat().st_size:
                    raise ModelError("it is empty")
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._read()
        except (OSError, UnicodeDecodeError, struct.error) as error:
            raise ModelError(f"{path}: cannot be read: {shortened(error)}") from error
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from error

    def _read(self) -> None:
        reader = _Reader(self._mapped)
        if reader.take(4) != MAGIC:
            raise ModelError("it is no GGUF file")
        version = reader.number("<I")
        if version not in VERSIONS:
            raise ModelError(f"its version is {version}, and regard reads GGUF {' and '.join(map(str, VERSIONS))}")
        weights, settings = reader.count(MAX_WEIGHTS), reader.count(MAX_SETTINGS)
        for _ in range(settings):
            name = reader.text()
            if name in self.settings:
                raise ModelError(f"the setting {shortened(repr(name))} occurs twice")
            self.settings[name] = reader.value(reader.number("<I"))
        listed = [reader.weight() for _ in range(weights)]
        alignment = self.settings.get("general.alignment", ALIGNMENT)
        if type(alignment) is not int or not 1 <= alignment <= 2**16:
            raise ModelError(f"general.alignment is {shortened(alignment)}")
        start = -(-reader.place // alignment) * alignment
        for name, kind, shape, offset in listed:
            if name in self.weights:
                raise ModelError(f"the weight {shortened(repr(name))} occurs twice")
            size = _size(name, kind, shape)
            if offset % alignment or start + offset + size > len(self._mapped):
                raise ModelError(f"the weight {shortened(repr(name))} lies outside of the file, or is not aligned")
            self.weights[name] = StoredWeight(kind, shape, start + offset, size)

    def dtype(self, name: str) -> str:
        """Return the type of a weight, such as "F16" or "Q4_K"."""
        kind = self.weights[name].kind
        return PLAIN[kind][0] if kind in PLAIN else QUANTIZED[kind][0]

    def get(self, name: str) -> torch.Tensor:
        """Return a weight in the type in which it is stored; a quantized one in float32."""
        weight = self.weights[name]
        content = bytearray(self._mapped[weight.start : weight.start + weight.size])
        if weight.kind in PLAIN:
            dtype = getattr(torch, TORCH_TYPES[PLAIN[weight.kind][0]])
            numbers = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
            return numbers.reshape(weight.shape)
        _, _, size, dequantize = QUANTIZED[weight.kind]
        blocks = np.frombuffer(content, dtype=np.uint8).reshape(-1, size)
        return torch.from_numpy(dequantize(blocks).astype(np.float32, copy=False)).reshape(weight.shape)


def _size(name: str, kind: int, shape: tuple[int, ...]) -> int:
    """Return the bytes of a weight; ModelError for a type that regard does not read."""
    count = 1
    for length in shape:
        count *= length
    if kind in PLAIN:
        return count * PLAIN[kind][1]
    if kind not in QUANTIZED:
        known = ", ".join([*TORCH_TYPES, *(entry[0] for entry in QUANTIZED.values())])
        raise ModelError(f"the weight {shortened(repr(name))} has the type {kind}, and regard reads {known}")
    _, numbers, size, _ = QUANTIZED[kind]
    if not shape or shape[-1] % numbers:
        raise ModelError(f"the weight {shortened(repr(name))} of shape {shape} has no blocks of {numbers} numbers")
    return count // numbers * size


class _Reader:
    """Reads the header in order, within the size of the file."""

    def __init__(self, data: Any) -> None:
        self.data, self.place = data, 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.place:
            raise ModelError(f"it is cut off at byte {len(self.data)}")
        self.place += count
        return bytes(self.data[self.place - count : self.place])

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self, most: int) -> int:
        count: int = self.number("<Q")
        if count > most:
            raise ModelError(f"it has {count} entries where at most {most} are expected")
        return count

    def text(self) -> str:
        return self.take(self.count(MAX_TEXT_BYTES)).decode()

    def value(self, kind: int) -> Any:
        if kind == TEXT:
            return self.text()
        if kind == LIST:
            inner, count = self.number("<I"), self.count(MAX_LIST)
            if inner == TEXT:
                return [self.text() for _ in range(count)]
            if inner not in FORMS:
                raise ModelError(f"it has a list of the unknown type {inner}")
            form = f"<{count}{FORMS[inner][1]}"
            return list(struct.unpack(form, self.take(struct.calcsize(form))))
        if kind not in FORMS:
            raise ModelError(f"a setting of the type {kind}")
        return self.number(FORMS[kind])

    def weight(self) -> tuple[str, int, tuple[int, ...], int]:
        name, dimensions = self.text(), self.number("<I")
        if dimensions > MAX_DIMENSIONS:
            raise ModelError(f"the weight {shortened(repr(name))} has {dimensions} dimensions")
        shape = tuple(self.number("<Q") for _ in range(dimensions))[::-1]
        return name, self.number("<I"), shape, self.number("<Q")


def write_gguf(path: Path, settings: Mapping[str, Any], weights: Mapping[str, tuple[int, np.ndarray]]) -> None:
    """Write a file; a weight is its type and its rows, in bytes if they are quantized."""
    header = MAGIC + struct.pack("<IQQ", VERSIONS[-1], len(weights), len(settings))
    for name, value in settings.items():
        header += _text(name) + _setting(value)
    offset, starts = 0, {}
    for name, (kind, rows) in weights.items():
        shape = list(rows.shape)
        if kind in QUANTIZED:
            shape[-1] = shape[-1] // QUANTIZED[kind][2] * QUANTIZED[kind][1]
        header += _text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1])
        header += struct.pack("<IQ", kind, offset)
        starts[name] = offset
        offset += -(-rows.nbytes // ALIGNMENT) * ALIGNMENT
    start = -(-len(header) // ALIGNMENT) * ALIGNMENT
    with open(path, "wb") as file:
        file.write(header)
        for name, (_, rows) in weights.items():
            file.seek(start + starts[name])
            file.write(np.ascontiguousarray(rows).data)
        file.truncate(start + offset)


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _setting(value: Any) -> bytes:
    """Return the type and the bytes of a setting; whole numbers are u32, as llama.cpp expects them."""
    kind = _kind(value)
    if kind != LIST:
        return struct.pack("<I", kind) + _number(kind, value)
    inner = 5 if value and type(value[0]) is int else _kind(value[0])
    header = struct.pack("<IIQ", LIST, inner, len(value))
    return header + b"".join(_number(inner, each) for each in value)


def _kind(value: Any) -> int:
    if isinstance(value, bool):
        return 7
    if isinstance(value, int):
        return 4
    if isinstance(value, float):
        return 6
    return TEXT if isinstance(value, str) else LIST


def _number(kind: int, value: Any) -> bytes:
    return _text(value) if kind == TEXT else struct.pack(FORMS[kind], value)
