"""The tokenizer protocol, and the files of tokenizers in a model folder.

A4, B1. A tokenizer maps text to token ids and back; the first four ids are the special tokens, except in an imported
tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from regard.errors import ModelError
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS

MAX_FILE_BYTES = 64 * 2**20  # bytes
# The vocabulary of the model limits the size of the file: a subword takes fewer than 130 bytes, a character at most 12,
# a label of 100 escaped characters at most 1,300, and the settings about a thousand.
BYTES_PER_TOKEN = {
    "tokenizer.model": 130,
    "characters.json": 12,
    "labels.json": 1300,
    "words.json": 600,
    "tokenizer.json": 160,  # of published models: 15 to 72
    "pieces.json": 160,
}
EXTRA_BYTES = 1000
EXTRA_BYTES_IMPORTED = 64 * 2**10
EXTRA_BYTES_RULES = 512 * 2**10  # rules for characters, which a sentencepiece model of others has
SIDES = ("source.", "target.")
SPACE = "▁"  # U+2581, which replaces a space where tokens are displayed


class Word(NamedTuple):
    """A word: its text and its tokens [start:end)."""

    text: str
    start: int
    end: int


class Tokenizer(Protocol):
    """Maps text to token ids and back."""

    @property
    def size(self) -> int:
        """The size of the vocabulary, including the four special tokens; ids run from 0 to size - 1."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without START and END."""

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text."""

    def decode(self, tokens: Sequence[int], *, unknown: Sequence[str] = ()) -> str:
        """Return the text without PAD, START and END. The i-th UNKNOWN becomes unknown[i], if there is one."""

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return each token as readable text, with ▁ for a space."""

    def words(self, tokens: Sequence[int]) -> list[Word]:
        """Return the words of the tokens in order. PAD, START and END belong to no word; UNKNOWN is a word."""

    def save(self) -> tuple[str, bytes]:
        """Return the name of the tokenizer's file in a model folder, and its content."""


class NoTokenizer:
    """Takes the place of a tokenizer where a model neither reads nor writes text, such as one for series."""

    size = 0

    def encode(self, text: str) -> list[int]:
        raise TypeError("this model has no tokenizer: its input is not text")

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, tokens: Sequence[int], *, unknown: Sequence[str] = ()) -> str:
        raise TypeError("this model has no tokenizer: its output is not text")

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return [self.decode([token]) for token in tokens]

    def words(self, tokens: Sequence[int]) -> list[Word]:
        return [Word(self.decode([token]), i, i + 1) for i, token in enumerate(tokens)]

    def save(self) -> tuple[str, bytes]:
        raise TypeError("this model has no tokenizer, so there is no file of it")


NO_TOKENIZER = NoTokenizer()


def read_tokenizers(
    folder: str | Path, *, max_tokens: int | None = None, expected: bool = True
) -> tuple[Tokenizer, Tokenizer]:
    """Read the tokenizers of source and target in a model folder; a shared tokenizer is one object.

    `max_tokens` is the vocabulary of the model: a file that is too large for it is refused before it is read. If none
    is `expected`, because the model has no vocabulary, both are NO_TOKENIZER.
    """
    folder = Path(folder)
    if not expected:
        return NO_TOKENIZER, NO_TOKENIZER
    shared = _read(folder, "", max_tokens)
    sides = [_read(folder, side, max_tokens) for side in SIDES]
    if shared is not None and any(sides):
        raise ModelError(
            f"{folder}: contains a tokenizer for both sides and another one for one side; remove one of them"
        )
    if shared is not None:
        return shared, shared
    source, target = sides
    if source is None and target is None:
        raise ModelError(
            f"{folder}: contains no tokenizer (tokenizer.model, tokenizer.json, characters.json or words.json)"
        )
    if source is None or target is None:
        raise ModelError(f"{folder}: the tokenizer of the {'source' if source is None else 'target'} is missing")
    return source, target


def tokenizer_files(source: Tokenizer, target: Tokenizer) -> dict[str, bytes]:
    """Return the files that read_tokenizers reads, by name: one if both sides share a tokenizer, else two.

    A model without a tokenizer has no such file.
    """
    if isinstance(source, NoTokenizer) and isinstance(target, NoTokenizer):
        return {}
    files = [source.save(), target.save()]
    if files[0] == files[1]:
        return dict(files[:1])
    return {side + name: content for side, (name, content) in zip(SIDES, files, strict=True)}


def unseen(tokenizer: Tokenizer, sentences: Iterable[Sequence[int]]) -> list[int]:
    """Return the tokens that never occur in the training data, mostly bytes, which a model cannot know."""
    seen: set[int] = set()
    for sentence in sentences:
        seen.update(sentence)
    return [token for token in range(len(SPECIAL_TOKENS), tokenizer.size) if token not in seen]


def group_words(blanks: Sequence[tuple[bool, bool] | None]) -> list[tuple[int, int]]:
    """Return the start and end of each word.

    `blanks` says for each token whether it begins with whitespace and whether it is nothing but whitespace. None
    separates words and belongs to none. Whitespace belongs to the word after it; at the very end it belongs to none.
    """
    words: list[tuple[int, int]] = []
    start: int | None = None  # of the current word
    solid = False  # whether the current word has more than whitespace
    for i, blank in enumerate([*blanks, None]):
        if start is not None and (blank is None or (blank[0] and solid)):
            if solid:
                words.append((start, i))
            start = None
        if blank is not None:
            solid = (start is not None and solid) or not blank[1]
            start = i if start is None else start
    return words


def _read(folder: Path, side: str, max_tokens: int | None) -> Tokenizer | None:
    """Read the tokenizer with the file names of this side; None if there is none."""
    from regard.text.tokenizers.characters import CharacterTokenizer
    from regard.text.tokenizers.imported import ImportedTokenizer
    from regard.text.tokenizers.labels import LabelTokenizer
    from regard.text.tokenizers.pieces import PieceTokenizer
    from regard.text.tokenizers.subwords import SubwordTokenizer
    from regard.text.tokenizers.words import WordTokenizer

    kinds = (
        *(SubwordTokenizer, CharacterTokenizer, LabelTokenizer, WordTokenizer),
        *(ImportedTokenizer, PieceTokenizer),
    )
    paths = {kind: folder / (side + kind.FILE) for kind in kinds}
    existing = {kind: path for kind, path in paths.items() if path.exists() or path.is_symlink()}
    if len(existing) > 1:
        names = " and ".join(path.name for path in existing.values())
        raise ModelError(f"{folder}: contains both {names}; remove one of them")
    for kind, path in existing.items():
        if path.is_symlink() or not path.is_file():
            raise ModelError(f"{path}: not a regular file")
        limit = MAX_FILE_BYTES
        if max_tokens is not None:
            extras = {ImportedTokenizer: EXTRA_BYTES_IMPORTED, PieceTokenizer: EXTRA_BYTES_RULES}
            extra = extras.get(kind, EXTRA_BYTES)
            limit = min(limit, BYTES_PER_TOKEN[kind.FILE] * max_tokens + extra)
        if path.stat().st_size > limit:
            vocabulary = "" if max_tokens is None else f" with {max_tokens} tokens"
            raise ModelError(f"{path}: larger than {limit} bytes, which is too large for a tokenizer{vocabulary}")
        try:
            return kind(path.read_bytes())
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from error
    return None
