"""Ways to spoil a sentencepiece model, which is a protocol buffer; as mutations.py does it for other files."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

Fields = list[tuple[int, int, Any]]  # number, wire type, value
PIECE, TRAINER, NORMALIZER, SELF_TEST, DENORMALIZER = 1, 2, 3, 4, 5
VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5


def varint(number: int) -> bytes:
    number %= 2**64
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def read_fields(content: bytes) -> Iterator[tuple[int, int, Any]]:
    """The fields of a message that is whole."""
    place = 0

    def number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = content[place]
            place, value, shift = place + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while place < len(content):
        key = number()
        if key & 7 == VARINT:
            yield key >> 3, VARINT, number()
        else:
            size = {EIGHT: 8, FOUR: 4}.get(key & 7) or number()
            yield key >> 3, key & 7, content[place : place + size]
            place += size


def write_fields(fields: Fields) -> bytes:
    out = bytearray()
    for number, wire, value in fields:
        out += varint(number << 3 | wire)
        if wire == VARINT:
            out += varint(value)
        else:
            content = write_fields(value) if isinstance(value, list) else value
            out += (varint(len(content)) if wire == BYTES else b"") + content
    return bytes(out)


def piece(text: bytes, score: float = 0.0, kind: int = 1) -> tuple[int, int, Any]:
    return PIECE, BYTES, [(1, BYTES, text), (2, FOUR, struct.pack("<f", score)), (3, VARINT, kind)]


def change_model(content: bytes, dice: random.Random) -> bytes:
    """A sentencepiece model with other pieces, other settings, or fields that do not end where they should."""
    fields = list(read_fields(content))
    pieces = [i for i, field in enumerate(fields) if field[0] == PIECE]
    place = dice.choice(pieces if dice.random() < 0.5 else [*pieces[:4], *pieces[-4:], *pieces[255:265]])
    match dice.randrange(12):
        case 0:
            del fields[dice.choice([place, 0, -1, -2])]
        case 1:
            fields.insert(dice.choice([0, place, len(fields)]), fields[place])
        case 2:
            other = dice.choice(pieces)
            fields[place], fields[other] = fields[other], fields[place]
        case 3:
            fields = [field for field in fields if field[0] != dice.choice([PIECE, TRAINER, NORMALIZER])]
        case 4:
            count = dice.choice([0, 3, 4, 5, 260, 261, len(pieces) - 1])
            fields = [*fields[:count], *fields[len(pieces) :]]
        case 5:
            fields += [piece(b"new%d" % i, -float(i)) for i in range(dice.choice([1, 10, 2000]))]
        case 6:  # a length or a field that lies
            lie = varint(dice.randrange(1, 7) << 3 | dice.randrange(8))
            lie += varint(dice.choice([0, 1, 127, 2**31 - 1, 2**31, 2**32, 2**63, 2**64 - 1])) + b"x" * dice.choice(
                [0, 8]
            )
            return dice.choice([lie + content, content + lie])
        case 7:
            fields.append(_odd_part(dice))
        case 8 | 9:
            kind = dice.choice([TRAINER, NORMALIZER])
            fields = [(n, w, _odd_settings(n, value, dice) if n == kind else value) for n, w, value in fields]
        case _:
            fields[place] = (PIECE, BYTES, _odd_piece(list(read_fields(fields[place][2])), dice))
    return write_fields(fields)


def _odd_piece(fields: Fields, dice: random.Random) -> Fields:
    texts = [b"", b"\xff\xfe", b"\0", b"<unk>", b"<s>", b"<0x41>", b"<0x00>", b"e", b"\xe2\x96\x81", b"a" * 100_000]
    texts += [b"\xed\xa0\x80", b" ", b"\n", b"\xe2\x96\x81\xe2\x96\x81", b"\x1b[31m", b"a\xe2\x96\x81b"]
    scores = [float("nan"), float("inf"), float("-inf"), 3e38, -3e38, 0.0, 1e9, -0.5]
    odd: dict[int, tuple[int, int, Any]] = {
        1: (1, BYTES, dice.choice(texts)),
        2: (2, FOUR, struct.pack("<f", dice.choice(scores))),
        3: (3, VARINT, dice.choice([0, 1, 2, 3, 4, 5, 6, 7, 2**31, 2**64 - 1])),
    }
    chosen = dice.choice([1, 2, 3])
    kept = [field for field in fields if field[0] != chosen]
    return dice.choice([[*kept, odd[chosen]], [*fields, odd[chosen]], [odd[chosen], *kept], kept])


def _odd_settings(number: int, content: bytes, dice: random.Random) -> Fields:
    """The trainer's or the normalizer's settings with one changed or added."""
    fields = list(read_fields(content))
    if number == TRAINER:
        key = dice.choice([3, 4, 24, 25, 26, 31, 33, 35, 40, 41, 42, 43, 45, 46, 47, 48, 49, 50, 99, 2**20])
        odd = [(VARINT, dice.choice([0, 1, 2, 3, 4, 5, 300, 2**31 - 1, 2**31, 2**64 - 1])), (BYTES, dice.randbytes(5))]
        wire, value = dice.choice([*odd, odd[0], odd[0]])
    else:
        key = dice.choice([1, 2, 2, 2, 3, 4, 5, 6, 7])
        wire, value = (VARINT, dice.choice([0, 1, 2**40])) if key in (3, 4, 5) else (BYTES, _charsmap(dice))
    kept = [field for field in fields if field[0] != key]
    return [*kept, (key, wire, value)] if dice.random() < 0.8 else kept


def _odd_part(dice: random.Random) -> tuple[int, int, Any]:
    sample = [(1, BYTES, [(1, BYTES, b"le chat"), (2, BYTES, b"not these")])]
    return dice.choice(
        [
            (SELF_TEST, BYTES, sample),
            (DENORMALIZER, BYTES, [(2, BYTES, _charsmap(dice))]),
            (NORMALIZER, BYTES, [(2, BYTES, _charsmap(dice))]),
            (TRAINER, BYTES, [(3, VARINT, dice.randrange(1, 6))]),
            (TRAINER, BYTES, dice.randbytes(40)),
            (dice.choice([6, 200, 2**28]), BYTES, dice.randbytes(20)),
            piece(b"x" * dice.choice([0, 1, 10**6]), float("nan")),
        ]
    )


def _charsmap(dice: random.Random) -> bytes:
    """Rules for replacing characters: a trie, which is followed without a look at its end, and the replacements."""
    size = dice.choice([0, 4, 256, 1024, 2**31, 2**32 - 4])
    body = dice.choice([dice.randbytes(min(size, 2048)), b"\xff" * 1024, b"\0" * 1024])
    return struct.pack("<I", size) + body + b"x\0"


def model_bomb(dice: random.Random) -> bytes:
    """Very many pieces, or a very long one."""
    first = [piece(text, 0.0, kind) for text, kind in ((b"<pad>", 3), (b"<unk>", 2), (b"<s>", 3), (b"</s>", 3))]
    if dice.random() < 0.5:
        return write_fields([*first, piece(b"x" * dice.choice([10**6, 2 * 10**7]))])
    count = dice.choice([10**5, 10**6, 3 * 10**6])
    return write_fields(first) + b"\x0a\x03\x0a\x01e" * count
