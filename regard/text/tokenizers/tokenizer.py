"""What a tokenizer is, and its files in a model folder.

A4, B1. A tokenizer turns text into numbers and back; the first four numbers are the special tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from regard.errors import ModelError
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS

LARGEST_FILE = 64 * 2**20  # bytes
# A file is held against the number of tokens that the model has. A piece takes fewer than 130 bytes in it, a character
# at most 12, and a thousand more are the settings.
BYTES_OF_A_TOKEN = {"tokenizer.model": 130, "characters.json": 12}
BYTES_BESIDE = 1000
SIDES = ("source.", "target.")
SPACE = "▁"  # U+2581, which stands for a space in pieces shown to people


class Word(NamedTuple):
    """The pieces [start:end) that make one word, and its text."""

    text: str
    start: int
    end: int


class Tokenizer(Protocol):
    """Text to numbers and back."""

    @property
    def size(self) -> int:
        """The numbers run from 0 to size - 1, the four special tokens among them."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without START and END."""

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text."""

    def decode(self, tokens: Sequence[int], *, unknown: Sequence[str] = ()) -> str:
        """The text; PAD, START and END are left out. The i-th UNKNOWN is written as unknown[i], or left out."""

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token as it is shown to people, ▁ for a space."""

    def words(self, tokens: Sequence[int]) -> list[Word]:
        """The words that the tokens make, in order; PAD, START and END belong to none, an UNKNOWN is one of its own."""

    def save(self) -> tuple[str, bytes]:
        """The name of the file in a model folder, and its content."""


def read_tokenizers(folder: str | Path, *, most: int | None = None) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of source and target in a model folder; the same object when they share one.

    `most` is how many tokens the model has: a file that must hold more is refused before it is read.
    """
    folder = Path(folder)
    shared = _read(folder, "", most)
    sides = [_read(folder, side, most) for side in SIDES]
    if shared is not None and any(sides):
        raise ModelError(f"{folder}: holds one tokenizer for both sides and another for one side; one must go")
    if shared is not None:
        return shared, shared
    source, target = sides
    if source is None and target is None:
        raise ModelError(f"{folder}: no tokenizer in it (tokenizer.model or characters.json)")
    if source is None or target is None:
        raise ModelError(f"{folder}: the tokenizer of the {'source' if source is None else 'target'} is missing")
    return source, target


def tokenizer_files(source: Tokenizer, target: Tokenizer) -> dict[str, bytes]:
    """The files of a model folder that read_tokenizers reads: one where both sides share it, else two."""
    files = [source.save(), target.save()]
    if files[0] == files[1]:
        return dict(files[:1])
    return {side + name: content for side, (name, content) in zip(SIDES, files, strict=True)}


def unseen(tokenizer: Tokenizer, sentences: Iterable[Sequence[int]]) -> list[int]:
    """The tokens that no sentence of the training data has, so that a model cannot know them: mostly bytes."""
    seen: set[int] = set()
    for sentence in sentences:
        seen.update(sentence)
    return [token for token in range(len(SPECIAL_TOKENS), tokenizer.size) if token not in seen]


def group_words(blanks: Sequence[tuple[bool, bool] | None]) -> list[tuple[int, int]]:
    """Where words start and end, given for each piece whether it begins with a blank and whether it is nothing else.

    None parts words and belongs to none. Blanks lead the word that they stand before; at the very end they are none.
    """
    words: list[tuple[int, int]] = []
    start: int | None = None  # of the word that is being read
    solid = False  # whether it has more than blanks yet
    for i, blank in enumerate([*blanks, None]):
        if start is not None and (blank is None or (blank[0] and solid)):
            if solid:
                words.append((start, i))
            start = None
        if blank is not None:
            solid = (start is not None and solid) or not blank[1]
            start = i if start is None else start
    return words


def _read(folder: Path, side: str, most: int | None) -> Tokenizer | None:
    """The tokenizer under that side's names, None where there is none."""
    from regard.text.tokenizers.characters import CharacterTokenizer
    from regard.text.tokenizers.subwords import SubwordTokenizer

    if (folder / f"{side}tokenizer.json").exists():
        raise ModelError(f"{folder / f'{side}tokenizer.json'}: tokenizers of imported models cannot be read yet")
    paths = {kind: folder / (side + kind.FILE) for kind in (SubwordTokenizer, CharacterTokenizer)}
    there = {kind: path for kind, path in paths.items() if path.exists() or path.is_symlink()}
    if len(there) > 1:
        raise ModelError(f"{folder}: both {' and '.join(path.name for path in there.values())}; one must go")
    for kind, path in there.items():
        if path.is_symlink() or not path.is_file():
            raise ModelError(f"{path}: not a regular file")
        largest = LARGEST_FILE if most is None else min(LARGEST_FILE, BYTES_OF_A_TOKEN[kind.FILE] * most + BYTES_BESIDE)
        if path.stat().st_size > largest:
            of = "" if most is None else f" of {most} tokens"
            raise ModelError(f"{path}: larger than {largest} bytes, which no tokenizer{of} is")
        try:
            return kind(path.read_bytes())
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from error
    return None
