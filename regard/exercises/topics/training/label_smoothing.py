"""Write label smoothing (Szegedy et al. 2016; E7)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def smoothed_loss(logits: Tensor, labels: Tensor, eps: float) -> Tensor:
    """Logits (n, V), labels (n); return the mean loss against smoothed labels, one number."""
    raise NotImplementedError
'''


def reference(logits: Tensor, labels: Tensor, eps: float, *, mass: str = "all", swap: bool = False) -> Tensor:
    """Return the cross-entropy with 1 - eps on the label and eps spread evenly over the vocabulary."""
    eps = 1 - eps if swap else eps
    V = logits.shape[-1]
    one_hot = torch.nn.functional.one_hot(labels, V).float()
    targets = {
        "all": (1 - eps) * one_hot + eps / V,
        "others": (1 - eps) * one_hot + eps / (V - 1) * (1 - one_hot),
        "too much": one_hot + eps / V,
        "too little": (1 - eps) * one_hot,
        "each": (1 - eps) * one_hot + eps,
    }[mass]
    return -(targets * torch.log_softmax(logits, -1)).sum(-1).mean()


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("a small vocabulary", (draw(3, 4), torch.tensor([1, 0, 3]), 0.1))
    yield Case("strong smoothing", (draw(5, 6) * 2, torch.tensor([5, 1, 2, 2, 0]), 0.3))


EXERCISE = CodeExercise(
    question="""
        Label smoothing asks the model to be a little unsure. The target is not the one-hot row of the label, but a
        mixture with the uniform distribution over all V words (the label included):

            target = (1 - eps) * one_hot + eps / V

        The loss is the cross-entropy -Σ target * log p of each token. Return its mean over the tokens.
    """,
    function="smoothed_loss",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "only-the-other-words",
            "eps is spread over the other V - 1 words only, not over all.",
            "Both are in use; with this one the label keeps exactly 1 - eps. Losses of the two cannot be compared.",
            mass="others",
        ),
        mistake(
            "mass-above-one",
            "The label keeps all its mass, so the target sums to 1 + eps.",
            "What is spread over the words must be taken from the label: a target is a distribution.",
            mass="too much",
        ),
        mistake(
            "mass-below-one",
            "The uniform part is missing, so the target sums to 1 - eps.",
            "That only scales the loss: the model still wants to be absolutely sure.",
            mass="too little",
        ),
        mistake(
            "eps-for-each-word",
            "Each word gets eps instead of eps / V.",
            "The target then sums to nearly 1 + V eps, and the loss is mostly that of the wrong words.",
            mass="each",
        ),
        mistake(
            "eps-swapped",
            "eps and 1 - eps are exchanged.",
            "The label gets the small part, and the model learns to know nothing.",
            swap=True,
        ),
    ),
)
