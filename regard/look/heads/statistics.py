"""What heads do, in a few numbers: how broadly they look, and whether at the token itself, the one before or the first.

H4, D16. Clark et al. 2019, section 3, for the kinds of heads; Abnar and Zuidema 2020, section 3, for rollout.

    L layers   H heads   m queries   n keys
"""

from __future__ import annotations

from collections.abc import Sequence, Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import UsageError
from regard.evaluation.alignment import AlignmentHead, Link, choose_alignment_head
from regard.look.trace.trace import Map, Trace
from regard.look.trace.words import merge_words

Numbers = NDArray[np.float64]
BADGES = ("previous", "diagonal", "first", "broad")
CLEAR = 0.5  # the share from which on a head has a badge
BROAD = 0.9  # likewise, the part of the greatest entropy that there could be


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """Means over the rows of each head, [L, H]; rows that may look at nothing do not count."""

    entropy: Numbers  # in nats
    broadness: Numbers  # the entropy over the greatest that there could be, of rows with a choice
    previous: Numbers  # the weight on the token before the query's
    diagonal: Numbers  # on the query's own
    first: Numbers  # on the first token

    def badges(self, layer: int, head: int) -> list[str]:
        """What a head is known by: previous, diagonal, first, broad, or nothing."""
        shares = {"broad": self.broadness[layer, head] - BROAD + CLEAR}
        shares |= {name: getattr(self, name)[layer, head] for name in BADGES[:-1]}
        return [name for name in BADGES if shares[name] >= CLEAR]


def head_statistics(one: Map) -> HeadStatistics:
    """The statistics of each head of a map.

    The query's own place among the keys is its place in the text: in self-attention the last query is the last key. In
    a map to the source it is the place as far along, so that a translation in the same order lies on the diagonal.
    """
    weights = one.weights.astype(np.float64)  # [L, H, m, n]
    m, n = weights.shape[2:]
    allowed = np.ones((m, n), bool) if one.mask is None else one.mask
    rows = np.arange(m)
    if one.key == "source" and one.query != "source":
        own = np.rint(rows * (n - 1) / max(m - 1, 1)).astype(int)
    else:
        own = rows + n - m
    counted: NDArray[np.bool_] = np.asarray(allowed.any(1))
    logs = np.log(np.where(weights > 0, weights, 1.0))
    entropy = -(weights * logs).sum(-1)  # [L, H, m]
    choices = allowed.sum(1)
    return HeadStatistics(
        entropy=_mean(entropy, counted),
        broadness=_mean(entropy / np.log(np.maximum(choices, 2)), choices > 1),
        previous=_mean(weights[:, :, rows, np.maximum(own - 1, 0)], counted & (own >= 1)),
        diagonal=_mean(weights[:, :, rows, np.maximum(own, 0)], counted & (own >= 0)),
        first=_mean(weights[:, :, :, 0], counted),
    )


def _mean(values: Numbers, counted: NDArray[np.bool_]) -> Numbers:
    """[L, H, m] -> [L, H] over the rows that count; 0 where none does."""
    return (values * counted).sum(-1) / max(int(counted.sum()), 1)


def rollout(one: Map, *, residual: float = 0.5) -> Numbers:
    """[L, m, m]: how much of each token of the input is in each vector after each layer; rows sum to one.

    Abnar and Zuidema 2020, equation 1: A_l = (1 - r) W_l + r I, W_l the mean over the heads and r the share of the
    residual connection, and what comes out of layer l is A_l … A_1.
    """
    m, n = one.weights.shape[2:]
    if m != n:
        raise UsageError(f"rollout is for self-attention, whose maps are square; this one is {m} by {n}")
    if not 0 <= residual <= 1:
        raise UsageError(f"residual must be a share from 0 to 1, got {residual!r}")
    mean = one.weights.astype(np.float64).mean(1)  # [L, m, m]
    sums = mean.sum(-1, keepdims=True)
    # A token that looks at nothing stays what it is.
    mean = np.where(sums > 0, mean / np.where(sums > 0, sums, 1.0), np.eye(m))
    mixed = (1 - residual) * mean + residual * np.eye(m)
    layers = [mixed[0]]
    for layer in mixed[1:]:
        layers.append(layer @ layers[-1])
    return np.stack(layers)


def best_alignment_head(
    traces: Sequence[Trace],
    gold: Sequence[AbstractSet[Link]] | None = None,
    possible: Sequence[AbstractSet[Link]] | None = None,
) -> AlignmentHead:
    """The head, or mean over a layer's heads, whose weights align the words of these translations best.

    By gold links between words (source word, target word) where there are any, else by how much the source words that
    a head points at tell about the target words, which needs many sentences: `choose_alignment_head`.
    """
    maps, sources, targets = [], [], []
    for number, trace in enumerate(traces):
        kind = next((kind for kind in ("cross", "rnn") if kind in trace.maps), None)
        if kind is None:
            raise UsageError(f"trace {number} has no attention to a source to align by")
        layers, source, target = _between_words(merge_words(trace), kind)
        maps.append(layers)
        sources.append(source)
        targets.append(target)
    return choose_alignment_head(maps, sources, targets, gold, possible)


def _between_words(trace: Trace, kind: str) -> tuple[dict[str, Tensor], list[str], list[str]]:
    """The layers of a map by the names of regard.record, (H, M, N), with words only; and the words."""
    one = trace.maps[kind]
    sides = (trace.axes[one.query].tokens, trace.axes[one.key].tokens)
    rows, columns = ([i for i, token in enumerate(side) if token.word is not None] for side in sides)
    weights = torch.from_numpy(one.weights[:, :, rows][:, :, :, columns])
    names = ["decoder.cross"] if kind == "rnn" else [f"decoder.{layer}.cross" for layer in range(len(weights))]
    target, source = ([side[i].text for i in kept] for side, kept in zip(sides, (rows, columns), strict=True))
    return dict(zip(names, weights, strict=True)), source, target
