"""Check a sentencepiece model of other authors before sentencepiece reads it, because sentencepiece trusts its input.

subword_file.py accepts only what regard writes. A foreign model may have any pieces, settings and rules for
characters. The rules are a trie in an array, which sentencepiece follows without looking where the array ends: each
step that a text can take is tried here first.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

import numpy as np

from regard.errors import ModelError
from regard.text.tokenizers.subword_file import (
    EXTRA_SPACES,
    FOUR_BYTES,
    LENGTH,
    MAX_PIECES,
    MAX_SCORE,
    MODEL_TYPE,
    NORMAL,
    NORMALIZER,
    PIECE,
    PREFIX,
    RULES,
    TRAINER,
    VARINT,
    WHITESPACE_AS_SUFFIX,
    read_fields,
    read_settings,
)

MAX_TEXT_BYTES = 1024  # of a piece
MAX_RULES_BYTES = 4 * 2**20  # of nmt_nfkc: 240 KB
KINDS = range(1, 7)
MODEL_TYPES = (1, 2)  # unigram and BPE
DENORMALIZER = 5  # rules for what is written, a field of the model
MAX_DEPTH = 256  # bytes that a rule replaces
FRONT = 4096  # units that are looked at together
BYTES = np.arange(256)


class ForeignPiece(NamedTuple):
    """A piece of a vocabulary."""

    text: str
    kind: int  # as in subword_file.py


def read_foreign_pieces(content: bytes) -> list[ForeignPiece]:
    """Return the pieces of a sentencepiece model in order; ModelError if it is not safe to use."""
    pieces: list[ForeignPiece] = []
    parts: dict[int, bytes] = {}
    try:
        for field, wire, value in read_fields(content, 0):
            if wire != LENGTH:
                raise ValueError("a field of the model that is no message")
            if field == PIECE:
                pieces.append(_read_piece(value))
                if len(pieces) > MAX_PIECES:
                    raise ModelError(f"not a sentencepiece model: it has more than {MAX_PIECES} pieces")
            elif field in (TRAINER, NORMALIZER, DENORMALIZER):
                parts[field] = parts.get(field, b"") + value  # as protocol buffers merge a message
    except ModelError:  # a subclass of ValueError
        raise
    except (IndexError, ValueError) as error:
        raise ModelError("not a sentencepiece model: it is damaged, truncated, or from another program") from error
    texts = [piece.text for piece in pieces]
    if not pieces or "" in texts or len({*texts}) < len(texts):
        raise ModelError("not a sentencepiece model: it has no pieces, or one that is empty or occurs twice")
    trainer = read_settings(parts.get(TRAINER, b""))
    if trainer.get(MODEL_TYPE, 1) not in MODEL_TYPES:
        raise ModelError("the sentencepiece model splits into words or characters; regard reads unigram and BPE")
    if trainer.get(WHITESPACE_AS_SUFFIX, 0) != 0:
        raise ModelError("the sentencepiece model puts spaces after words, which regard does not implement")
    for part in (NORMALIZER, DENORMALIZER):
        normalizer = read_settings(parts.get(part, b""))
        rules = normalizer.get(RULES, b"")
        spaces = normalizer.get(PREFIX, 1), normalizer.get(EXTRA_SPACES, 1)
        if not isinstance(rules, bytes) or not all(isinstance(flag, int) for flag in spaces):
            raise ModelError("not a sentencepiece model: its rules are damaged")
        if rules:
            check_rules(rules)
    return pieces


def _read_piece(message: bytes) -> ForeignPiece:
    text, kind, score = "", NORMAL, 0.0
    for field, wire, value in read_fields(message, 0):
        if (field, wire) == (1, LENGTH):
            if len(value) > MAX_TEXT_BYTES:
                raise ValueError("a piece that is too long")
            text = value.decode()
        elif (field, wire) == (2, FOUR_BYTES):
            (score,) = struct.unpack("<f", value)
        elif (field, wire) == (3, VARINT):
            kind = value
    if kind not in KINDS or not math.fabs(score) <= MAX_SCORE:  # also false for NaN
        raise ValueError("a piece of no known kind, or a score that is no number")
    return ForeignPiece(text, kind)


def check_rules(rules: bytes) -> None:
    """Raise ModelError unless no text leads out of the rules for characters, `precompiled_charsmap`.

    They are the size of the trie in bytes, the trie as units of 32 bits, and texts that end with NUL. A unit has a
    label (a byte), the offset of its children, and says whether one of them is a value, the place of a text.
    """
    error = ModelError("not a sentencepiece model: its rules for characters are damaged")
    if len(rules) > MAX_RULES_BYTES or len(rules) < 4:
        raise error
    (size,) = struct.unpack_from("<I", rules)
    texts = rules[4 + size :]
    if size % 4 or size < 4 or 4 + size > len(rules) or not texts.endswith(b"\0"):
        raise error
    units = np.frombuffer(rules, "<u4", count=size // 4, offset=4).astype(np.int64)
    children = (units >> 10) << ((units & 512) >> 6)
    labels = units & (1 << 31 | 255)
    visited = np.zeros(len(units), bool)
    front = np.zeros(1, np.int64)  # the units that texts of some length reach
    for _ in range(MAX_DEPTH):
        visited[front] = True
        base = front ^ children[front]
        if base.max() | 255 >= len(units):  # any byte may follow
            raise error
        values = units[base[(units[front] >> 8) & 1 == 1]] & ((1 << 31) - 1)
        if len(values) and values.max() >= len(texts):
            raise error
        reached = [_children(base[start : start + FRONT], labels) for start in range(0, len(base), FRONT)]
        front = np.unique(np.concatenate(reached))
        front = front[~visited[front]]
        if not len(front):
            return
    raise error


def _children(base: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the units that one more byte reaches."""
    following = base[:, None] ^ BYTES  # (front, 256)
    return following[labels[following] == BYTES]
