"""Translations that are no translations: empty ones, and such that say the same for ever."""

from __future__ import annotations

import re

from regard.api.source_text import Source
from regard.decoding.searches.repetition import MAX_COPIES, find_repetition
from regard.decoding.searches.search import Hypothesis
from regard.text.tokenizers.special_tokens import END
from regard.text.tokenizers.tokenizer import Tokenizer


def is_nonsense(found: Hypothesis, source: Source, tokenizer: Tokenizer, *, begun: bool) -> bool:
    """Whether a text is empty, unless it had begun with a prefix, or goes in circles."""
    empty = all(token == END for token in found.tokens)
    return (empty and not begun) or circle_end(found, source, tokenizer) is not None


def circle_end(found: Hypothesis, source: Source, tokenizer: Tokenizer) -> int | None:
    """Where the first copy ends, in tokens, if a text has the same words again and again and its source has not."""
    words = tokenizer.words(found.tokens)
    circle = find_repetition([bare_word(word.text) for word in words])
    allowed = max(MAX_COPIES, find_repetition([bare_word(word.text) for word in source.words]).copies)
    return words[circle.end - 1].end if circle.copies > allowed else None


def bare_word(text: str) -> str:
    """A word without the marks around it and without capitals, where anything is left of it."""
    return re.sub(r"^\W+|\W+$", "", text).lower() or text
