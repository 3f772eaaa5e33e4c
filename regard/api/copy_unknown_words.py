"""Words that a model cannot know: one token on the way in, copied from the most attended source word on the way out.

Luong et al. 2015, "Addressing the rare word problem", section 3; here the attention says which word it is (H1).

    m target tokens   n source tokens
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import Tensor

from regard.text.augment.proper_names import Spelled, core, find_names
from regard.text.tokenizers.special_tokens import UNKNOWN
from regard.text.tokenizers.tokenizer import Tokenizer, Word

SENTENCE_ENDS = ".!?…"


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


def hide_names(
    tokenizer: Tokenizer, tokens: Sequence[int], words: Sequence[Word], known: Collection[str]
) -> tuple[list[int], list[Word]]:
    """Each name that training hardly met becomes one UNKNOWN, of however many words it is; it keeps its text."""
    parts = [part for word in words for part in _without_elision(tokenizer, tokens, word)]
    spelled = [Spelled(part.text, part.end - part.start, _is_plain(tokenizer, part.text)) for part in parts]
    names = dict(find_names(spelled, known))
    hidden: list[int] = []
    kept: list[Word] = []
    done = i = 0
    while i < len(parts):
        last = names.get(i, i + 1)
        hidden += tokens[done : parts[i].start]
        done = parts[last - 1].end
        start = len(hidden)
        hidden += [UNKNOWN] if i in names else tokens[parts[i].start : done]
        kept.append(Word(" ".join(part.text for part in parts[i:last]), start, len(hidden)))
        i = last
    return [*hidden, *tokens[done:]], kept


def _is_plain(tokenizer: Tokenizer, word: str) -> bool:
    """Whether the tokenizer has the word, without its capital, as one piece."""
    bare = core(word)
    return bare[:1].isupper() and len(tokenizer.encode(bare.lower())) == 1


def _without_elision(tokenizer: Tokenizer, tokens: Sequence[int], word: Word) -> list[Word]:
    """The word; or in two, as "d'" and "Émilie", where a name follows what is elided and the pieces part there."""
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
    weights: Tensor, source: Sequence[int], words: Sequence[Word], target: Sequence[int]
) -> list[str]:
    """For each UNKNOWN of the target the text of the source word with the largest weight (m, n).

    Words that are unknown themselves come first, each once: what the model could not read is what it could not write.
    """
    unknown = [word for word in words if UNKNOWN in source[word.start : word.end]]
    if not words:
        return ["" for token in target if token == UNKNOWN]
    found = []
    left = list(unknown)
    for row, token in zip(weights.tolist(), target, strict=True):
        if token == UNKNOWN:
            word = max(left or unknown or words, key=lambda word: sum(row[word.start : word.end]))
            found.append(word.text)
            left = [one for one in left if one != word]
    return found


def fit_copies(copies: Sequence[str], tokens: Sequence[int], pieces: Sequence[str]) -> list[str]:
    """The copied words without the punctuation at their ends that the model wrote after them itself, and without the
    end of a sentence where the sentence goes on."""
    after = [pieces[i + 1] if i + 1 < len(pieces) else "" for i, token in enumerate(tokens) if token == UNKNOWN]
    fitting = []
    for copy, piece in zip(copies, after, strict=True):
        if piece and not piece[0].isalnum():
            copy = copy.removesuffix(piece)
        goes_on = piece.strip("▁ ")[:1]
        fitting.append(copy.rstrip(SENTENCE_ENDS) if goes_on and not goes_on.isupper() and goes_on != "<" else copy)
    return fitting


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
