"""Statistics of heads: entropy, and the weight on the token itself, the previous token and the first token.

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
from regard.evaluation.alignment import Link
from regard.evaluation.alignment_heads import AlignmentHead, choose_alignment_head
from regard.look.trace.attention_map import Map
from regard.look.trace.trace import Trace
from regard.look.trace.words import merge_words

Numbers = NDArray[np.float64]
BADGES = ("previous", "diagonal", "first", "broad")
BADGE_WEIGHT = 0.5  # mean weight from which on a head gets a badge
BROAD_ENTROPY = 0.9  # likewise, as a share of the maximum entropy


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """Means over the rows of each head, [L, H]; fully masked rows do not count."""

    entropy: Numbers  # in nats
    broadness: Numbers  # entropy / maximum entropy, over rows with at least two keys
    previous: Numbers  # weight on the token before the query
    diagonal: Numbers  # weight on the query's own token
    first: Numbers  # weight on the first token

    def badges(self, layer: int, head: int) -> list[str]:
        """Return the patterns of a head: previous, diagonal, first, broad, or none."""
        shares = {"broad": self.broadness[layer, head] - BROAD_ENTROPY + BADGE_WEIGHT}
        shares |= {name: getattr(self, name)[layer, head] for name in BADGES[:-1]}
        return [name for name in BADGES if shares[name] >= BADGE_WEIGHT]


def head_statistics(one: Map) -> HeadStatistics:
    """Compute the statistics of each head of a map.

    In self-attention, the own key of a query is at its position in the text; the last query belongs to the last key. In
    a map to the source, it is the key at the same relative position, so that a monotonic translation is diagonal.
    """
    weights = one.weights.astype(np.float64)  # [L, H, m, n]
    m, n = weights.shape[2:]
    allowed = np.ones((m, n), bool) if one.mask is None else one.mask
    rows = np.arange(m)
    if one.key == "source" and one.query != "source":
        diagonal = np.rint(rows * (n - 1) / max(m - 1, 1)).astype(int)
    else:
        diagonal = rows + n - m
    counted: NDArray[np.bool_] = np.asarray(allowed.any(1))
    logs = np.log(np.where(weights > 0, weights, 1.0))
    entropy = -(weights * logs).sum(-1)  # [L, H, m]
    choices = allowed.sum(1)
    return HeadStatistics(
        entropy=_mean(entropy, counted),
        broadness=_mean(entropy / np.log(np.maximum(choices, 2)), choices > 1),
        previous=_mean(weights[:, :, rows, np.maximum(diagonal - 1, 0)], counted & (diagonal >= 1)),
        diagonal=_mean(weights[:, :, rows, np.maximum(diagonal, 0)], counted & (diagonal >= 0)),
        first=_mean(weights[:, :, :, 0], counted),
    )


def _mean(values: Numbers, counted: NDArray[np.bool_]) -> Numbers:
    """Average [L, H, m] over the counted rows to [L, H]; 0 if there are none."""
    return (values * counted).sum(-1) / max(int(counted.sum()), 1)


def rollout(one: Map, *, residual: float = 0.5) -> Numbers:
    """Attention rollout [L, m, m]: the share of each input token in each vector after each layer; rows sum to one.

    Abnar and Zuidema 2020, equation 1: A_l = (1 - r) W_l + r I, W_l the mean over the heads and r the share of the
    residual connection; the result of layer l is A_l … A_1.
    """
    m, n = one.weights.shape[2:]
    if m != n:
        raise UsageError(f"rollout needs self-attention, with a square map; this one is {m} by {n}")
    if not 0 <= residual <= 1:
        raise UsageError(f"residual must be from 0 to 1, got {residual!r}")
    mean = one.weights.astype(np.float64).mean(1)  # [L, m, m]
    sums = mean.sum(-1, keepdims=True)
    # A fully masked token keeps its own vector.
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
    """Return the head, or the mean over the heads of a layer, whose weights align the words of translations best.

    With gold links (source word, target word), it has the lowest alignment error rate. Without them, it has the highest
    mutual information between aligned words, which needs many sentences; see `choose_alignment_head`.
    """
    maps, sources, targets = [], [], []
    for number, trace in enumerate(traces):
        kind = next((kind for kind in ("cross", "rnn") if kind in trace.maps), None)
        if kind is None:
            raise UsageError(f"trace {number} has no attention to a source, so there is nothing to align")
        layers, source, target = _between_words(merge_words(trace), kind)
        maps.append(layers)
        sources.append(source)
        targets.append(target)
    return choose_alignment_head(maps, sources, targets, gold, possible)


def _between_words(trace: Trace, kind: str) -> tuple[dict[str, Tensor], list[str], list[str]]:
    """Return the layers (H, M, N) of a map between words, by their names in regard.record, and the words."""
    attention = trace.maps[kind]
    sides = (trace.axes[attention.query].tokens, trace.axes[attention.key].tokens)
    rows, columns = ([i for i, token in enumerate(side) if token.word is not None] for side in sides)
    weights = torch.from_numpy(attention.weights[:, :, rows][:, :, :, columns])
    names = ["decoder.cross"] if kind == "rnn" else [f"decoder.{layer}.cross" for layer in range(len(weights))]
    target, source = ([side[i].text for i in indices] for side, indices in zip(sides, (rows, columns), strict=True))
    return dict(zip(names, weights, strict=True)), source, target
