"""Word alignments: read them from files, extract them from attention weights, score them.

Och & Ney 2003; D14, D16. A link is a pair (source word, target word), counted from 0.

    H heads   m target tokens or words (rows)   n source tokens or words (columns)
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.errors import DataError
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


@dataclass(frozen=True)
class AlignmentHead:
    """The attention that aligns best: a head of a layer, or the mean over its heads (head None)."""

    layer: str
    head: int | None
    score: float
    how: str  # the name of the score

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def choose_alignment_head(
    maps: Sequence[Mapping[str, Tensor]],
    sources: Sequence[Sequence[Hashable]],
    targets: Sequence[Sequence[Hashable]],
    gold: Sequence[AbstractSet[Link]] | None = None,
    possible: Sequence[AbstractSet[Link]] | None = None,
) -> AlignmentHead:
    """Choose the head, or the mean over a layer's heads, whose largest weights align these sentences best.

    maps: for each sentence the cross-attention of each layer, name -> (H, m, n), over the tokens of `targets` and
    `sources`. With `gold` (sure links between the same tokens; `possible` as in alignment_error_rate), the best head
    has the lowest alignment error rate. Without it, the best head has the highest mutual information between a target
    token and its most attended source token, over all sentences:

        I = sum over pairs of c(t, s) / N * log(c(t, s) N / (c(t) c(s)))

    where c counts a pair or token among the N target tokens. A target word is mostly determined by the source word that
    it translates, so a head that attends to that word is the most informative; a head that attends to a neighbour,
    always to the same position, or at random is less so. No gold alignments are needed, only enough sentences for words
    to recur.
    """
    links = _links_of_heads(maps, sources, targets)
    if gold is not None:
        errors = {name: alignment_error_rate(predicted, gold, possible) for name, predicted in links.items()}
        layer, head = min(errors, key=errors.__getitem__)
        return AlignmentHead(layer, head, errors[layer, head], "alignment error rate")
    information = {
        name: mutual_information(
            (target[i], source[j])
            for source, target, pairs in zip(sources, targets, predicted, strict=True)
            for j, i in pairs
        )
        for name, predicted in links.items()
    }
    layer, head = max(information, key=information.__getitem__)
    return AlignmentHead(layer, head, information[layer, head], "mutual information in nats")


def _links_of_heads(
    maps: Sequence[Mapping[str, Tensor]], sources: Sequence[Sequence[Hashable]], targets: Sequence[Sequence[Hashable]]
) -> dict[tuple[str, int | None], list[set[Link]]]:
    """Return (layer, head) -> the hard alignment of each sentence; head None is the mean over the heads."""
    if not len(maps) == len(sources) == len(targets) > 0:
        raise ValueError(
            f"maps, sources and targets must have the same length, at least 1; got {len(maps)}, {len(sources)} "
            f"and {len(targets)}"
        )
    links: dict[tuple[str, int | None], list[set[Link]]] = {}
    for number, (layers, source, target) in enumerate(zip(maps, sources, targets, strict=True)):
        if layers.keys() != maps[0].keys() or not layers:
            raise ValueError(f"sentence {number} has the layers {sorted(layers)}, but the first one {sorted(maps[0])}")
        for layer, weights in layers.items():
            if weights.dim() != 3 or weights.shape[1:] != (len(target), len(source)):
                raise ValueError(
                    f"{layer} of sentence {number} must be (heads, {len(target)}, {len(source)}), the tokens of its "
                    f"target and source; got {tuple(weights.shape)}"
                )
            weights = weights.cpu()  # once, not for every number that is read
            for head, head_weights in enumerate(weights):
                links.setdefault((layer, head), []).append(hard_alignment(head_weights))
            if len(weights) > 1:
                links.setdefault((layer, None), []).append(hard_alignment(weights.mean(0)))
    return links


def mutual_information(pairs: Iterable[tuple[Hashable, Hashable]]) -> float:
    """Return the mutual information of the two members of a pair in nats, from their joint and marginal counts."""
    joint = Counter(pairs)
    first: Counter[Hashable] = Counter()
    second: Counter[Hashable] = Counter()
    for (a, b), count in joint.items():
        first[a] += count
        second[b] += count
    total = joint.total()
    return sum(count / total * math.log(count * total / (first[a] * second[b])) for (a, b), count in joint.items())
