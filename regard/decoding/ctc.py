"""Decode the labels of CTC: equal labels in a row are one token, and blanks separate tokens.

Graves et al. 2006, section 3; Hannun et al. 2014, algorithm 1 (prefix beam search). The blank is PAD.

    n vectors of the encoder   V vocabulary   w width of the beam
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from regard.decoding.searches.search import Hypothesis
from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import END, PAD, START, UNKNOWN

BARRED = (UNKNOWN, START, END)
Prefix = tuple[int, ...]


def collapse(labels: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Labels (n,) -> the tokens that they stand for, and the first vector of each."""
    starts = np.flatnonzero((labels != PAD) & (labels != np.concatenate([[PAD], labels[:-1]])))
    return labels[starts].tolist(), starts.tolist()


def decode_ctc(logps: NDArray[np.float64], *, beam: int = 1) -> tuple[Hypothesis, list[int]]:
    """Log-probabilities (n, V) -> the best text, and the vector at which each of its tokens is most probable.

    With `beam` 1, the most probable label of each vector is taken. A wider beam adds the probabilities of all ways to
    write a text, and keeps that many texts at each vector.
    """
    if beam < 1:
        raise UsageError(f"beam must be at least 1, got {beam}")
    logps = bar_special_tokens(logps)
    if beam == 1:
        labels = logps.argmax(1)
        tokens, starts = collapse(labels)
        score = float(logps[np.arange(len(labels)), labels].sum())
        return Hypothesis(tokens, logps[starts, tokens].tolist(), score, score, True), starts
    best, score = prefix_beam(logps, beam)[0]
    places = align(logps, best)
    return Hypothesis(
        list(best), [float(logps[i, t]) for i, t in zip(places, best, strict=True)], score, score, True
    ), places


def bar_special_tokens(logps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log-probabilities (n, V) in which no label is a special token but the blank."""
    logps = logps.copy()
    logps[:, BARRED] = -math.inf
    return logps


def prefix_beam(logps: NDArray[np.float64], width: int) -> list[tuple[Prefix, float]]:
    """Return the `width` most probable texts of labels with log-probabilities (n, V), each with its log-probability.

    The sum is over the ways to label that the beam has kept, so it is a little low for the last of the texts.
    """
    beam: dict[Prefix, tuple[float, float]] = {(): (0.0, -math.inf)}  # the last label is blank, or the last token
    candidates = np.argsort(-logps, axis=1, kind="stable")[:, : 2 * width]  # (n, 2w): others cannot enter the beam
    for row, labels in zip(logps, candidates, strict=True):
        grown: dict[Prefix, list[float]] = defaultdict(lambda: [-math.inf, -math.inf])
        for prefix, (blank, token) in beam.items():
            either = np.logaddexp(blank, token)
            same = grown[prefix]
            same[0] = np.logaddexp(same[0], either + row[PAD])
            if prefix:
                same[1] = np.logaddexp(same[1], token + row[prefix[-1]])
            for label in labels.tolist():
                if label == PAD:
                    continue
                before = blank if prefix and label == prefix[-1] else either  # a blank separates equal tokens
                longer = grown[(*prefix, label)]
                longer[1] = np.logaddexp(longer[1], before + row[label])
        ranked = sorted(grown.items(), key=lambda entry: -np.logaddexp(entry[1][0], entry[1][1]))
        beam = {prefix: (blank, token) for prefix, (blank, token) in ranked[:width]}
    return [(prefix, float(np.logaddexp(*scores))) for prefix, scores in beam.items()]


def score_labels(logps: NDArray[np.float64], texts: Sequence[Prefix]) -> list[float]:
    """Return the log-probability of each text: the sum over all ways to label vectors (n, V) with it; -inf if none."""
    longest = max(1, *map(len, texts))
    labels = torch.tensor([[*text, *[PAD] * (longest - len(text))] for text in texts])  # (texts, m)
    rows = torch.from_numpy(logps)[:, None].expand(-1, len(texts), -1)  # (n, texts, V)
    lengths = torch.tensor([len(logps)] * len(texts))
    losses = F.ctc_loss(rows, labels, lengths, torch.tensor([*map(len, texts)]), blank=PAD, reduction="none")
    return (-losses).tolist()


def align(logps: NDArray[np.float64], tokens: Prefix) -> list[int]:
    """Return the vector of each token on the most probable path through log-probabilities (n, V) (Viterbi)."""
    states = [PAD] + [label for token in tokens for label in (token, PAD)]  # blanks around all tokens
    count = len(states)
    scores = np.full(count, -math.inf)
    scores[0] = 0.0
    came_from = np.zeros((len(logps), count), np.int64)
    skips = [i >= 2 and states[i] != PAD and states[i] != states[i - 2] for i in range(count)]
    for step, row in enumerate(logps):
        before = scores if step else np.concatenate([[0.0], np.full(count - 1, -math.inf)])
        one, two = np.concatenate([[-math.inf], before[:-1]]), np.concatenate([[-math.inf] * 2, before[:-2]])[:count]
        choices = np.stack([before, one, np.where(skips, two, -math.inf)])
        came_from[step] = choices.argmax(0)
        scores = choices.max(0) + row[states]
    state = count - 1 if count == 1 or scores[-1] >= scores[-2] else count - 2
    path = []
    for step in range(len(logps) - 1, -1, -1):
        path.append(state)
        state -= came_from[step][state]
    path.reverse()
    places = []
    for i, token in enumerate(tokens):
        vectors = [step for step, state in enumerate(path) if state == 2 * i + 1]
        places.append(max(vectors, key=lambda step: logps[step, token]) if vectors else len(logps) - 1)
    return places
