"""Which source word belongs to which target word: read from files, taken from attention weights, scored.

Och & Ney 2003; D14, D16. A link is a pair (source word, target word), counted from 0.

    H heads   m target pieces or words (rows)   n source pieces or words (columns)
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from regard.errors import DataError
from regard.text.files.lines import read_lines
from regard.text.tokenizers.tokenizer import Word

Link = tuple[int, int]


class GoldLinks(NamedTuple):
    """What a person says of one sentence: links that must be there, and others that may be."""

    sure: frozenset[Link]
    possible: frozenset[Link] = frozenset()


def alignment_error_rate(
    predicted: Sequence[AbstractSet[Link]],
    sure: Sequence[AbstractSet[Link]],
    possible: Sequence[AbstractSet[Link]] | None = None,
) -> float:
    """1 - (|A & S| + |A & P|) / (|A| + |S|) over all sentences, with A predicted, S sure, P possible or sure.

    Och & Ney 2003, section 5. 0 is best: all sure links are found, and nothing but possible ones.
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
    """weights (m, n) -> for each target word the source word it looks at most, if its weight is above `threshold`."""
    if weights.dim() != 2:
        raise ValueError(f"weights must be (target words, source words), got {tuple(weights.shape)}")
    if not weights.numel():
        return set()
    highest, where = weights.max(1)
    looks = enumerate(zip(where.tolist(), highest.tolist(), strict=True))
    return {(j, i) for i, (j, weight) in looks if weight > threshold}


def word_weights(weights: Tensor, source: Sequence[Word], target: Sequence[Word]) -> Tensor:
    """Weights between pieces (…, m, n) -> between words: the sum over a source word, the mean over a target word.

    Rows still sum to 1 where the source words cover all source pieces; what falls on a piece outside every word, such
    as the end token, is left out.
    """
    m, n = weights.shape[-2:]
    into, out_of = _members(source, n, "source", weights), _members(target, m, "target", weights)
    out_of = out_of / out_of.sum(0)  # columns of 1/pieces: the mean
    return out_of.T @ weights @ into  # (…, target words, source words)


def _members(words: Sequence[Word], pieces: int, side: str, like: Tensor) -> Tensor:
    """(pieces, words): 1 where the piece belongs to the word."""
    table = like.new_zeros(pieces, len(words))
    for i, word in enumerate(words):
        if not 0 <= word.start < word.end <= pieces:
            raise ValueError(f"{side} word {i} spans pieces {word.start}:{word.end}, but there are {pieces}")
        table[word.start : word.end, i] = 1
    return table


# Pharaoh format: a line a sentence, "0-0 1-2" are sure links, "0?1" and "0p1" possible ones.
LINK = re.compile(r"(\d+)([-?p])(\d+)", re.ASCII)


def parse_links(line: str, *, where: str = "alignment") -> GoldLinks:
    """One line in Pharaoh format; `where` names it (file and line) in the message when it cannot be read."""
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
    """One line in Pharaoh format, in order of the source words."""
    sure = set(sure)
    marked = [(link, "-") for link in sure] + [(link, "?") for link in set(possible) - sure]
    return " ".join(f"{source}{mark}{target}" for (source, target), mark in sorted(marked))


def read_links(path: str | Path) -> list[GoldLinks]:
    """The links of each line of a file in Pharaoh format; an empty line is a sentence without links."""
    return [parse_links(line, where=f"{path}:{number}") for number, line in enumerate(read_lines(path), start=1)]


@dataclass(frozen=True)
class AlignmentHead:
    """The attention that shows the alignment best: a head of a layer, or the mean over its heads (head None)."""

    layer: str
    head: int | None
    score: float
    how: str  # what the score is

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def choose_alignment_head(
    maps: Sequence[Mapping[str, Tensor]],
    sources: Sequence[Sequence[Hashable]],
    targets: Sequence[Sequence[Hashable]],
    gold: Sequence[AbstractSet[Link]] | None = None,
    possible: Sequence[AbstractSet[Link]] | None = None,
) -> AlignmentHead:
    """The head, or mean over a layer's heads, whose highest weights are the best alignment of these sentences.

    maps: for each sentence the cross-attention of each layer, name -> (H, m, n), over the tokens of `targets` and
    `sources`. With `gold` (sure links, between the same tokens; `possible` as in alignment_error_rate) the best is
    the one with the lowest alignment error rate. Without it, the one with the highest mutual information between a
    target token and the source token that it points at, over all sentences:

        I = sum over pairs of c(t, s) / N * log(c(t, s) N / (c(t) c(s)))

    with c how often a pair or token occurs among the N target tokens. A translation is mostly decided by the word it
    translates, so a head that points at that word tells the most about the target; one that points beside it, always
    at the same place or at random tells less. No alignments are needed, only enough sentences for words to recur.
    """
    links = _links_of_heads(maps, sources, targets)
    if gold is not None:
        errors = {name: alignment_error_rate(found, gold, possible) for name, found in links.items()}
        layer, head = min(errors, key=errors.__getitem__)
        return AlignmentHead(layer, head, errors[layer, head], "alignment error rate")
    told = {
        name: mutual_information(
            (target[i], source[j])
            for source, target, pairs in zip(sources, targets, found, strict=True)
            for j, i in pairs
        )
        for name, found in links.items()
    }
    layer, head = max(told, key=told.__getitem__)
    return AlignmentHead(layer, head, told[layer, head], "mutual information in nats")


def _links_of_heads(
    maps: Sequence[Mapping[str, Tensor]], sources: Sequence[Sequence[Hashable]], targets: Sequence[Sequence[Hashable]]
) -> dict[tuple[str, int | None], list[set[Link]]]:
    """(layer, head) -> the hard alignment of each sentence; head None is the mean over the heads."""
    if not len(maps) == len(sources) == len(targets) > 0:
        raise ValueError(
            f"maps, sources and targets must be of the same sentences, at least one; got {len(maps)}, {len(sources)} "
            f"and {len(targets)}"
        )
    links: dict[tuple[str, int | None], list[set[Link]]] = {}
    for number, (layers, source, target) in enumerate(zip(maps, sources, targets, strict=True)):
        if layers.keys() != maps[0].keys() or not layers:
            raise ValueError(f"sentence {number} has the layers {sorted(layers)}, the first one {sorted(maps[0])}")
        for layer, weights in layers.items():
            if weights.dim() != 3 or weights.shape[1:] != (len(target), len(source)):
                raise ValueError(
                    f"{layer} of sentence {number} must be (heads, {len(target)}, {len(source)}), the tokens of its "
                    f"target and source; got {tuple(weights.shape)}"
                )
            weights = weights.cpu()  # once, and not for every number that is read
            for head, one in enumerate(weights):
                links.setdefault((layer, head), []).append(hard_alignment(one))
            if len(weights) > 1:
                links.setdefault((layer, None), []).append(hard_alignment(weights.mean(0)))
    return links


def mutual_information(pairs: Iterable[tuple[Hashable, Hashable]]) -> float:
    """How many nats one of a pair tells about the other, from how often they occur together and alone."""
    joint = Counter(pairs)
    first: Counter[Hashable] = Counter()
    second: Counter[Hashable] = Counter()
    for (a, b), count in joint.items():
        first[a] += count
        second[b] += count
    total = joint.total()
    return sum(count / total * math.log(count * total / (first[a] * second[b])) for (a, b), count in joint.items())
