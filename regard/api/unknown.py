"""Words that a model cannot know: one token on the way in, copied from the most attended source word on the way out.

Luong et al. 2015, "Addressing the rare word problem", section 3; here the attention says which word it is (H1).

    m target tokens   n source tokens
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import Tensor

from regard.text.special import UNKNOWN
from regard.text.tokenizer import Tokenizer, Word


def hide_unseen(tokens: Sequence[int], words: Sequence[Word], unseen: Collection[int]) -> tuple[list[int], list[Word]]:
    """Each word that holds a piece never met in training becomes one UNKNOWN; it keeps its text."""
    hidden: list[int] = []
    kept: list[Word] = []
    done = 0
    for word in words:
        hidden += tokens[done : word.start]
        pieces = tokens[word.start : word.end]
        start = len(hidden)
        hidden += [UNKNOWN] if any(piece in unseen for piece in pieces) else pieces
        kept.append(word._replace(start=start, end=len(hidden)))
        done = word.end
    return [*hidden, *tokens[done:]], kept


def most_attended_words(
    weights: Tensor, source: Sequence[int], words: Sequence[Word], target: Sequence[int]
) -> list[str]:
    """For each UNKNOWN of the target the text of the source word with the largest weight (m, n).

    Words that are unknown themselves come first: what the model could not read is what it could not write.
    """
    unknown = [word for word in words if UNKNOWN in source[word.start : word.end]]
    candidates = unknown or words
    if not candidates:
        return ["" for token in target if token == UNKNOWN]
    found = []
    for row, token in zip(weights.tolist(), target, strict=True):
        if token == UNKNOWN:
            found.append(max(candidates, key=lambda word: sum(row[word.start : word.end])).text)
    return found


def fit_copies(copies: Sequence[str], tokens: Sequence[int], pieces: Sequence[str]) -> list[str]:
    """The copied words without the punctuation at their ends that the model wrote after them itself."""
    after = [pieces[i + 1] if i + 1 < len(pieces) else "" for i, token in enumerate(tokens) if token == UNKNOWN]
    return [
        copy.removesuffix(piece) if piece and not piece[0].isalnum() else copy
        for copy, piece in zip(copies, after, strict=True)
    ]


def name_copies(
    tokenizer: Tokenizer, tokens: Sequence[int], words: Sequence[Word], copies: Sequence[str]
) -> list[Word]:
    """The target's words with the copied texts in the place of UNKNOWN."""
    named, done = [], 0
    for word in words:
        count = list(tokens[word.start : word.end]).count(UNKNOWN)
        if count:
            text = tokenizer.decode(tokens[word.start : word.end], unknown=copies[done : done + count])
            word, done = word._replace(text=text.strip()), done + count
        named.append(word)
    return named
