"""Read what `torch.save` wrote without unpickling: an interpreter of the few opcodes that a table of weights needs.

A pickle is a program, and Python's module runs it. This interpreter knows dicts, lists, tuples, numbers and texts, and
two functions of torch, whose calls it turns into descriptions of tensors. A name in the file is a text here, nothing is
ever looked up or called, and every other opcode is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from regard.errors import ModelError
from regard.models.folder.config_file import shortened

MAX_BYTES = 64 * 2**20  # of a program
MAX_NUMBER_BYTES = 16
MAX_DIMENSIONS = 8


class PickledName(NamedTuple):
    """A class or function that the file names; it stays a name."""

    module: str
    name: str


class Storage(NamedTuple):
    """Numbers in the file, one after the other."""

    key: str
    kind: str  # such as "FloatStorage"
    size: int


class StoredTensor(NamedTuple):
    """A tensor: a storage, and how its numbers are arranged."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


MARK = object()
REBUILD_TENSOR = PickledName("torch._utils", "_rebuild_tensor_v2")
REBUILD_PARAMETER = PickledName("torch._utils", "_rebuild_parameter")
ORDERED_DICT = PickledName("collections", "OrderedDict")


def read_program(data: Any, start: int = 0) -> tuple[Any, int]:
    """Return the value of the program that begins at `start`, and where it ends."""
    program = _Program(data, start)
    try:
        return program.run(), program.offset
    except ModelError:
        raise
    except (IndexError, KeyError, ValueError, TypeError, struct.error, RecursionError) as error:
        raise ModelError(f"damaged at byte {program.offset}: {shortened(repr(error))}") from error


class _Program:
    def __init__(self, data: Any, start: int) -> None:
        self.data, self.offset = data, start
        self.end = min(len(data), start + MAX_BYTES)
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        while True:
            code = self.take(1)[0]
            if code == ord("."):
                (value,) = self.stack
                return value
            action = OPCODES.get(code)
            if action is None:
                raise ModelError(f"it has the instruction {code:#04x} at byte {self.offset - 1}, which no weights need")
            action(self)

    def take(self, count: int) -> bytes:
        if self.offset + count > self.end:
            raise ModelError(f"it ends at byte {self.offset}, or is longer than {MAX_BYTES} bytes")
        self.offset += count
        return bytes(self.data[self.offset - count : self.offset])

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def line(self) -> str:
        end = bytes(self.data[self.offset : min(self.offset + 200, self.end)]).index(b"\n")
        return self.take(end + 1)[:-1].decode()

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        index = len(self.stack) - 1
        while self.stack[index] is not MARK:
            index -= 1
            if index < 0:
                raise ModelError(f"damaged at byte {self.offset}: there is no mark")
        values = self.stack[index + 1 :]
        del self.stack[index:]
        return values

    def last(self, count: int) -> tuple[Any, ...]:
        if len(self.stack) < count:
            raise ModelError(f"damaged at byte {self.offset}: a value is missing")
        values = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        return values

    def memorize(self, key: int) -> None:
        self.memo[key] = self.stack[-1]

    def set_items(self, values: list[Any]) -> None:
        table = self.stack[-1]
        if not isinstance(table, dict) or len(values) % 2:
            raise ModelError(f"damaged at byte {self.offset}: entries without a table")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str | int):
                raise ModelError(f"damaged at byte {self.offset}: a key is not text")
            table[key] = value

    def append(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise ModelError(f"damaged at byte {self.offset}: entries without a list")
        self.stack[-1].extend(values)

    def call(self) -> None:
        function, arguments = self.last(2)
        if function == ORDERED_DICT and arguments == ():
            self.push({})
        elif function == REBUILD_TENSOR and isinstance(arguments, tuple) and len(arguments) in (6, 7):
            self.push(_tensor(*arguments[:4]))
        elif function == REBUILD_PARAMETER and isinstance(arguments, tuple) and isinstance(arguments[0], StoredTensor):
            self.push(arguments[0])
        else:
            name = ".".join(function) if isinstance(function, PickledName) else repr(function)
            raise ModelError(f"it asks to call {shortened(name)}, and regard never calls a function that a file names")

    def set_state(self) -> None:
        self.last(1)  # `_metadata` of a state dict: versions of modules
        if not isinstance(self.stack[-1], dict):
            raise ModelError(f"damaged at byte {self.offset}: a state without an object")

    def name_from_stack(self) -> None:
        module, name = self.last(2)
        self.push(PickledName(str(module), str(name)))

    def storage(self) -> None:
        (parts,) = self.last(1)
        if not isinstance(parts, tuple) or len(parts) not in (5, 6) or parts[0] != "storage":
            raise ModelError(f"damaged at byte {self.offset}: no storage of numbers")
        kind, key, count = parts[1], parts[2], parts[4]
        if (
            not isinstance(kind, PickledName)
            or kind.module != "torch"
            or not isinstance(key, str)
            or type(count) is not int
        ):
            raise ModelError(f"damaged at byte {self.offset}: no storage of numbers")
        self.push(Storage(key, kind.name, count))


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> StoredTensor:
    """Return the tensor, whose numbers all lie inside its storage."""
    sizes = (shape, strides)
    whole = all(isinstance(each, tuple) and all(type(n) is int and n >= 0 for n in each) for each in sizes)
    if not isinstance(storage, Storage) or type(offset) is not int or offset < 0 or not whole:
        raise ModelError("a tensor is damaged")
    if len(shape) != len(strides) or len(shape) > MAX_DIMENSIONS:
        raise ModelError(f"a tensor has the shape {shortened(shape)} and the strides {shortened(strides)}")
    count, last = 1, offset
    for size, stride in zip(shape, strides, strict=True):
        count *= size
        last += max(size - 1, 0) * stride
    if count > storage.size or (count and last >= storage.size):
        raise ModelError(f"a tensor of shape {shortened(shape)} does not fit into its {storage.size} numbers")
    return StoredTensor(storage, offset, shape, strides)


def _long(program: _Program) -> None:
    size = program.number("<B")
    if size > MAX_NUMBER_BYTES:
        raise ModelError(f"damaged at byte {program.offset}: a number of {size} bytes")
    program.push(int.from_bytes(program.take(size), "little", signed=True))


OPCODES: dict[int, Callable[[_Program], Any]] = {
    0x80: lambda p: p.take(1),  # protocol
    0x95: lambda p: p.take(8),  # frame
    ord("("): lambda p: p.push(MARK),
    ord("N"): lambda p: p.push(None),
    0x88: lambda p: p.push(True),
    0x89: lambda p: p.push(False),
    ord("K"): lambda p: p.push(p.number("<B")),
    ord("M"): lambda p: p.push(p.number("<H")),
    ord("J"): lambda p: p.push(p.number("<i")),
    0x8A: _long,
    ord("G"): lambda p: p.push(struct.unpack(">d", p.take(8))[0]),
    ord("X"): lambda p: p.push(p.take(p.number("<I")).decode()),
    0x8C: lambda p: p.push(p.take(p.number("<B")).decode()),
    ord(")"): lambda p: p.push(()),
    ord("]"): lambda p: p.push([]),
    ord("}"): lambda p: p.push({}),
    ord("t"): lambda p: p.push(tuple(p.since_mark())),
    0x85: lambda p: p.push(p.last(1)),
    0x86: lambda p: p.push(p.last(2)),
    0x87: lambda p: p.push(p.last(3)),
    ord("a"): lambda p: p.append(list(p.last(1))),
    ord("e"): lambda p: p.append(p.since_mark()),
    ord("s"): lambda p: p.set_items(list(p.last(2))),
    ord("u"): lambda p: p.set_items(p.since_mark()),
    ord("q"): lambda p: p.memorize(p.number("<B")),
    ord("r"): lambda p: p.memorize(p.number("<I")),
    0x94: lambda p: p.memorize(len(p.memo)),
    ord("h"): lambda p: p.push(p.memo[p.number("<B")]),
    ord("j"): lambda p: p.push(p.memo[p.number("<I")]),
    ord("c"): lambda p: p.push(PickledName(p.line(), p.line())),
    0x93: _Program.name_from_stack,
    ord("R"): _Program.call,
    ord("b"): _Program.set_state,
    ord("Q"): _Program.storage,
}
