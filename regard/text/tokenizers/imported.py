"""The tokenizer of an imported model: a file of the `tokenizers` library, used as it is.

A4. Its token ids and its special tokens are its own. What stands around a text is not the tokenizer's business here:
`frame` returns it, and the model folder stores it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.errors import ModelError
from regard.text.tokenizers.imported_file import check_tokenizer
from regard.text.tokenizers.tokenizer import SPACE, Word, group_words

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

VISIBLE = {"\n": "⏎", "\t": "⇥", " ": SPACE}
PROBE = "a"  # a text whose frame is that of every text
MAX_TOKENS = 2**24


class ImportedTokenizer:
    """Maps text to tokens and back as the tokenizer of another library does."""

    FILE = "tokenizer.json"

    def __init__(self, content: bytes) -> None:
        self._content = content
        settings = check_tokenizer(content)
        self._library = _load(content)
        added = {token.get("id"): token for token in settings.get("added_tokens") or []}
        self._special = frozenset(number for number, token in added.items() if token.get("special"))
        self.special = {str(token.get("content")): number for number, token in added.items() if number in self._special}
        self._verbatim = frozenset(added)  # tokens whose text is not in the alphabet of the others
        self._bytes_of = _byte_alphabet() if "ByteLevel" in _kinds(settings.get("decoder")) else None
        model = settings["model"]
        self._wordpiece = model.get("continuing_subword_prefix") if model["type"] == "WordPiece" else None
        numbers = self._library.get_vocab(with_added_tokens=True).values()
        self._size = max(numbers, default=-1) + 1
        if not 0 < self._size <= MAX_TOKENS:
            raise ModelError(f"it has {self._size} tokens")
        unknown = settings["model"].get("unk_token")
        self._unknown = self._library.token_to_id(unknown) if isinstance(unknown, str) else None

    @property
    def size(self) -> int:
        return self._size

    @property
    def unknown(self) -> int | None:
        """The token for what the vocabulary lacks, or None if there is no such token."""
        return self._unknown

    def name(self, token: int) -> str:
        """Return a token as the file writes it, such as "</s>"; empty if there is none of that number."""
        return self._library.id_to_token(token) or ""

    def encode(self, text: str) -> list[int]:
        return list(self._library.encode(text, add_special_tokens=False).ids)

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(each.ids) for each in self._library.encode_batch(list(texts), add_special_tokens=False)]

    def frame(self) -> tuple[list[int], list[int]]:
        """Return the tokens that the file puts before and after a text."""
        whole = list(self._library.encode(PROBE, add_special_tokens=True).ids)
        plain = self.encode(PROBE)
        for start in range(len(whole) - len(plain) + 1):
            if whole[start : start + len(plain)] == plain:
                return whole[:start], whole[start + len(plain) :]
        raise ModelError("its post_processor changes the text itself")

    def decode(self, tokens: Sequence[int], *, unknown: Sequence[str] = ()) -> str:
        content = [int(token) for token in tokens if int(token) not in self._special or int(token) == self._unknown]
        replacements = list(unknown)
        if self._unknown is None or self._unknown not in content or not replacements:
            return self._library.decode(content, skip_special_tokens=True)
        text, run = "", []
        for token in content:
            if token != self._unknown:
                run.append(token)
                continue
            word = replacements.pop(0) if replacements else ""
            text, run = text + self._library.decode(run, skip_special_tokens=True) + word, []
        return text + self._library.decode(run, skip_special_tokens=True)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return [self._piece(token) for token in tokens]

    def words(self, tokens: Sequence[int]) -> list[Word]:
        blanks = [None if token in self._special and token != self._unknown else self._blank(token) for token in tokens]
        return [Word(self._word(tokens[start:end]), start, end) for start, end in group_words(blanks)]

    def _word(self, tokens: Sequence[int]) -> str:
        return self.decode(tokens).strip() or "".join(self.pieces(tokens))  # an unknown token has no text

    def save(self) -> tuple[str, bytes]:
        return self.FILE, self._content

    def _piece(self, token: int) -> str:
        """Return a token as readable text; bytes that are no whole character are shown as numbers."""
        name = self._library.id_to_token(int(token))
        if name is None:
            return ""
        if self._bytes_of is None or token in self._verbatim:
            return "".join(VISIBLE.get(character, character) for character in name)
        content = self._content_of(name)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in content)
        return "".join(VISIBLE.get(character, character) for character in text)

    def _content_of(self, name: str) -> bytes:
        assert self._bytes_of is not None
        return bytes(self._bytes_of.get(character, 0x20) for character in name)

    def _blank(self, token: int) -> tuple[bool, bool]:
        """Return whether a token begins with a space, and whether it is nothing else."""
        name = self._library.id_to_token(int(token)) or ""
        if self._wordpiece is not None:
            return not name.startswith(self._wordpiece), False
        if self._bytes_of is not None and token not in self._verbatim:
            name = self._content_of(name).decode(errors="replace")
        name = name.replace(SPACE, " ")
        return name[:1].isspace(), not name.strip()


def _load(content: bytes) -> Library:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
    from tokenizers import Tokenizer as Library

    try:
        library = Library.from_str(content.decode())
        library.no_padding()
        library.no_truncation()
    except Exception as error:  # the library raises nothing more specific
        raise ModelError(f"the tokenizers library cannot read it: {str(error)[:200]!r}") from error
    return library


def _kinds(part: Any) -> set[str]:
    """Return the kinds of a part and of the parts inside it."""
    if not isinstance(part, dict):
        return set()
    return {str(part.get("type"))}.union(*map(_kinds, part.get("decoders") or []))


def _byte_alphabet() -> dict[str, int]:
    """Return the byte of each letter of byte-level tokens: a printable byte is its own letter (Radford et al. 2019)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
