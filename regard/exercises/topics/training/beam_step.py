"""Write a step of beam search (E8)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def beam_step(scores: Tensor, logp: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (k) of the hypotheses, log-probabilities (k, V) of each next token.

    Return the k best continuations, best first: new scores (k), the hypothesis that each continues (k), its token (k).
    """
    raise NotImplementedError
'''


def reference(
    scores: Tensor,
    logp: Tensor,
    *,
    carry: bool = True,
    choice: str = "together",
    decode: str = "row, column",
    combine: str = "add",
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the k best of all k · V continuations."""
    k, V = logp.shape
    total = scores[:, None] + logp if carry else logp
    if combine == "probabilities":
        total = scores[:, None] + logp.exp()
    if choice == "one each":
        best, tokens = total.max(1)
        order = best.argsort(descending=True)
        return best[order], order, tokens[order]
    if choice == "first":
        best, tokens = total[0].topk(k)
        return best, torch.zeros(k, dtype=torch.long), tokens
    best, index = total.flatten().topk(k)
    if decode == "swapped":
        return best, index % V, index // V
    if decode == "by k":
        return best, index // k, index % k
    return best, index // V, index % V


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("two hypotheses", (torch.tensor([-1.0, -1.4]), torch.log_softmax(draw(2, 5), -1)))
    yield Case("a hypothesis far ahead", (torch.tensor([-0.5, -6.0, -7.0]), torch.log_softmax(draw(3, 4), -1)))
    yield Case("four hypotheses", (torch.tensor([-1.0, -1.1, -1.2, -1.3]), torch.log_softmax(draw(4, 7) * 2, -1)))


EXERCISE = CodeExercise(
    question="""
        A beam has k hypotheses. Their scores are the log-probabilities of all their tokens so far. Each can be
        continued by any of V tokens. Return the k best of all k · V continuations, best first: their scores, which
        hypothesis each one continues (0 … k - 1), and by which token. One hypothesis may be continued several times,
        another not at all.
    """,
    function="beam_step",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "one-for-each-hypothesis",
            "Each hypothesis keeps its best continuation.",
            "Those are k greedy searches side by side. All continuations compete, so a good hypothesis can have two.",
            choice="one each",
        ),
        mistake(
            "scores-not-carried",
            "The scores of the hypotheses are not added.",
            "Only the last token counts then, and a bad beginning is forgotten.",
            carry=False,
        ),
        mistake(
            "probabilities-added",
            "Probabilities are added to log-probabilities.",
            "Scores are logarithms: add log p, which multiplies the probabilities.",
            combine="probabilities",
        ),
        mistake(
            "hypothesis-and-token-swapped",
            "Hypothesis and token are exchanged when the flat index is taken apart.",
            "In a flattened (k, V), the row is index // V and the column index % V.",
            decode="swapped",
        ),
        mistake(
            "divided-by-the-beam-width",
            "The flat index is divided by k instead of V.",
            "A row has V entries, so the row is index // V.",
            decode="by k",
        ),
        mistake(
            "first-hypothesis-only",
            "Only the first hypothesis is continued.",
            "That is right for the very first step alone, where all hypotheses are the same.",
            choice="first",
        ),
    ),
)
