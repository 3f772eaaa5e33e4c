"""The weights and settings of a Marian model: `.npz`, as Marian trains it, and `.bin`, as it is deployed.

An `.npz` is a zip of arrays. A `.bin` begins with two numbers of 64 bits, the version and the number n of arrays; then
n times length of the name, type, rank and bytes; then the names, the shapes, padding and the numbers. Both have the
settings as an array of bytes. Matrices are (inputs, outputs), and vectors are matrices of one row.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.errors import ModelError
from regard.interop.files.flat_yaml import read_settings
from regard.machine.lazy_torch import torch
from regard.models.folder.config_file import shortened

SETTINGS = "special:model.yml"
MAX_ARRAYS = 2**14
MAX_NAME_BYTES = 256
MAX_BYTES = 2**34
MAX_SETTINGS_BYTES = 2**18
MAX_RANK = 4
NPY_TYPES = {"<f4": "F32", "<f2": "F16", "|i1": "I8"}
FLOAT32, FLOAT16, INT8, INTGEMM8 = 0x404, 0x402, 0x101, 0x4101
NAMES = {FLOAT32: "F32", FLOAT16: "F16", INT8: "I8", INTGEMM8: "intgemm8"}
INTGEMM16, CPU_SPECIFIC = 0x4102, 0x3000  # bits of formats that only one kind of CPU reads


class Array(NamedTuple):
    """Where an array lies in the file."""

    kind: str  # F32, F16, I8, or intgemm8: 8-bit numbers q and one float m behind them; the weight is q / m
    shape: tuple[int, ...]
    offset: int
    size: int  # bytes


class MarianFile:
    """Names, shapes and settings of a model; weights are read one at a time, as float32 or float16."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file() or path.is_symlink():
            raise ModelError(f"{path}: not a regular file")
        if path.stat().st_size > MAX_BYTES:
            raise ModelError(f"{path}: larger than {MAX_BYTES} bytes")
        with path.open("rb") as file:
            start = file.read(4)
        self._archive: zipfile.ZipFile | None = None
        if start[:2] == b"PK":
            self.arrays = self._list_npz()
        else:
            self.arrays = self._list_bin()
        settings = self.arrays.pop(SETTINGS, None)
        if settings is None or settings.kind != "I8" or settings.size > MAX_SETTINGS_BYTES:
            raise ModelError(f"{path}: there is no {SETTINGS}, so this is no model of Marian")
        content = self._read(SETTINGS, settings).rstrip(b"\0")
        try:
            self.settings_text = text = content.decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"{path}: {SETTINGS} is no text") from error
        self.settings = read_settings(text, f"{path}: {SETTINGS}")

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: array.shape for name, array in self.arrays.items()}

    @property
    def dtypes(self) -> dict[str, str]:
        return {name: array.kind for name, array in self.arrays.items()}

    def get(self, name: str) -> torch.Tensor:
        """Return a weight; 8-bit numbers of intgemm become the floats that they stand for."""
        array = self.arrays[name]
        content = bytearray(self._read(name, array))
        if array.kind == "intgemm8":
            count = math.prod(array.shape)
            (scale,) = struct.unpack_from("<f", content, count)
            if not math.isfinite(scale) or scale <= 0:
                raise ModelError(f"{self.path}: {shortened(repr(name))} has the scale {scale}")
            numbers = torch.frombuffer(content, dtype=torch.int8, count=count).float() / scale
            if name.endswith("Wemb"):
                return numbers.view(array.shape)
            return numbers.view(array.shape[::-1]).T  # it lies as (outputs, inputs)
        dtypes = {"F32": torch.float32, "F16": torch.float16, "I8": torch.int8}
        return torch.frombuffer(content, dtype=dtypes[array.kind], count=math.prod(array.shape)).view(array.shape)

    def _read(self, name: str, array: Array) -> bytes:
        try:
            if self._archive is not None:
                content = self._archive.read(f"{name}.npy")[array.offset :]
            else:
                with self.path.open("rb") as file:
                    file.seek(array.offset)
                    content = file.read(array.size)
        except (OSError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
            raise ModelError(f"{self.path}: {shortened(repr(name))} cannot be read: {shortened(error)}") from error
        if len(content) != array.size:
            raise ModelError(f"{self.path}: {shortened(repr(name))} is truncated")
        return content

    def _list_npz(self) -> dict[str, Array]:
        try:
            self._archive = zipfile.ZipFile(self.path)
            entries = self._archive.infolist()
            if len(entries) > MAX_ARRAYS or sum(entry.file_size for entry in entries) > MAX_BYTES:
                raise ModelError(f"{self.path}: too many arrays, or too large")
            arrays = {}
            for entry in entries:
                name = entry.filename.removesuffix(".npy")
                if name == entry.filename or name in arrays:
                    raise ModelError(f"{self.path}: {shortened(repr(entry.filename))} is no array, or there twice")
                arrays[name] = self._npy(entry)
        except (OSError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise ModelError(f"{self.path}: not an archive of arrays: {shortened(error)}") from error
        return arrays

    def _npy(self, entry: zipfile.ZipInfo) -> Array:
        """Return shape and type of an array, from its header alone."""
        assert self._archive is not None
        with self._archive.open(entry) as file:
            header = io.BytesIO(file.read(min(entry.file_size, 2**12)))
        try:
            version = np.lib.format.read_magic(header)
            if version != (1, 0):
                raise ValueError(f"version {version}")
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(header)
        except ValueError as error:
            raise ModelError(f"{self.path}: {shortened(repr(entry.filename))}: {shortened(error)}") from error
        kind, size = NPY_TYPES.get(dtype.str), math.prod(shape) * dtype.itemsize
        if kind is None or fortran or len(shape) > MAX_RANK or header.tell() + size != entry.file_size:
            raise ModelError(f"{self.path}: {shortened(repr(entry.filename))} is an array of a kind that is not read")
        return Array(kind, tuple(map(int, shape)), header.tell(), size)

    def _list_bin(self) -> dict[str, Array]:
        try:
            return self._read_bin_header(self.path.stat().st_size)
        except (struct.error, UnicodeDecodeError) as error:
            raise ModelError(f"{self.path}: not a model of Marian: its header is damaged") from error

    def _read_bin_header(self, total: int) -> dict[str, Array]:
        with self.path.open("rb") as file:
            version, count = struct.unpack("<QQ", file.read(16))
            if version != 1 or count > MAX_ARRAYS:
                raise ModelError(f"{self.path}: not a model of Marian, neither .npz nor .bin of version 1")
            heads = [struct.unpack("<QQQQ", file.read(32)) for _ in range(count)]
            if any(length > MAX_NAME_BYTES or rank > MAX_RANK for length, _, rank, _ in heads):
                raise ModelError(f"{self.path}: a name or a shape is too long")
            names = [file.read(length).rstrip(b"\0").decode() for length, _, _, _ in heads]
            shapes = [struct.unpack(f"<{rank}i", file.read(4 * rank)) for _, _, rank, _ in heads]
            (padding,) = struct.unpack("<Q", file.read(8))
            offset = file.tell() + padding
        arrays = {}
        for name, shape, (_, kind, _, size) in zip(names, shapes, heads, strict=True):
            if kind not in NAMES:
                why = "of a format that only one kind of CPU reads" if kind & CPU_SPECIFIC else "of an unknown type"
                why = "of 16-bit integers, which regard does not read" if kind == INTGEMM16 else why
                raise ModelError(f"{self.path}: {shortened(repr(name))} is {why} ({kind:#x})")
            width = {FLOAT32: 4, FLOAT16: 2}.get(kind, 1)
            least = math.prod(shape) * width + (4 if kind == INTGEMM8 else 0)
            if name in arrays or min(shape, default=1) < 0 or size < least or offset + size > total:
                raise ModelError(f"{self.path}: {shortened(repr(name))} is there twice, or outside the file")
            arrays[name] = Array(NAMES[kind], shape, offset, size)
            offset += size
        return arrays


def is_marian_file(path: Path) -> bool:
    """Whether a file begins as a model of Marian: a zip, or a header of version 1."""
    if not path.is_file() or path.is_symlink():
        return False
    with path.open("rb") as file:
        start = file.read(16)
    return start[:4] == b"PK\x03\x04" or (len(start) == 16 and struct.unpack("<QQ", start)[0] == 1)
