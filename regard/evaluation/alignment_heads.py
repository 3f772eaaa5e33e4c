"""Choose the attention heads that align a translation with its source, without gold alignments.

D16, H1. A head can align at two steps. At the step that writes a target token, it attends to the source words that the
model needs next. At the step that reads the token, which is one row further down, the model knows the token, and the
first layers often attend to its translation (Garg et al. 2019, section 4.1; Chen et al. 2020, "Accurate word alignment
induction"). The mean of a few heads, each at its better step, aligns better than any of them.

    H heads   m target tokens or words (rows)   n source tokens or words (columns)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.evaluation.alignment import Link, alignment_error_rate, hard_alignment
from regard.machine.lazy_torch import torch
from regard.text.tokenizers.special_tokens import END

if TYPE_CHECKING:
    from torch import Tensor

MIN_GAIN = 0.01  # by which another head must raise the mutual information, as a share of it
INFORMATION = "leave-one-out mutual information in nats"


class AligningHead(NamedTuple):
    """A head of a layer, or the mean over its heads (head None), at the step that writes a token or that reads it."""

    layer: str
    head: int | None
    shifted: bool = False  # True: at the step that reads the token

    def __str__(self) -> str:
        which = "mean of its heads" if self.head is None else f"head {self.head}"
        return f"{self.layer}, {which}{' at the next step' if self.shifted else ''}"


def mean_weights(
    maps: Sequence[Tensor], shifted: Sequence[bool], tokens: Sequence[int], ends: Collection[int] = (END,)
) -> Tensor:
    """Return the mean of the weights (m, n) of heads for m target tokens, each at its step."""
    reading = reading_steps(tokens, ends)
    rows = [weights[reading] if late else weights for weights, late in zip(maps, shifted, strict=True)]
    return torch.stack(rows).mean(0)


def reading_steps(tokens: Sequence[int], ends: Collection[int] = (END,)) -> list[int]:
    """Return for each target token the step that reads it: the next one.

    The last token, and an end token between the parts of a long text, are read by no step and keep the step that
    writes them.
    """
    last = len(tokens) - 1
    return [i if token in ends or i == last else i + 1 for i, token in enumerate(tokens)]


@dataclass(frozen=True)
class AlignmentHead:
    """The head that aligns best at the step that writes a token: of a layer, or the mean over its heads (head None)."""

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
    has the lowest alignment error rate. Without it, the best head has the highest `mutual_information` between a target
    token and its most attended source token, over all sentences. A target word is mostly determined by the source word
    that it translates, so a head that attends to that word is the most informative; a head that attends to a neighbour,
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
    return AlignmentHead(layer, head, information[layer, head], INFORMATION)


def choose_aligning_heads(
    maps: Sequence[Mapping[str, Tensor]],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    ends: Collection[int] = (END,),
) -> list[AligningHead]:
    """Choose heads, and the step at which each aligns, whose mean weights align these sentences best.

    maps, sources and targets are those of `choose_alignment_head`, with the end tokens, which `ends` lists. The search
    is greedy: it begins with the head of the highest `mutual_information` and adds the head that raises that of the
    mean most, as long as it gains at least MIN_GAIN. End tokens have no translation, so they are left out.
    """
    heads = [
        AligningHead(layer, head, shifted)
        for shifted in (False, True)
        for layer, weights in maps[0].items()
        for head in range(len(weights))
    ]
    stacked = [
        torch.cat([writing, writing[:, reading_steps(target, ends)]]).cpu()[:, :-1, :-1]
        for writing, target in zip((torch.cat([*layers.values()]) for layers in maps), targets, strict=True)
    ]  # of each sentence (heads, m, n), without the end tokens
    sums = [torch.zeros_like(weights[0]) for weights in stacked]
    chosen: list[int] = []
    best = 0.0
    while len(chosen) < len(heads):
        scores = _information_with_each(sums, stacked, sources, targets)
        head = max(set(range(len(heads))) - set(chosen), key=scores.__getitem__)
        if chosen and scores[head] < best + MIN_GAIN * abs(best):
            break
        best = scores[head]
        chosen.append(head)
        sums = [total + weights[head] for total, weights in zip(sums, stacked, strict=True)]
    return [heads[head] for head in chosen]


def _information_with_each(
    sums: Sequence[Tensor],
    stacked: Sequence[Tensor],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
) -> list[float]:
    """Return for each head the mutual information of the links by its weights and the sum of those chosen before."""
    links: list[list[tuple[int, int]]] = [[] for _ in stacked[0]]
    for total, weights, source, target in zip(sums, stacked, sources, targets, strict=True):
        if not weights.numel():
            continue
        for pairs, columns in zip(links, (total + weights).argmax(-1).tolist(), strict=True):
            pairs += [(target[i], source[j]) for i, j in enumerate(columns)]
    return [mutual_information(pairs) for pairs in links]


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
    """Return the leave-one-out mutual information of the two members of a pair, in nats.

        I = 1 / N * sum over the N pairs (t, s) of log(p(t | s) / p(t)),
        p(t | s) = (c(t, s) - 1 + p(t)) / c(s),   p(t) = c(t) / N

    where c counts pairs and members. Each pair is predicted from the others, and from p(t) with the weight of one pair.
    Otherwise rare words would always predict each other: with few sentences, links at random look informative.
    """
    joint = Counter(pairs)
    first: Counter[Hashable] = Counter()
    second: Counter[Hashable] = Counter()
    for (a, b), count in joint.items():
        first[a] += count
        second[b] += count
    total = joint.total()
    return sum(
        count / total * math.log((count - 1 + first[a] / total) / second[b] * total / first[a])
        for (a, b), count in joint.items()
    )
