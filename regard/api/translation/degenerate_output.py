"""Degenerate texts: sources that repeat one word or letter, and translations that are empty or repeat themselves."""

from __future__ import annotations

from functools import lru_cache

from regard.api.translation.source_text import Source
from regard.decoding.searches.repetition import MAX_COPIES, find_repetition
from regard.decoding.searches.search import Hypothesis
from regard.text.augment.proper_names import PUNCTUATION, REMEMBERED_WORDS
from regard.text.tokenizers.placeholder_tokens import ANY_PLACEHOLDER
from regard.text.tokenizers.special_tokens import UNKNOWN, SpecialTokens
from regard.text.tokenizers.tokenizer import Tokenizer

# A source with at least so many words or letters, of which at most so many are different, is not translated.
MIN_REPETITIVE_WORDS, MIN_REPETITIVE_LETTERS, MAX_DIFFERENT = 50, 100, 3


def is_repetitive(text: str) -> bool:
    """Whether a text only repeats a few words or letters; a model would invent a translation of it."""
    if len(text) < min(2 * MIN_REPETITIVE_WORDS - 1, MIN_REPETITIVE_LETTERS):  # words have spaces between them
        return False
    words = [bare_word(word) for word in text.split()]
    letters = "".join(words)
    is_long = len(words) >= MIN_REPETITIVE_WORDS, len(letters) >= MIN_REPETITIVE_LETTERS
    return any(long and len(set(items)) <= MAX_DIFFERENT for long, items in zip(is_long, (words, letters), strict=True))


def is_degenerate(
    hypothesis: Hypothesis, source: Source, tokenizer: Tokenizer, special: SpecialTokens, has_prefix: bool
) -> bool:
    """Whether a translation is empty (and has no prefix) or repeats itself."""
    empty = all(token in special.ends for token in hypothesis.tokens)
    return (empty and not has_prefix) or repetition_end(hypothesis, source, tokenizer) is not None


def repetition_end(hypothesis: Hypothesis, source: Source, tokenizer: Tokenizer) -> int | None:
    """Return the end of the first copy, in tokens, if a translation repeats the same words and its source does not."""
    if not may_repeat(hypothesis, tokenizer):
        return None
    words = tokenizer.words(hypothesis.tokens)
    repetition = find_repetition([bare_word(word.text) for word in words])
    if repetition.copies <= MAX_COPIES:
        return None
    allowed = max(MAX_COPIES, find_repetition([bare_word(word.text) for word in source.words]).copies)
    return words[repetition.end - 1].end if repetition.copies > allowed else None


def may_repeat(hypothesis: Hypothesis, tokenizer: Tokenizer) -> bool:
    """Whether `repetition_end` may find something: with a copy too many, MAX_COPIES words are copies of others.

    Spaces separate all words but UNKNOWN and placeholders.
    """
    text = tokenizer.decode(hypothesis.tokens)
    if UNKNOWN in hypothesis.tokens or ANY_PLACEHOLDER.search(text):
        return True
    words = text.split()
    return len(words) - len(set(map(bare_word, words))) >= MAX_COPIES


@lru_cache(REMEMBERED_WORDS)
def bare_word(text: str) -> str:
    """Lowercase a word and remove punctuation around it, unless nothing else is left."""
    return PUNCTUATION.sub("", text).lower() or text
