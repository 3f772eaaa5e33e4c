"""Weights that `torch.save` wrote, such as pytorch_model.bin: a zip archive, or the format before torch 1.6.

Only descriptions of tensors come out of the pickle inside (torch_opcodes.py). Their numbers are read from the file.
"""

from __future__ import annotations

import mmap
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.interop.files.torch_opcodes import Storage, StoredTensor, read_program
from regard.machine.lazy_torch import torch
from regard.models.folder.config_file import shortened

MAGIC = 0x1950A86A20F9469CFC6C  # of the old format
VERSION = 1001
# The kind of storage -> its name in safetensors, its name in torch, and the bytes of a number.
KINDS = {
    "FloatStorage": ("F32", "float32", 4),
    "HalfStorage": ("F16", "float16", 2),
    "BFloat16Storage": ("BF16", "bfloat16", 2),
    "DoubleStorage": ("F64", "float64", 8),
    "LongStorage": ("I64", "int64", 8),
    "IntStorage": ("I32", "int32", 4),
    "ShortStorage": ("I16", "int16", 2),
    "CharStorage": ("I8", "int8", 1),
    "ByteStorage": ("U8", "uint8", 1),
    "BoolStorage": ("BOOL", "bool", 1),
}
MAX_PROGRAM_BYTES = 64 * 2**20
# What zipfile raises for a damaged archive.
DAMAGE = (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile, struct.error)


class TorchFile:
    """The tensors of a state dict by name, read one at a time."""

    def __init__(self, path: Path, *, part: str | None = None) -> None:
        """`part` is the name of the state dict in a checkpoint that has several parts; `content` is all of it."""
        self.path = path
        self.archive: zipfile.ZipFile | None = None
        self.starts: dict[Storage, int] = {}  # of the storages of the old format
        try:
            if zipfile.is_zipfile(path):
                content = self._open_zip()
            else:
                content = self._open_old()
        except DAMAGE as error:
            message = str(error) if isinstance(error, ModelError) else f"cannot be read: {shortened(error)}"
            raise ModelError(f"{path}: {message}") from error
        if part is not None and (not isinstance(content, dict) or part not in content):
            raise ModelError(f"{path}: it has no {part!r}")
        self.content: dict[str, Any] = content
        self.tensors = self._tensors(content if part is None else content[part])

    def keys(self) -> list[str]:
        return list(self.tensors)

    def dtype(self, name: str) -> str:
        """Return the type of a tensor, as safetensors names it."""
        return KINDS[self.tensors[name].storage.kind][0]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def get_tensor(self, name: str) -> torch.Tensor:
        """Return a tensor."""
        tensor = self.tensors[name]
        _, dtype, _ = KINDS[tensor.storage.kind]
        content = self._numbers(tensor.storage)
        numbers = torch.frombuffer(content, dtype=getattr(torch, dtype)) if content else torch.empty(0)
        return numbers.as_strided(tensor.shape, tensor.strides, tensor.offset).contiguous()

    def _tensors(self, content: Any) -> Mapping[str, StoredTensor]:
        if not isinstance(content, dict):
            raise ModelError(f"{self.path}: it is not a table of weights")
        for name, value in content.items():
            if not isinstance(name, str) or not isinstance(value, StoredTensor):
                raise ModelError(
                    f"{self.path}: {shortened(repr(name))} is not a weight, so this is not a table of weights"
                )
            if value.storage.kind not in KINDS:
                raise ModelError(f"{self.path}: {shortened(repr(name))} is a {shortened(value.storage.kind)}")
            self._check_storage(value.storage)
        return content

    def _open_zip(self) -> Any:
        self.archive = zipfile.ZipFile(self.path)
        names = self.archive.namelist()
        programs = [name for name in names if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(programs) != 1 or len({*names}) < len(names):
            raise ModelError("it is not an archive of torch.save")
        self.inner = programs[0].removesuffix("data.pkl")
        for entry in self.archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                raise ModelError(f"{shortened(repr(entry.filename))} is compressed, which torch.save never does")
        order = f"{self.inner}byteorder"
        if order in names and self.archive.getinfo(order).file_size < 100 and self.archive.read(order) != b"little":
            raise ModelError("its numbers are big-endian")
        if self.archive.getinfo(programs[0]).file_size > MAX_PROGRAM_BYTES:
            raise ModelError(f"{programs[0]} is larger than {MAX_PROGRAM_BYTES} bytes")
        return read_program(self.archive.read(programs[0]))[0]

    def _open_old(self) -> Any:
        with open(self.path, "rb") as file:
            if not self.path.stat().st_size:
                raise ModelError("it is empty")
            self.mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, offset = read_program(self.mapped)
        version, offset = read_program(self.mapped, offset)
        if (magic, version) != (MAGIC, VERSION):
            raise ModelError("it was not written by torch.save")
        system, offset = read_program(self.mapped, offset)
        if not isinstance(system, dict) or system.get("little_endian") is not True:
            raise ModelError("its numbers are big-endian")
        content, offset = read_program(self.mapped, offset)
        keys, offset = read_program(self.mapped, offset)
        if not isinstance(keys, list) or not isinstance(content, dict):
            raise ModelError("it is not a table of weights")
        storages = {
            tensor.storage.key: tensor.storage for tensor in content.values() if isinstance(tensor, StoredTensor)
        }
        for key in keys:
            storage = storages.get(key)
            if storage is None or storage.kind not in KINDS:
                raise ModelError(f"the numbers {shortened(repr(key))} belong to no weight")
            count = int.from_bytes(self.mapped[offset : offset + 8], "little")
            if count != storage.size:
                raise ModelError(f"there are {count} numbers where a weight has {storage.size}")
            self.starts[storage] = offset + 8
            offset += 8 + count * KINDS[storage.kind][2]
            if offset > len(self.mapped):
                raise ModelError("it is cut off")
        return content

    def _check_storage(self, storage: Storage) -> None:
        """Raise ModelError unless the file has the numbers of a storage."""
        if self.archive is None:
            if storage not in self.starts:
                raise ModelError(f"{self.path}: the numbers {shortened(repr(storage.key))} are missing")
            return
        size = KINDS[storage.kind][2] * storage.size
        try:
            entry = self.archive.getinfo(f"{self.inner}data/{storage.key}")
        except KeyError as error:
            raise ModelError(f"{self.path}: the numbers {shortened(repr(storage.key))} are missing") from error
        if entry.file_size != size:
            raise ModelError(f"{self.path}: {entry.filename} has {entry.file_size} bytes, and its weight {size}")

    def _numbers(self, storage: Storage) -> bytearray:
        size = KINDS[storage.kind][2] * storage.size
        if self.archive is None:
            start = self.starts[storage]
            return bytearray(self.mapped[start : start + size])
        try:
            return bytearray(self.archive.read(f"{self.inner}data/{storage.key}"))
        except DAMAGE as error:
            raise ModelError(f"{self.path}: {shortened(error)}") from error
