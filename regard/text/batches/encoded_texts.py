"""Texts as rows of tokens, kept on disk where a folder for them is given."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.text.batches.batch import Rows
from regard.text.batches.token_cache import Arrays, kept_arrays, key_of
from regard.text.tokenizers.tokenizer import Tokenizer

ENCODED_AT_ONCE = 16_384  # for lists of numbers take much memory


def encoded_rows(tokenizer: Tokenizer, texts: Sequence[str], cache: Path | None = None) -> Rows:
    """The tokens of each text."""

    def make() -> Arrays:
        rows = Rows.of(_encoded(tokenizer, texts))
        return {"flat": rows.flat, "lengths": rows.lengths}

    arrays = kept_arrays(cache, "" if cache is None else key_of("tokens", *tokenizer.save(), *texts), make)
    return Rows(arrays["flat"], arrays["lengths"])


def tokens_fingerprint(arrays: Iterable[NDArray]) -> str:
    """sha256 of arrays of whole numbers."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).astype("<i8").tobytes())
        digest.update(b"|")
    return digest.hexdigest()


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[list[int]]:
    for first in range(0, len(texts), ENCODED_AT_ONCE):
        yield from tokenizer.encode_all(texts[first : first + ENCODED_AT_ONCE])
