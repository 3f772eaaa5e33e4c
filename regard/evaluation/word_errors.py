"""Word error rate: how many words of a transcript must be changed, left out or added.

Levenshtein 1966; the usual measure of speech recognition.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.evaluation.bleu import check_pairs


def edit_distance(words: Sequence[str], reference: Sequence[str]) -> int:
    """Return the fewest substitutions, insertions and deletions that make one sequence the other."""
    row = list(range(len(reference) + 1))
    for i, word in enumerate(words, start=1):
        above, row[0] = row[0], i
        for j, expected in enumerate(reference, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (word != expected))
    return row[-1]


def word_errors(texts: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return the errors as a share of the words of all references (`wer`), and the share of texts without (`exact`).

    >>> word_errors(["one two", "three four"], ["one two", "three five six"])
    {'wer': 0.4, 'exact': 0.5}
    """
    check_pairs(texts, references)
    pairs = [(text.split(), reference.split()) for text, reference in zip(texts, references, strict=True)]
    errors = [edit_distance(words, expected) for words, expected in pairs]
    total = sum(len(expected) for _, expected in pairs)
    return {"wer": sum(errors) / max(1, total), "exact": errors.count(0) / len(pairs)}
