"""A tokenizer whose tokens are labels: the classes of a text classifier, one token each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise

from regard.errors import DataError, ModelError
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS, UNKNOWN
from regard.text.tokenizers.tokenizer import Word

MAX_LABELS = 10_000  # more are rather sentences than classes
MAX_LABEL_CHARACTERS = 100


class LabelTokenizer:
    """Maps a label to its token and back; a label that training never saw is UNKNOWN."""

    FILE = "labels.json"

    def __init__(self, content: bytes) -> None:
        try:
            entries = json.loads(content)
            labels = entries["labels"] if isinstance(entries, dict) and len(entries) == 1 else None
            if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
                raise ValueError('expected a list of texts under the key "labels"')
        except (ValueError, RecursionError, KeyError) as error:
            raise ModelError(f"not the labels of a classifier: {error}") from error
        if not 0 < len(labels) <= MAX_LABELS or any(a >= b for a, b in pairwise(labels)):
            raise ModelError(f"not the labels of a classifier: 1 to {MAX_LABELS:,}, each once and in Unicode order")
        if any(not label or len(label) > MAX_LABEL_CHARACTERS for label in labels):
            raise ModelError(f"not the labels of a classifier: a label has 1 to {MAX_LABEL_CHARACTERS} characters")
        self.labels: list[str] = labels
        self._numbers = {label: i for i, label in enumerate(labels, start=len(SPECIAL_TOKENS))}

    @property
    def size(self) -> int:
        return len(SPECIAL_TOKENS) + len(self.labels)

    def encode(self, text: str) -> list[int]:
        return [self._numbers.get(text, UNKNOWN)]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, tokens: Sequence[int], *, unknown: Sequence[str] = ()) -> str:
        replacements = iter(unknown)
        labels = [next(replacements, "") if token == UNKNOWN else self._label(token) for token in tokens]
        return " ".join(filter(None, labels))

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return [self._label(token) or SPECIAL_TOKENS[token] for token in tokens]

    def words(self, tokens: Sequence[int]) -> list[Word]:
        labels = self.pieces(tokens)
        return [
            Word(label, i, i + 1)
            for i, (token, label) in enumerate(zip(tokens, labels, strict=True))
            if token == UNKNOWN or token >= len(SPECIAL_TOKENS)
        ]

    def save(self) -> tuple[str, bytes]:
        return self.FILE, json.dumps({"labels": self.labels}, ensure_ascii=False).encode()

    def _label(self, token: int) -> str:
        """Return the label of a token; empty for a special token."""
        return "" if token < len(SPECIAL_TOKENS) else self.labels[token - len(SPECIAL_TOKENS)]


def train_labels(labels: Iterable[str]) -> LabelTokenizer:
    """Make a tokenizer of all labels of the data; DataError if they are too many or too long for classes."""
    known = sorted(set(labels))
    if len(known) < 2:
        only = f"{len(known)}, {known[0]!r}" if known else "0"
        raise DataError(f"a classifier needs two labels or more, and the data has {only}: add samples of other classes")
    longest = max(known, key=len)
    if len(known) > MAX_LABELS or len(longest) > MAX_LABEL_CHARACTERS:
        raise DataError(
            f"the data has {len(known):,} labels, the longest with {len(longest)} characters: these look like texts. "
            "The first column has the label and the second one the text; data.columns names others"
        )
    return LabelTokenizer(json.dumps({"labels": known}).encode())
