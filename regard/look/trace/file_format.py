"""The file formats regard-trace/1 and regard-input/1: a trace as JSON, with validation on reading.

The dataclasses of `trace.py` and `inputs/input_trace.py` are the schema: an object in the file has exactly their fields
with their types. An array is an object with its shape and its numbers, row by row: as `values`, or in base64 as
`float32`, `float16` or `uint8` (little endian).
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import gzip
import json
import math
import types
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError, UsageError, unknown_name
from regard.look.trace.attention_map import MAX_JSON_NUMBERS
from regard.look.trace.inputs.input_trace import InputTrace
from regard.look.trace.trace import Trace
from regard.system.files import replace_file

AnyTrace = Trace | InputTrace

FORMATS: dict[type[AnyTrace], str] = {Trace: "regard-trace/1", InputTrace: "regard-input/1"}
MAX_FILE_BYTES = 256 * 2**20  # decompressed
BINARY_TYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "uint8": np.dtype("u1"),
}
NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", types.NoneType: "null"}


def write_trace(trace: AnyTrace, path: Path) -> Path:
    """Write a trace as .json or .json.gz."""
    content = json.dumps(to_json(trace), allow_nan=False, separators=(",", ":")).encode()
    if path.name.endswith(".json.gz"):
        content = gzip.compress(content, mtime=0)  # the same trace gives the same file
    elif not path.name.endswith(".json"):
        raise UsageError(f"{path}: the name of a trace must end in .json or .json.gz")
    replace_file(path, content)
    return path


def read_trace(path: Path) -> Trace:
    """Read the trace of a text."""
    trace = read_any_trace(path)
    if not isinstance(trace, Trace):
        raise DataError(f"{path}: the trace of an input that is no text: load it with InputTrace.load")
    return trace


def read_any_trace(path: Path) -> AnyTrace:
    """Read a trace; the content tells its format and whether it is compressed."""
    try:
        with open(path, "rb") as file:
            compressed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if compressed else open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise DataError(f"larger than {MAX_FILE_BYTES // 2**20} MiB, the limit of a trace")
        return any_from_json(json.loads(content, parse_constant=_refuse_constant))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not a trace, because it is not JSON: {error}") from error


def to_json(trace: AnyTrace) -> dict[str, Any]:
    """Convert a trace to JSON data."""
    return {"format": FORMATS[type(trace)], **_to_data(trace)}


def from_json(content: Mapping[str, Any]) -> Trace:
    """Convert JSON data to the trace of a text; DataError with the path of the wrong entry."""
    trace = any_from_json(content)
    if not isinstance(trace, Trace):
        raise DataError("the trace of an input that is no text: read it with InputTrace.from_dict")
    return trace


def any_from_json(content: Mapping[str, Any]) -> AnyTrace:
    """Convert JSON data to a trace; DataError with the path of the wrong entry."""
    name = str(content.get("format")) if isinstance(content, Mapping) else ""
    for kind, known in FORMATS.items():
        if name == known:
            return _read(kind, {name: value for name, value in content.items() if name != "format"}, "")
        if name.partition("/")[0] == known.partition("/")[0]:
            raise DataError(f"the format is {name!r}, and this version of regard reads {known!r}")
    raise DataError(f"not a trace: a trace is an object whose format is {FORMATS[Trace]!r}")


def _to_data(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _array_data(value)
    if dataclasses.is_dataclass(value):
        # Fields with their default value are left out.
        return {
            field.name: _to_data(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if getattr(value, field.name) is not field.default
        }
    if isinstance(value, dict):
        return {name: _to_data(member) for name, member in value.items()}
    if isinstance(value, tuple):
        return [_to_data(member) for member in value]
    return value


def _array_data(array: NDArray[Any]) -> dict[str, Any]:
    shape = list(array.shape)
    if array.dtype == np.bool_ and array.size <= MAX_JSON_NUMBERS:
        return {"shape": shape, "values": array.astype(int).ravel().tolist()}
    if array.dtype in (np.float32, np.float64) and array.size <= MAX_JSON_NUMBERS:
        # The shortest decimals that round to the same float32: half as long as those of a float64.
        return {"shape": shape, "values": [float(str(number)) for number in array.astype(np.float32).ravel()]}
    # Weights are float32 and lose digits when there are many; inputs and forecasts are float64 and do not.
    name = "float32" if array.dtype == np.float64 else "float16" if array.dtype.kind == "f" else "uint8"
    return {"shape": shape, name: base64.b64encode(array.astype(BINARY_TYPES[name]).tobytes()).decode()}


def _read(kind: Any, value: Any, where: str) -> Any:
    """Convert JSON data to a value of this type; `where` is its path in the file."""
    if kind is Any or get_origin(kind) is np.ndarray:
        return _read_array(value, where)
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, where)
    if get_origin(kind) in (Union, types.UnionType):
        return _read_one_of(get_args(kind), value, where)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise DataError(f"{where} must be a list, got {_short(value)}")
        return tuple(_read(get_args(kind)[0], member, f"{where}[{i}]") for i, member in enumerate(value))
    if get_origin(kind) is dict:
        if not isinstance(value, dict):
            raise DataError(f"{where} must be an object, got {_short(value)}")
        return {name: _read(get_args(kind)[1], member, f"{where}.{name}") for name, member in value.items()}
    if not _is_a(kind, value):
        raise DataError(f"{where} must be {NAMES[kind]}, got {_short(value)}")
    return float(value) if kind is float else value


def _read_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise DataError(f"{where or 'a trace'} must be an object, got {_short(value)}")
    known = {field.name: field for field in dataclasses.fields(kind)}
    for name in value:
        if name not in known:
            raise DataError(f"{where or 'the trace'}: {unknown_name('entry', name, tuple(known))}")
    for name, field in known.items():
        if name not in value and field.default is field.default_factory is dataclasses.MISSING:
            raise DataError(f"{where or 'the trace'}: the entry {name!r} is missing")
    under = f"{where}." if where else ""
    fields = {name: _read(_types(kind)[name], member, f"{under}{name}") for name, member in value.items()}
    try:
        return kind(**fields)
    except DataError as error:
        raise DataError(f"{where}: {error}" if where else str(error)) from error


def _read_one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    others = [kind for kind in kinds if kind is not types.NoneType]
    if len(others) == 1:
        return _read(others[0], value, where)
    for kind in others:  # plain types
        if _is_a(kind, value):
            return value
    raise DataError(f"{where} must be {' or '.join(NAMES[kind] for kind in kinds)}, got {_short(value)}")


def _is_a(kind: Any, value: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**1000
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _read_array(value: Any, where: str) -> NDArray[Any]:
    """Convert JSON data to an array."""
    names = ("values", *BINARY_TYPES)
    if not isinstance(value, dict) or len(value) != 2 or not any(value.keys() == {"shape", name} for name in names):
        raise DataError(f"{where} must be an array: an object with a shape and {' or '.join(names)}")
    shape = _read(tuple[int, ...], value["shape"], f"{where}.shape")
    if any(side < 0 for side in shape) or len(shape) > 4:
        raise DataError(f"{where}.shape must be up to four non-negative whole numbers, got {_short(list(shape))}")
    if "values" in value:
        with np.errstate(over="ignore"):  # too large numbers become infinite, which Map refuses
            numbers = np.array(_read(tuple[float, ...], value["values"], f"{where}.values"), dtype=np.float32)
    else:
        numbers = _from_base64(value, where)
    if math.prod(shape) != len(numbers):
        raise DataError(f"{where}: {len(numbers)} numbers do not fill the shape {list(shape)}")
    return numbers.reshape(shape)


def _from_base64(value: dict[str, Any], where: str) -> NDArray[Any]:
    (name,) = value.keys() - {"shape"}
    text = _read(str, value[name], f"{where}.{name}")
    try:
        content = base64.b64decode(text, validate=True)
        return np.frombuffer(content, dtype=BINARY_TYPES[name]).astype(BINARY_TYPES[name].newbyteorder("="))
    except (binascii.Error, ValueError) as error:
        raise DataError(f"{where}.{name} is not {name} in base64: {error}") from error


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _refuse_constant(name: str) -> float:
    raise DataError(f"contains {name}, which JSON does not allow")


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:39] + "…"
