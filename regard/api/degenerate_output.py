"""Degenerate translations: empty ones, and endless repetition."""

from __future__ import annotations

import re

from regard.api.source_text import Source
from regard.decoding.searches.repetition import MAX_COPIES, find_repetition
from regard.decoding.searches.search import Hypothesis
from regard.text.tokenizers.special_tokens import END
from regard.text.tokenizers.tokenizer import Tokenizer


def is_degenerate(hypothesis: Hypothesis, source: Source, tokenizer: Tokenizer, *, has_prefix: bool) -> bool:
    """Whether a translation is empty (and has no prefix) or repeats itself."""
    empty = all(token == END for token in hypothesis.tokens)
    return (empty and not has_prefix) or repetition_end(hypothesis, source, tokenizer) is not None


def repetition_end(hypothesis: Hypothesis, source: Source, tokenizer: Tokenizer) -> int | None:
    """Return the end of the first copy, in tokens, if a translation repeats the same words and its source does not."""
    words = tokenizer.words(hypothesis.tokens)
    repetition = find_repetition([bare_word(word.text) for word in words])
    allowed = max(MAX_COPIES, find_repetition([bare_word(word.text) for word in source.words]).copies)
    return words[repetition.end - 1].end if repetition.copies > allowed else None


def bare_word(text: str) -> str:
    """Lowercase a word and remove punctuation around it, unless nothing else is left."""
    return re.sub(r"^\W+|\W+$", "", text).lower() or text
