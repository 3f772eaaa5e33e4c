"""A tokenizer of other authors: a sentencepiece model whose pieces have numbers of their own.

A4. Marian and M2M100 split a text with sentencepiece, one model for each side, and look the pieces up in a vocabulary
that both sides may share. Some vocabularies have codes such as ">>deu<<", which say into which language to translate.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

import sentencepiece

from regard.errors import ModelError
from regard.text.tokenizers.foreign_subword_file import read_foreign_pieces
from regard.text.tokenizers.special_tokens import LANGUAGE_CODE
from regard.text.tokenizers.subword_file import BYTE, CONTROL, UNKNOWN
from regard.text.tokenizers.tokenizer import SPACE, Word, group_words

MAX_TOKENS = 2**22


class PieceTokenizer:
    """Maps text to tokens and back by pieces of a sentencepiece model, looked up in a vocabulary.

    A piece that the vocabulary lacks is the unknown token. `special` are tokens that no text contains.
    """

    FILE = "pieces.json"

    def __init__(self, content: bytes) -> None:
        self._content = content
        settings = _read_settings(content)
        self.names: list[str] = settings["vocabulary"]  # of all tokens, in order
        self._unknown: int = settings["unknown"]
        self._special = frozenset(settings["special"])
        self.model = model = _decode_model(settings["model"])
        pieces = read_foreign_pieces(model)
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ModelError(f"not a sentencepiece model: {error}") from error
        self._tokens = {name: token for token, name in enumerate(self.names)}
        self._token_of = [
            self._unknown if piece.kind in (CONTROL, UNKNOWN) else self._tokens.get(piece.text, self._unknown)
            for piece in pieces
        ]
        self._bytes = frozenset(self._token_of[i] for i, piece in enumerate(pieces) if piece.kind == BYTE)
        self._has_codes = any(name.startswith(">>") for name in self.names)

    @property
    def size(self) -> int:
        return len(self.names)

    @property
    def unknown(self) -> int:
        """The token for what the vocabulary lacks."""
        return self._unknown

    @cached_property
    def codes(self) -> dict[str, int]:
        """The tokens of languages by their names: ">>deu<<" is "deu"."""
        return {name[2:-2]: token for name, token in self._tokens.items() if LANGUAGE_CODE.fullmatch(name)}

    def token(self, name: str) -> int | None:
        """Return the token of this name, such as "</s>", or None."""
        return self._tokens.get(name)

    def encode(self, text: str) -> list[int]:
        code: list[int] = []
        if self._has_codes and (match := LANGUAGE_CODE.match(text)):
            code, text = [self._tokens.get(match[0], self._unknown)], text[match.end() :]
        text = text.encode(errors="replace").decode()  # half surrogates are no characters
        numbers = self._processor.encode(text)
        tokens = [self._token_of[number] for number in numbers]
        if self._unknown in tokens:  # what sentencepiece does not know may still be in the vocabulary
            tokens = [self._tokens.get(piece, self._unknown) for piece in self._processor.encode(text, out_type=str)]
            tokens = [self._unknown if token in self._special else token for token in tokens]
        return code + tokens

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, tokens: Sequence[int], *, unknown: Sequence[str] = ()) -> str:
        """Return the text without special tokens. The i-th unknown token becomes unknown[i], if there is one."""
        content = [int(token) for token in tokens if token not in self._special or token == self._unknown]
        if self._unknown not in content:
            return self._text(content)
        words, replacements = [], iter(unknown)
        for is_unknown, run in groupby(content, self._unknown.__eq__):
            tokens = list(run)
            words += [next(replacements, "") for _ in tokens] if is_unknown else [self._text(tokens)]
        return " ".join(filter(None, words))

    def _text(self, tokens: Sequence[int]) -> str:
        names = [self.names[token] for token in tokens]
        return self._processor.decode_pieces(names).replace(SPACE, " ").strip()

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return [self.names[token] if 0 <= token < len(self.names) else "" for token in tokens]

    def words(self, tokens: Sequence[int]) -> list[Word]:
        blanks = [self._blank(int(token)) for token in tokens]
        return [Word(self._word(tokens[start:end]), start, end) for start, end in group_words(blanks)]

    def _word(self, tokens: Sequence[int]) -> str:
        return self.decode(tokens) or "".join(self.pieces(tokens)).strip(SPACE)  # an unknown token has no text

    def _blank(self, token: int) -> tuple[bool, bool] | None:
        """Return whether a token begins with a space, and whether it is nothing else; None if it is special."""
        name = self.names[token]
        if (token in self._special and token != self._unknown) or (self._has_codes and LANGUAGE_CODE.fullmatch(name)):
            return None
        return name.startswith(SPACE), name == SPACE

    def save(self) -> tuple[str, bytes]:
        return self.FILE, self._content


def make_piece_file(model: bytes, vocabulary: Sequence[str], *, unknown: int, special: Sequence[int]) -> bytes:
    """Return the content of pieces.json for a sentencepiece model and the names of all tokens in order."""
    settings = {
        "model": base64.b64encode(model).decode(),
        "vocabulary": list(vocabulary),
        "unknown": unknown,
        "special": sorted(special),
    }
    return json.dumps(settings, ensure_ascii=False).encode()


def pieces_of(model: bytes) -> list[str]:
    """Return the texts of the pieces of a sentencepiece model, in order."""
    return [piece.text for piece in read_foreign_pieces(model)]


def _read_settings(content: bytes) -> dict[str, Any]:
    try:
        settings = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ModelError("it is not valid JSON") from error
    if not isinstance(settings, dict) or settings.keys() != {"model", "vocabulary", "unknown", "special"}:
        raise ModelError("it must have the entries model, vocabulary, unknown and special")
    names, special, unknown = settings["vocabulary"], settings["special"], settings["unknown"]
    if not isinstance(names, list) or not 0 < len(names) <= MAX_TOKENS:
        raise ModelError("vocabulary must be a list of tokens")
    if not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise ModelError("vocabulary must be a list of different texts")
    if any("\ud800" <= letter <= "\udfff" for letter in "".join(names)):
        raise ModelError("vocabulary has a token that is no text")
    ids = [*special, unknown] if isinstance(special, list) else [None]
    if not all(type(token) is int and 0 <= token < len(names) for token in ids):
        raise ModelError(f"special and unknown must be tokens from 0 to {len(names) - 1}")
    return settings


def _decode_model(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ModelError("model must be a sentencepiece model in base64")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ModelError("model must be a sentencepiece model in base64") from error
