"""Translate a long list in chunks, two at a time: while C decodes one chunk, Python reads or writes another.

C releases Python's lock, so the cores do not wait for the part of the work that is Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from regard.api.results import Translation

CHUNK_TEXTS = 256
CHUNKS_AT_ONCE = 2  # of more, all but one would wait for Python's lock


def translate_in_chunks(
    translate: Callable[[Sequence[str], Sequence[int]], list[Translation]], texts: Sequence[str], numbers: Sequence[int]
) -> list[Translation]:
    """Return the translations of texts and their numbers, in order; an error ends the work after the current chunks."""
    with ThreadPoolExecutor(CHUNKS_AT_ONCE) as pool:
        chunks = [
            pool.submit(translate, texts[first : first + CHUNK_TEXTS], numbers[first : first + CHUNK_TEXTS])
            for first in range(0, len(texts), CHUNK_TEXTS)
        ]
        try:
            return [translation for chunk in chunks for translation in chunk.result()]
        except BaseException:  # Ctrl-C, too
            pool.shutdown(wait=False, cancel_futures=True)
            raise
