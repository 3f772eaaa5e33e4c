"""Word alignments: read them from files, extract them from attention weights, score them.

Och & Ney 2003; D14, D16. `alignment_heads.py` chooses the attention heads that align.
A link is a pair (source word, target word), counted from 0.

    H heads   m target tokens or words (rows)   n source tokens or words (columns)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from regard.errors import DataError
from regard.machine.lazy_torch import torch
from regard.text.files.lines import read_lines
from regard.text.tokenizers.tokenizer import Word

if TYPE_CHECKING:
    from torch import Tensor

Link = tuple[int, int]


class GoldLinks(NamedTuple):
    """The gold alignment of one sentence: sure links, and possible ones."""

    sure: frozenset[Link]
    possible: frozenset[Link] = frozenset()


def alignment_error_rate(
    predicted: Sequence[AbstractSet[Link]],
    sure: Sequence[AbstractSet[Link]],
    possible: Sequence[AbstractSet[Link]] | None = None,
) -> float:
    """Return 1 - (|A & S| + |A & P|) / (|A| + |S|) over all sentences, with A predicted, S sure, P possible or sure.

    Och & Ney 2003, section 5. 0 is best: all sure links are predicted, and no impossible ones.
    """
    possible = [frozenset()] * len(sure) if possible is None else possible
    if not len(predicted) == len(sure) == len(possible):
        raise DataError(
            f"alignments do not pair up: {len(predicted)} sentences predicted, {len(sure)} with sure links and "
            f"{len(possible)} with possible ones"
        )
    hits = total = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        hits += len(a & s) + len(a & (s | p))
        total += len(a) + len(s)
    if not total:
        raise DataError("there are no links to compare: the predicted and the sure alignments are empty")
    return 1 - hits / total


def hard_alignment(weights: Tensor, *, threshold: float = 0.0) -> set[Link]:
    """Link each target word to the source word with the largest weight (m, n), if that is above `threshold`."""
    if weights.dim() != 2:
        raise ValueError(f"weights must be (target words, source words), got {tuple(weights.shape)}")
    if not weights.numel():
        return set()
    highest, sources = weights.max(1)
    best = enumerate(zip(sources.tolist(), highest.tolist(), strict=True))
    return {(j, i) for i, (j, weight) in best if weight > threshold}


def mutual_alignment(weights: Tensor) -> set[Link]:
    """Link each target word to the source word with the largest geometric mean of two shares of a weight (m, n).

    The first is its share of the target word's row, which sums to 1, the second its share of the source word's column.
    So a source word that many target words attend to, such as the subject, does not take the links of all of them.
    Multiplying the two directions follows Liang et al. 2006, "Alignment by agreement".
    """
    columns = weights.sum(0).clamp(min=torch.finfo(weights.dtype).tiny)  # (n,)
    return hard_alignment(weights / columns.sqrt())  # sqrt(w * w / column)


def word_weights(weights: Tensor, source: Sequence[Word], target: Sequence[Word]) -> Tensor:
    """Convert weights between tokens (…, m, n) to words: the sum over a source word, the mean over a target word.

    Rows still sum to 1 if the source words cover all source tokens. The weight of tokens outside every word, such as
    the end token, is dropped.
    """
    m, n = weights.shape[-2:]
    source_members, target_members = _members(source, n, "source", weights), _members(target, m, "target", weights)
    target_mean = target_members / target_members.sum(0)  # columns of 1 / tokens of the word
    return target_mean.T @ weights @ source_members  # (…, target words, source words)


def _members(words: Sequence[Word], tokens: int, side: str, like: Tensor) -> Tensor:
    """Return (tokens, words): 1 where the token belongs to the word."""
    table = like.new_zeros(tokens, len(words))
    for i, word in enumerate(words):
        if not 0 <= word.start < word.end <= tokens:
            raise ValueError(f"{side} word {i} spans tokens {word.start}:{word.end}, but there are {tokens}")
        table[word.start : word.end, i] = 1
    return table


# Pharaoh format: one line per sentence; "0-0 1-2" are sure links, "0?1" and "0p1" possible ones.
LINK = re.compile(r"(\d+)([-?p])(\d+)", re.ASCII)


def parse_links(line: str, *, where: str = "alignment") -> GoldLinks:
    """Parse a line in Pharaoh format; `where` is its location (file and line) for error messages."""
    sure: set[Link] = set()
    possible: set[Link] = set()
    for text in line.split():
        match = LINK.fullmatch(text)
        if match is None:
            raise DataError(
                f"{where}: {text!r} is not a link; links are written 0-1 (sure) or 0?1 (possible), source word first, "
                "counted from 0"
            )
        (sure if match[2] == "-" else possible).add((int(match[1]), int(match[3])))
    return GoldLinks(frozenset(sure), frozenset(possible - sure))


def format_links(sure: Iterable[Link], possible: Iterable[Link] = ()) -> str:
    """Return a line in Pharaoh format, in the order of the source words."""
    sure = set(sure)
    marked = [(link, "-") for link in sure] + [(link, "?") for link in set(possible) - sure]
    return " ".join(f"{source}{mark}{target}" for (source, target), mark in sorted(marked))


def read_links(path: str | Path) -> list[GoldLinks]:
    """Read the links of each line of a file in Pharaoh format; an empty line is a sentence without links."""
    return [parse_links(line, where=f"{path}:{number}") for number, line in enumerate(read_lines(path), start=1)]
