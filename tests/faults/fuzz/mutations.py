"""Ways to spoil the files of a model folder, by chance and with malice: each takes a file's bytes and gives others.

All chance comes from the `dice` that are handed in, so a seed says everything.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Any

Mutator = Callable[[bytes, random.Random], bytes]


class Raw(str):
    """JSON text that goes into the file as it is."""


class Pairs(list):
    """A JSON object that may hold a key twice."""


DEEP = 100_000
ODD: list[Any] = [
    0, 1, -1, 2, 3, 7, 64, 1024, 2**16, 2**24, 2**31, 2**63, 2**64, 10**30, -(10**30), 0.5, -0.1, 1.0, 1e308,
    float("nan"), float("inf"), True, False, None, "", "x", "0", "\x1b[31m", "\ud800", "\x00", "é" * 1000, "../../x",
    [], Pairs(), [[]], [None], [1, "a"], Pairs([("a", Pairs())]), Pairs([("data", [])]), Pairs([("layer", "x")]),
    Raw("1e999"), Raw("9" * 4000), Raw("9" * 5000), Raw("-0"), Raw("[" * 500 + "]" * 500),
    Raw("[" * DEEP), Raw('{"a":' * DEEP), Raw("'x'"), Raw("01"), Raw(""), Raw("\\"), Raw('"\\ud83d"'),
]  # fmt: skip
KEYS = ["", "kind", "model", "layers", "__class__", "é", "\ud800", "x" * 1000, "a.b", "../x", "\x1b[31m"]


# Bytes.


def change_bytes(content: bytes, dice: random.Random) -> bytes:
    """A bit flipped, a byte replaced, a part cut out, doubled, filled in or cut off, or a digit changed."""
    data = bytearray(content) or bytearray(b"0")
    place = dice.randrange(len(data))
    match dice.randrange(8):
        case 0:
            data[place] ^= 1 << dice.randrange(8)
        case 1:
            data[place] = dice.randrange(256)
        case 2:
            del data[place : place + dice.randrange(1, 9)]
        case 3:
            data[place:place] = data[place : place + dice.choice([1, 9, 99])]
        case 4:
            del data[place:]
        case 5:
            data[place:place] = dice.randbytes(dice.choice([1, 4, 100]))
        case 6:
            data[place : place + 8] = dice.choice([b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\xff\x0f", b"\x80" * 20])
        case 7:
            digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57] or [place]
            data[dice.choice(digits)] = dice.choice(b'0123456789-.e["')
    return bytes(data)


# JSON.


def read_json(content: bytes) -> Any:
    return json.loads(content, object_pairs_hook=Pairs)


def write_json(value: Any) -> bytes:
    return _json_text(value).encode("utf-8", "surrogatepass")


def _json_text(value: Any) -> str:
    match value:
        case Raw():
            return value
        case Pairs():
            return "{" + ", ".join(f"{json.dumps(key)}: {_json_text(one)}" for key, one in value) + "}"
        case list():
            return "[" + ", ".join(map(_json_text, value)) + "]"
    return json.dumps(value)


def change_json(content: bytes, dice: random.Random, *, at: tuple[str, ...] = ()) -> bytes:
    """One place of a JSON file changed: a value replaced, a key renamed, removed, doubled or added.

    `at` leads to the part in which the change is made.
    """
    root = found = read_json(content)
    for key in at:
        found = dict(found)[key]
    _change_inside(found, dice)
    return write_json(root)


def _change_inside(found: Any, dice: random.Random) -> None:
    place = dice.randrange(len(found))
    named = isinstance(found, Pairs)
    value = found[place][1] if named else found[place]
    if isinstance(value, list) and value and dice.random() < 0.6:
        _change_inside(value, dice)
        return
    match dice.randrange(8):
        case 0:
            del found[place]
        case 1:
            found.insert(dice.randrange(len(found) + 1), found[place])
        case 2 if named:
            found[place] = (dice.choice(KEYS), value)
        case 3 if named:
            found.insert(dice.randrange(len(found) + 1), (dice.choice([found[place][0], *KEYS]), dice.choice(ODD)))
        case 4 if isinstance(value, int | float):
            near = dice.choice([value + 1, value - 1, value * 2, -value, value / 2, str(value), [value], value * 10**6])
            found[place] = (found[place][0], near) if named else near
        case _:
            found[place] = (found[place][0], dice.choice(ODD)) if named else dice.choice(ODD)


def json_bomb(dice: random.Random) -> bytes:
    """A few megabytes that take far more memory once they are read."""
    size = dice.choice([1, 3, 20, 60]) * 2**20
    part = dice.choice([b"[],", b"{},", b'"a",', b"1.5,", b'{"a":[]},'])
    return b'{"x":[' + part * (size // len(part)) + b"0]}"


# The header of safetensors.


def change_header(content: bytes, dice: random.Random) -> bytes:
    """Another header before the same weights, most often with a length that fits it."""
    (length,) = struct.unpack("<Q", content[:8])
    header, data = content[8 : 8 + length], content[8 + length :]
    entries = read_json(header)
    match dice.randrange(10):
        case 0:
            header = change_bytes(header, dice)
        case 1:
            return struct.pack("<Q", dice.choice([0, 1, length - 1, length + 1, 2**31, 2**62, 2**64 - 1])) + content[8:]
        case 2:
            header = change_json(header, dice)
        case 3:
            data = change_bytes(data, dice)
        case 4:
            entries.append(("__metadata__", dice.choice([*ODD, Pairs([("a", "b" * 10_000)])])))
            header = write_json(entries)
        case 5:
            entries.append(dice.choice(entries))
            header = write_json(entries)
        case 6:
            header = header + b" " * dice.choice([1, 7, 8, 10**6])
        case 7:  # weights that are no numbers
            data = dice.choice([b"\xff", b"\0\0\xc0\x7f", b"\0\0\x80\xff", b"\xff\xff\x7f\x7f"]) * len(data)
            data = data[: len(content) - 8 - length]
        case _:
            _change_entry(dice.choice([entry for entry in entries if entry[0] != "__metadata__"])[1], dice)
            header = write_json(entries)
    return struct.pack("<Q", len(header)) + header + data


def _change_entry(entry: Pairs, dice: random.Random) -> None:
    """One weight with another type, shape or place in the file."""
    values = dict(entry)
    begin, end = values["data_offsets"]
    shape = values["shape"]
    match dice.randrange(3):
        case 0:
            values["dtype"] = dice.choice(["F64", "F16", "BF16", "I8", "I64", "BOOL", "U8", "F8_E4M3", "F33", "", 3])
        case 1:
            more = [2**62, *shape[1:]], [0, *shape], [1, *shape], [*shape, 1], shape[::-1], [-1, *shape], [2**32] * 3
            values["shape"] = dice.choice([*more, shape[1:], [], [1] * 5000, dice.choice(ODD)])
        case 2:
            more = [end, begin], [0, end], [begin, 2**62], [-1, end], [begin + 4, end + 4], [begin, end - 1]
            values["data_offsets"] = dice.choice([*more, [0, 0], [begin], [0, 2**64], dice.choice(ODD)])
    entry[:] = values.items()


def header_bomb(dice: random.Random) -> bytes:
    """A header of many weights of no size."""
    count = dice.choice([10_000, 100_000, 500_000])
    names = (b'"w%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(count))
    header = b"{" + b",".join(names) + b"}"
    return struct.pack("<Q", len(header)) + header
