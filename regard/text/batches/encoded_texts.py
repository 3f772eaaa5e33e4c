"""Encode texts as rows of tokens, with an optional cache on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.text.batches.batch import TokenRows
from regard.text.batches.token_cache import Arrays, cache_key, cached_arrays
from regard.text.tokenizers.tokenizer import Tokenizer

CHUNK_TEXTS = 16_384  # encoded at a time, because lists of numbers take much memory
CHUNK_CHARACTERS = 2**24  # of them together, unless one text is longer


def encoded_rows(tokenizer: Tokenizer, texts: Sequence[str], cache: Path | None = None) -> TokenRows:
    """Return the tokens of each text, from the folder `cache` if it has them."""

    def make() -> Arrays:
        rows = TokenRows.of(_encoded(tokenizer, texts))
        return {"flat": rows.flat, "lengths": rows.lengths}

    arrays = cached_arrays(cache, "" if cache is None else cache_key("tokens", *tokenizer.save(), *texts), make)
    return TokenRows(arrays["flat"], arrays["lengths"])


def tokens_fingerprint(arrays: Iterable[NDArray]) -> str:
    """Return the sha256 of arrays of whole numbers."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).astype("<i8").tobytes())
        digest.update(b"|")
    return digest.hexdigest()


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[list[int]]:
    first = characters = 0
    for i, text in enumerate(texts):
        if i - first == CHUNK_TEXTS or (i > first and characters + len(text) > CHUNK_CHARACTERS):
            yield from tokenizer.encode_all(texts[first:i])
            first, characters = i, 0
        characters += len(text)
    if first < len(texts):
        yield from tokenizer.encode_all(texts[first:])
