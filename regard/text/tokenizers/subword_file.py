"""The file of a subword tokenizer, checked before sentencepiece sees it, which believes what it reads.

A sentencepiece model is a protocol buffer: fields, each a number, a wire type and a value. It can say far more than
regard ever writes: rules that replace characters by a table which is followed without a look at its end, pieces of any
length, scores that are no numbers. Here a file passes only if train_subwords could have written it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

from regard.errors import ModelError
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS

LARGEST_SIZE = 2**20  # pieces
LARGEST_PIECE = 128  # bytes of a piece with its score and kind; sentencepiece makes none of more than 16 characters
HIGHEST_SCORE = 1e9  # either way: logarithms of probabilities, or the ranks of merges

# Fields of the whole, and of its parts, by their numbers in sentencepiece_model.proto.
PIECE, TRAINER, NORMALIZER = 1, 2, 3
VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5  # wire types
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6  # kinds of pieces
MODEL_TYPE, WHITESPACE_AS_SUFFIX, BYTE_FALLBACK, UNKNOWN_SURFACE = 3, 24, 35, 44
MODEL_TYPES = {1: "unigram", 2: "bpe"}
IDS, NAMES = (43, 40, 41, 42), (48, 45, 46, 47)  # of padding, unknown, start and end
RULES, PREFIX, EXTRA_SPACES, ESCAPE_SPACES = 2, 3, 4, 5

BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]
BLANKS = ["\n", "\t"]  # pieces of lossless tokenizers


def read_pieces(content: bytes) -> list[str]:
    """The pieces of the tokenizer in that file, in order; a ModelError if it is none of regard's."""
    if not content:  # which is a valid protocol buffer
        raise ModelError("not a sentencepiece model: the file is empty")
    try:
        texts, kinds, end = _pieces(content)
        parts = list(_fields(content, end))
        pieces = [text.decode() for text in texts]
    except ModelError:  # which is a ValueError too
        raise
    except (IndexError, ValueError) as error:
        raise ModelError("not a sentencepiece model: it is damaged, cut short, or of another writer") from error
    _check_pieces(pieces, kinds)
    if odd := [field for field, wire, _ in parts if field not in (TRAINER, NORMALIZER) or wire != LENGTH]:
        raise ModelError(f"not a sentencepiece model of regard: it has the field {odd[0]}, which none of ours has")
    for name, number, check in (("settings", TRAINER, _check_trainer), ("rules", NORMALIZER, _check_normalizer)):
        found = [value for field, _, value in parts if field == number]
        if len(found) != 1:
            raise ModelError(f"not a sentencepiece model of regard: it has {len(found)} times {name}, not once")
        check(found[0])
    return pieces


def _pieces(content: bytes) -> tuple[list[bytes], list[int], int]:
    """Text and kind of each piece, and where the pieces end. They come first, each as short as LARGEST_PIECE says."""
    texts, kinds, scores = [], [], []
    place, end = 0, len(content)
    while place < end and content[place] == PIECE << 3 | LENGTH:
        size = content[place + 1]
        message = content[place + 2 : place + 2 + size]
        place += 2 + size
        first = 2 + message[1]  # behind the text: the score in four bytes, then the kind unless it is a normal piece
        if size >= LARGEST_PIECE or len(message) not in (first + 5, first + 7):
            raise ValueError("a piece that is too long, or cut short")
        if message[0] != 1 << 3 | LENGTH or message[first] != 2 << 3 | FOUR_BYTES:
            raise ValueError("a piece of other fields")
        kind = NORMAL
        if len(message) == first + 7:
            if message[-2] != 3 << 3 | VARINT:
                raise ValueError("a piece of other fields")
            kind = message[-1]
        texts.append(message[2:first])
        kinds.append(kind)
        scores.append(message[first + 1 : first + 5])
        if len(texts) > LARGEST_SIZE:
            raise ModelError(f"a sentencepiece model of more than {LARGEST_SIZE} pieces, which none of ours has")
    numbers = struct.unpack(f"<{len(scores)}f", b"".join(scores))
    if not all(math.fabs(number) <= HIGHEST_SCORE for number in numbers):  # NaN is not either
        raise ModelError("not a sentencepiece model of regard: a score is not a number, or beyond all measure")
    return texts, kinds, place


def _check_pieces(pieces: list[str], kinds: list[int]) -> None:
    """Special tokens, line break and tab in lossless models, the bytes, and then all else, each once."""
    specials = len(SPECIAL_TOKENS)
    wanted = [CONTROL, UNKNOWN, CONTROL, CONTROL]
    if tuple(pieces[:specials]) != SPECIAL_TOKENS or kinds[:specials] != wanted:
        found = " ".join(piece if piece.isprintable() else ascii(piece) for piece in pieces[:specials])
        raise ModelError(f"its first pieces are {found}, not the special tokens {' '.join(SPECIAL_TOKENS)}")
    blanks = BLANKS if pieces[specials : specials + len(BLANKS)] == BLANKS else []
    first = specials + len(blanks)
    usual = first + len(BYTE_PIECES)
    if pieces[first:usual] != BYTE_PIECES:
        raise ModelError("not a sentencepiece model of regard: the 256 bytes do not follow the special tokens")
    if kinds[specials:] != [USER_DEFINED] * len(blanks) + [BYTE] * len(BYTE_PIECES) + [NORMAL] * (len(kinds) - usual):
        raise ModelError("not a sentencepiece model of regard: a piece is of a kind that it cannot be")
    if "" in pieces or len(set(pieces)) < len(pieces):
        raise ModelError("not a sentencepiece model of regard: a piece is empty or stands there twice")


def _check_trainer(content: bytes) -> None:
    """What sentencepiece looks at of the settings that it was trained with; the rest is for the record."""
    settings = _settings(content)
    unknown = len(SPECIAL_TOKENS)  # no id
    ids = tuple(settings.get(field, unknown) for field in IDS)
    if ids != tuple(range(len(SPECIAL_TOKENS))) or any(field in settings for field in (*NAMES, UNKNOWN_SURFACE)):
        raise ModelError("not a sentencepiece model of regard: it names or numbers the special tokens otherwise")
    if settings.get(MODEL_TYPE, 1) not in MODEL_TYPES:
        raise ModelError(f"not a sentencepiece model of regard: it is neither {' nor '.join(MODEL_TYPES.values())}")
    if settings.get(BYTE_FALLBACK) != 1 or settings.get(WHITESPACE_AS_SUFFIX, 0) != 0:
        raise ModelError("not a sentencepiece model of regard: it does without bytes, or ends words with a space")


def _check_normalizer(content: bytes) -> None:
    """regard brings texts to NFC itself, so there are no rules, and spaces are all kept or all tidied up."""
    settings = _settings(content)
    spaces = settings.get(PREFIX, 1), settings.get(EXTRA_SPACES, 1)
    if settings.get(RULES, b"") != b"" or spaces not in ((0, 0), (1, 1)) or settings.get(ESCAPE_SPACES, 1) != 1:
        raise ModelError("not a sentencepiece model of regard: it has rules of its own for characters or spaces")
    if odd := settings.keys() - {1, RULES, PREFIX, EXTRA_SPACES, ESCAPE_SPACES}:
        raise ModelError(f"not a sentencepiece model of regard: its rules have the field {min(odd)}")


def _settings(content: bytes) -> dict[int, Any]:
    """The fields of a part, of each the last one, as sentencepiece takes them."""
    try:
        return {number: value for number, _, value in _fields(content, 0)}
    except (IndexError, ValueError) as error:
        raise ModelError("not a sentencepiece model: its settings are damaged or cut short") from error


def _fields(content: bytes, place: int) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of each field from that place on; a ValueError or IndexError where one is damaged."""
    while place < len(content):
        key, place = _varint(content, place)
        wire = key & 7
        if key >> 3 == 0 or wire not in (VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES):
            raise ValueError("a field without a number, or of a wire type that is not used")
        value: Any
        if wire == VARINT:
            value, place = _varint(content, place)
        else:
            size, place = (8 if wire == EIGHT_BYTES else 4, place) if wire != LENGTH else _varint(content, place)
            value, place = content[place : place + size], place + size
            if place > len(content):
                raise ValueError("a field that goes beyond the file")
        yield key >> 3, wire, value


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """The number there, seven bits a byte, and the place behind it."""
    number = 0
    for shift in range(0, 64, 7):
        byte = content[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
    raise ValueError("a number of more than 64 bits")
