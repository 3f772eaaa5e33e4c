"""CTC: the loss and the searches against the sum over all labellings, one by one."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from regard.decoding.ctc import align, bar_special_tokens, collapse, decode_ctc, prefix_beam, score_labels
from regard.errors import UsageError
from regard.models.decoding_state import Encoded
from regard.tasks.losses import ctc_loss
from regard.text.tokenizers.special_tokens import END, PAD

VOCABULARY = 6  # the special tokens, of which PAD is the blank, and two others


def random_logps(steps: int, seed: int) -> Any:
    logits = np.random.default_rng(seed).normal(size=(steps, VOCABULARY)) * 1.5
    logits[:, 1:4] = -40  # UNKNOWN, START and END
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def texts_by_probability(logps: Any) -> dict[tuple[int, ...], float]:
    """The probability of each text: the sum over all ways to label the vectors."""
    totals: dict[tuple[int, ...], float] = defaultdict(float)
    for labels in itertools.product((PAD, 4, 5), repeat=len(logps)):
        text = tuple(label for label, _ in itertools.groupby(labels) if label != PAD)
        totals[text] += math.exp(sum(logps[i, label] for i, label in enumerate(labels)))
    return totals


def test_labels_collapse() -> None:
    assert collapse(np.array([0, 4, 4, 0, 4, 5, 5, 0])) == ([4, 4, 5], [1, 4, 5])
    assert collapse(np.array([0, 0])) == ([], [])


@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_most_probable_text(seed: int) -> None:
    logps = random_logps(6, seed)
    totals = texts_by_probability(logps)
    best = max(totals, key=lambda text: totals[text])
    hypothesis, places = decode_ctc(logps, beam=50)
    assert tuple(hypothesis.tokens) == best
    assert hypothesis.score == pytest.approx(math.log(totals[best]))
    assert len(places) == len(best) and places == sorted(places)
    ranked = sorted(totals, key=lambda text: -totals[text])[:5]
    assert [text for text, _ in prefix_beam(bar_special_tokens(logps), 200)[:5]] == ranked
    wanted = [*ranked, (4, 4, 4, 4, 5)]  # the last one needs more than six vectors
    scores = score_labels(logps, wanted)
    assert scores[:5] == pytest.approx([math.log(totals[text]) for text in ranked]) and scores[5] == -math.inf
    greedy, _ = decode_ctc(logps)
    assert greedy.score == pytest.approx(logps.max(1).sum())
    assert hypothesis.score >= math.log(totals[tuple(greedy.tokens)]) - 1e-9


def test_the_loss_is_that_of_all_labellings() -> None:
    logps = np.stack([random_logps(6, 1), random_logps(6, 2)])
    texts = [(4, 5, 5), (5,)]
    labels = torch.tensor([[4, 5, 5, END], [5, END, PAD, PAD]])
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[1, 4:] = False  # the second recording has four vectors
    batch: Any = SimpleNamespace(ids=[0, 1], labels=labels, tokens=6)
    loss = ctc_loss(torch.from_numpy(logps), Encoded(torch.empty(0), keep), batch)
    expected = [
        -math.log(texts_by_probability(rows)[text]) for rows, text in zip((logps[0], logps[1, :4]), texts, strict=True)
    ]
    assert float(loss.total) == pytest.approx(sum(expected))
    empty: Any = SimpleNamespace(ids=[], labels=labels[:0], tokens=0)
    assert float(ctc_loss(torch.zeros(1, 3, 6), Encoded(torch.empty(0), keep[:1, :3]), empty).total) == 0


def test_places_of_tokens() -> None:
    logps = np.full((7, VOCABULARY), -5.0)
    for step, label in enumerate((PAD, 4, 4, PAD, 4, 5, PAD)):
        logps[step, label] = -0.1 - 0.01 * step
    assert align(logps, (4, 4, 5)) == [1, 4, 5]
    assert align(logps, ()) == []
    with pytest.raises(UsageError, match="beam"):
        decode_ctc(logps, beam=0)
