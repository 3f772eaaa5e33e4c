"""Write the cross-entropy of a padded batch (E7)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor, pad: int) -> Tensor:
    """Logits (B, n, V), labels (B, n), padded with `pad`; return the mean loss of the real tokens, one number."""
    raise NotImplementedError
'''


def reference(
    logits: Tensor,
    labels: Tensor,
    pad: int,
    *,
    over: str = "real tokens",
    sign: int = -1,
    log: bool = True,
    twice: bool = False,
    axis: int = -1,
) -> Tensor:
    """Return the mean of -log p of the labels, without padding."""
    logits = torch.softmax(logits, -1) if twice else logits
    logp = torch.log_softmax(logits, axis)
    picked = (logp if log else logp.exp()).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    loss, real = sign * picked, labels != pad
    return {
        "real tokens": loss[real].mean(),
        "all tokens": loss.mean(),
        "sentences": ((loss * real).sum(1) / real.sum(1)).mean(),
        "sum": loss[real].sum(),
        "padded length": (loss * real).sum() / labels.numel(),
    }[over]


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("a batch without padding", (draw(2, 3, 5), torch.tensor([[1, 4, 2], [3, 3, 1]]), 0))
    yield Case("a padded batch", (draw(3, 4, 6) * 2, torch.tensor([[1, 5, 2, 3], [4, 0, 0, 0], [2, 2, 0, 0]]), 0))


EXERCISE = CodeExercise(
    question="""
        The loss of a token is -log p(label), where p is the softmax of the logits over the vocabulary. Return the mean
        loss of all real tokens of the batch; labels equal to `pad` are padding and do not count. Do not use
        torch.nn.functional.cross_entropy, but torch.log_softmax is fine.
    """,
    function="cross_entropy",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "padding-counted",
            "The padding counts, too.",
            "The model would learn to write padding, which is easy, and the loss looks better than it is.",
            over="all tokens",
        ),
        mistake(
            "divided-by-the-padded-length",
            "The losses of padding are zero, but the sum is divided by the number of all tokens.",
            "The loss then depends on how much padding is in the batch. Divide by the number of real tokens.",
            over="padded length",
        ),
        mistake(
            "mean-of-sentences",
            "It is the mean over sentences of their mean losses.",
            "A token of a short sentence then weighs more than one of a long sentence.",
            over="sentences",
        ),
        mistake(
            "summed",
            "The losses are added, not averaged.",
            "The gradient then grows with the size of the batch.",
            over="sum",
        ),
        mistake(
            "softmax-twice",
            "The softmax is applied twice: log_softmax gets probabilities instead of logits.",
            "A frequent one: the loss falls slowly and never gets small, because the differences are squashed.",
            twice=True,
        ),
        mistake(
            "no-logarithm",
            "The logarithm is missing: it is the mean of -p.",
            "Without it, a wrong token with probability 0.001 costs hardly more than one with 0.1.",
            log=False,
        ),
        mistake(
            "sign",
            "The sign is wrong: it is the mean log-probability.",
            "Minimizing it makes the right tokens as improbable as possible.",
            sign=1,
        ),
        mistake(
            "softmax-over-positions",
            "The softmax goes over the positions instead of the vocabulary.",
            "At each position, the probabilities of all words sum to one.",
            axis=1,
        ),
    ),
)
