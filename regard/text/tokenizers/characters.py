"""A tokenizer whose tokens are characters.

C2. The vocabulary consists of all characters of the training text, in Unicode order.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise

from regard.errors import DataError, ModelError
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS, UNKNOWN
from regard.text.tokenizers.tokenizer import SPACE, Word, group_words

VISIBLE = {" ": SPACE, "\n": "⏎", "\t": "⇥"}


class CharacterTokenizer:
    """Maps characters (code points) to tokens and back; a character outside the vocabulary is UNKNOWN.

    Texts are first normalized to Unicode NFC. If all characters are known, decode(encode(text)) is the text in NFC.
    """

    FILE = "characters.json"

    def __init__(self, content: bytes) -> None:
        try:
            entries = json.loads(content)
            characters = entries["characters"] if isinstance(entries, dict) and len(entries) == 1 else None
            if not isinstance(characters, str):
                raise ValueError('expected one text under the key "characters"')
            characters.encode()  # half surrogates are not characters
        except (ValueError, RecursionError, KeyError) as error:
            raise ModelError(f"not the characters of a tokenizer: {error}") from error
        if not characters or any(a >= b for a, b in pairwise(characters)):
            raise ModelError("not the characters of a tokenizer: each must occur once, in Unicode order")
        self._characters = [*[""] * len(SPECIAL_TOKENS), *characters]
        self._numbers = {character: i for i, character in enumerate(characters, start=len(SPECIAL_TOKENS))}

    @property
    def size(self) -> int:
        return len(self._characters)

    def encode(self, text: str) -> list[int]:
        numbers = self._numbers
        return [numbers.get(character, UNKNOWN) for character in unicodedata.normalize("NFC", text)]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, tokens: Sequence[int], *, unknown: Sequence[str] = ()) -> str:
        replacements = iter(unknown)
        return "".join(next(replacements, "") if token == UNKNOWN else self._characters[token] for token in tokens)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return [
            SPECIAL_TOKENS[token] if token < len(SPECIAL_TOKENS) else VISIBLE.get(character, character)
            for token, character in ((token, self._characters[token]) for token in tokens)
        ]

    def words(self, tokens: Sequence[int]) -> list[Word]:
        """Return the words. Whitespace belongs to the word after it, unknown characters are part of a word."""
        texts = [SPECIAL_TOKENS[UNKNOWN] if token == UNKNOWN else self._characters[token] for token in tokens]
        spans = group_words([(text.isspace(), text.isspace()) if text else None for text in texts])
        return [Word("".join(texts[start:end]).strip(), start, end) for start, end in spans]

    def save(self) -> tuple[str, bytes]:
        characters = "".join(self._characters)
        return self.FILE, json.dumps({"characters": characters}, ensure_ascii=False).encode()


def train_characters(texts: Iterable[str]) -> CharacterTokenizer:
    """Make a tokenizer of all characters in the texts."""
    seen: set[str] = set()
    for text in texts:
        seen.update(unicodedata.normalize("NFC", text))
    if not seen:
        raise DataError("there are no characters to learn from: the texts are empty")
    return CharacterTokenizer(json.dumps({"characters": "".join(sorted(seen))}).encode())
