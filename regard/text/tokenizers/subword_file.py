"""Check the file of a subword tokenizer before sentencepiece reads it, because sentencepiece trusts its input.

A sentencepiece model is a protocol buffer: fields, each with a number, a wire type and a value. The format allows much
more than regard ever writes: normalization tables that sentencepiece follows without bounds checks, pieces of any
length, scores that are not finite. A file passes only if train_subwords could have written it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

from regard.errors import ModelError
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS

MAX_PIECES = 2**20  # of a vocabulary
MAX_PIECE_BYTES = 128  # with score and kind; sentencepiece makes no pieces of more than 16 characters
MAX_SCORE = 1e9  # in absolute value: log-probabilities, or the ranks of merges

# Fields of the message and of its submessages, by their numbers in sentencepiece_model.proto.
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
    """Return the pieces of a tokenizer file in order; raise ModelError if regard cannot have written it."""
    if not content:  # a valid protocol buffer
        raise ModelError("not a sentencepiece model: the file is empty")
    try:
        texts, kinds, end = _pieces(content)
        parts = list(read_fields(content, end))
        pieces = [text.decode() for text in texts]
    except ModelError:  # a subclass of ValueError
        raise
    except (IndexError, ValueError) as error:
        raise ModelError("not a sentencepiece model: it is damaged, truncated, or from another program") from error
    _check_pieces(pieces, kinds)
    if unexpected := [field for field, wire, _ in parts if field not in (TRAINER, NORMALIZER) or wire != LENGTH]:
        raise ModelError(f"not a sentencepiece model of regard: it has the unexpected field {unexpected[0]}")
    for name, number, check in (("settings", TRAINER, _check_trainer), ("rules", NORMALIZER, _check_normalizer)):
        values = [value for field, _, value in parts if field == number]
        if len(values) != 1:
            raise ModelError(f"not a sentencepiece model of regard: it has {name} {len(values)} times, not once")
        check(values[0])
    return pieces


def _pieces(content: bytes) -> tuple[list[bytes], list[int], int]:
    """Return text and kind of each piece, and the offset where the pieces end. They come first in the file."""
    texts, kinds, scores = [], [], []
    offset, end = 0, len(content)
    while offset < end and content[offset] == PIECE << 3 | LENGTH:
        size = content[offset + 1]
        message = content[offset + 2 : offset + 2 + size]
        offset += 2 + size
        text_end = 2 + message[1]  # then the score in four bytes, then the kind unless it is a normal piece
        if size >= MAX_PIECE_BYTES or len(message) not in (text_end + 5, text_end + 7):
            raise ValueError("a piece that is too long, or truncated")
        if message[0] != 1 << 3 | LENGTH or message[text_end] != 2 << 3 | FOUR_BYTES:
            raise ValueError("a piece with other fields")
        kind = NORMAL
        if len(message) == text_end + 7:
            if message[-2] != 3 << 3 | VARINT:
                raise ValueError("a piece with other fields")
            kind = message[-1]
        texts.append(message[2:text_end])
        kinds.append(kind)
        scores.append(message[text_end + 1 : text_end + 5])
        if len(texts) > MAX_PIECES:
            raise ModelError(f"not a sentencepiece model of regard: it has more than {MAX_PIECES} pieces")
    numbers = struct.unpack(f"<{len(scores)}f", b"".join(scores))
    if not all(math.fabs(number) <= MAX_SCORE for number in numbers):  # also false for NaN
        raise ModelError("not a sentencepiece model of regard: a score is not a number, or too large")
    return texts, kinds, offset


def _check_pieces(pieces: list[str], kinds: list[int]) -> None:
    """Check the order: special tokens, line break and tab in lossless models, bytes, then all other pieces."""
    specials = len(SPECIAL_TOKENS)
    special_kinds = [CONTROL, UNKNOWN, CONTROL, CONTROL]
    if tuple(pieces[:specials]) != SPECIAL_TOKENS or kinds[:specials] != special_kinds:
        first_pieces = " ".join(piece if piece.isprintable() else ascii(piece) for piece in pieces[:specials])
        raise ModelError(f"its first pieces are {first_pieces}, not the special tokens {' '.join(SPECIAL_TOKENS)}")
    blanks = BLANKS if pieces[specials : specials + len(BLANKS)] == BLANKS else []
    first = specials + len(blanks)
    usual = first + len(BYTE_PIECES)
    if pieces[first:usual] != BYTE_PIECES:
        raise ModelError("not a sentencepiece model of regard: the 256 bytes do not follow the special tokens")
    if kinds[specials:] != [USER_DEFINED] * len(blanks) + [BYTE] * len(BYTE_PIECES) + [NORMAL] * (len(kinds) - usual):
        raise ModelError("not a sentencepiece model of regard: a piece has the wrong kind")
    if "" in pieces or len(set(pieces)) < len(pieces):
        raise ModelError("not a sentencepiece model of regard: a piece is empty or occurs twice")


def _check_trainer(content: bytes) -> None:
    """Check the training settings that sentencepiece uses; the others are only informative."""
    settings = read_settings(content)
    unknown = len(SPECIAL_TOKENS)  # no id
    ids = tuple(settings.get(field, unknown) for field in IDS)
    if ids != tuple(range(len(SPECIAL_TOKENS))) or any(field in settings for field in (*NAMES, UNKNOWN_SURFACE)):
        raise ModelError("not a sentencepiece model of regard: its special tokens have other names or numbers")
    if settings.get(MODEL_TYPE, 1) not in MODEL_TYPES:
        raise ModelError(f"not a sentencepiece model of regard: it is neither {' nor '.join(MODEL_TYPES.values())}")
    if settings.get(BYTE_FALLBACK) != 1 or settings.get(WHITESPACE_AS_SUFFIX, 0) != 0:
        raise ModelError("not a sentencepiece model of regard: it has no byte fallback, or puts spaces after words")


def _check_normalizer(content: bytes) -> None:
    """Check that there are no normalization rules, as regard normalizes texts itself; spaces are kept or collapsed."""
    settings = read_settings(content)
    spaces = settings.get(PREFIX, 1), settings.get(EXTRA_SPACES, 1)
    if settings.get(RULES, b"") != b"" or spaces not in ((0, 0), (1, 1)) or settings.get(ESCAPE_SPACES, 1) != 1:
        raise ModelError("not a sentencepiece model of regard: it has its own rules for characters or spaces")
    if unexpected := settings.keys() - {1, RULES, PREFIX, EXTRA_SPACES, ESCAPE_SPACES}:
        raise ModelError(f"not a sentencepiece model of regard: its rules have the field {min(unexpected)}")


def read_settings(content: bytes) -> dict[int, Any]:
    """Return the fields of a submessage; a repeated field has its last value, as in sentencepiece."""
    try:
        return {number: value for number, _, value in read_fields(content, 0)}
    except (IndexError, ValueError) as error:
        raise ModelError("not a sentencepiece model: its settings are damaged or truncated") from error


def read_fields(content: bytes, offset: int) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of each field from an offset on; raise ValueError or IndexError for damage."""
    while offset < len(content):
        key, offset = _varint(content, offset)
        wire = key & 7
        if key >> 3 == 0 or wire not in (VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES):
            raise ValueError("a field without a number, or with an unused wire type")
        value: Any
        if wire == VARINT:
            value, offset = _varint(content, offset)
        else:
            size, offset = (8 if wire == EIGHT_BYTES else 4, offset) if wire != LENGTH else _varint(content, offset)
            value, offset = content[offset : offset + size], offset + size
            if offset > len(content):
                raise ValueError("a field that extends beyond the file")
        yield key >> 3, wire, value


def _varint(content: bytes, offset: int) -> tuple[int, int]:
    """Return the number at an offset, seven bits per byte, and the offset after it."""
    number = 0
    for shift in range(0, 64, 7):
        byte = content[offset]
        offset += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, offset
    raise ValueError("a number of more than 64 bits")
