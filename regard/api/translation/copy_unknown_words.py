"""Copy unknown words: each becomes one token in the source, and the output copies the most attended source word.

Luong et al. 2015, "Addressing the rare word problem", section 3; here attention determines the word (H1).

    m target tokens   n source tokens
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from regard.text.augment.proper_names import SegmentedWord, core, find_names
from regard.text.tokenizers.special_tokens import UNKNOWN
from regard.text.tokenizers.tokenizer import Tokenizer, Word

if TYPE_CHECKING:
    from torch import Tensor

SENTENCE_ENDS = ".!?…"


def hide_unseen(tokens: Sequence[int], words: Sequence[Word], unseen: Collection[int]) -> tuple[list[int], list[Word]]:
    """Replace each word with a token that training never saw by one UNKNOWN; the word keeps its text."""
    new_tokens: list[int] = []
    new_words: list[Word] = []
    done = 0
    for word in words:
        new_tokens += tokens[done : word.start]
        word_tokens = tokens[word.start : word.end]
        start = len(new_tokens)
        new_tokens += [UNKNOWN] if any(token in unseen for token in word_tokens) else word_tokens
        new_words.append(word._replace(start=start, end=len(new_tokens)))
        done = word.end
    return [*new_tokens, *tokens[done:]], new_words


def hide_names(
    tokenizer: Tokenizer, tokens: Sequence[int], words: Sequence[Word], known: Collection[str]
) -> tuple[list[int], list[Word]]:
    """Replace each name that is rare in the training data, of any number of words, by one UNKNOWN with its text."""
    parts = [part for word in words for part in _without_elision(tokenizer, tokens, word)]
    segmented = [SegmentedWord(part.text, part.end - part.start, _is_plain(tokenizer, part.text)) for part in parts]
    names = dict(find_names(segmented, known))
    new_tokens: list[int] = []
    new_words: list[Word] = []
    done = i = 0
    while i < len(parts):
        last = names.get(i, i + 1)
        new_tokens += tokens[done : parts[i].start]
        done = parts[last - 1].end
        start = len(new_tokens)
        new_tokens += [UNKNOWN] if i in names else tokens[parts[i].start : done]
        new_words.append(Word(" ".join(part.text for part in parts[i:last]), start, len(new_tokens)))
        i = last
    return [*new_tokens, *tokens[done:]], new_words


def _is_plain(tokenizer: Tokenizer, word: str) -> bool:
    """Whether the capitalized word, in lowercase, is one token."""
    bare = core(word)
    return bare[:1].isupper() and len(tokenizer.encode(bare.lower())) == 1


def _without_elision(tokenizer: Tokenizer, tokens: Sequence[int], word: Word) -> list[Word]:
    """Return the word, or two words such as "d'" and "Émilie" if a name follows an elision and its tokens allow it."""
    before = word.text.find(core(word.text)) if word.text[:1].islower() else 0
    if before <= 0 or not core(word.text)[:1].isupper():
        return [word]
    length = 0
    for i, piece in enumerate(tokenizer.pieces(tokens[word.start : word.end]), start=word.start):
        if length == before:
            return [Word(word.text[:before], word.start, i), Word(word.text[before:], i, word.end)]
        length += len(piece.lstrip("▁ "))
    return [word]


def most_attended_words(
    weights: Tensor,
    source: Sequence[int],
    words: Sequence[Word],
    target: Sequence[int],
    unknown_id: int | None = UNKNOWN,
) -> list[str]:
    """Return, for each unknown token of the target, the text of the source word with the largest weight (m, n).

    Unknown source words come first, each once: a word that the model could not read is one that it could not write.
    """
    unknown = [word for word in words if unknown_id in source[word.start : word.end]]
    if not words:
        return ["" for token in target if token == unknown_id]
    copies = []
    unused = list(unknown)
    for row, token in zip(weights.tolist(), target, strict=True):
        if token == unknown_id:
            word = max(unused or unknown or words, key=lambda word: sum(row[word.start : word.end]))
            copies.append(word.text)
            unused = [other for other in unused if other != word]
    return copies


def fit_copies(
    copies: Sequence[str], tokens: Sequence[int], pieces: Sequence[str], unknown_id: int | None = UNKNOWN
) -> list[str]:
    """Remove final punctuation of copied words that the model has written itself, or inside a sentence that goes on."""
    after = [pieces[i + 1] if i + 1 < len(pieces) else "" for i, token in enumerate(tokens) if token == unknown_id]
    fitting = []
    for copy, piece in zip(copies, after, strict=True):
        if piece and not piece[0].isalnum():
            copy = copy.removesuffix(piece)
        goes_on = piece.strip("▁ ")[:1]
        fitting.append(copy.rstrip(SENTENCE_ENDS) if goes_on and not goes_on.isupper() and goes_on != "<" else copy)
    return fitting


def name_copies(
    tokenizer: Tokenizer,
    tokens: Sequence[int],
    words: Sequence[Word],
    copies: Sequence[str],
    unknown_id: int | None = UNKNOWN,
) -> list[Word]:
    """Return the target's words with the copied texts in place of the unknown token."""
    named, done = [], 0
    for word in words:
        count = sum(token == unknown_id for token in tokens[word.start : word.end])
        if count:
            text = tokenizer.decode(tokens[word.start : word.end], unknown=copies[done : done + count])
            word, done = word._replace(text=text.strip()), done + count
        named.append(word)
    return named
