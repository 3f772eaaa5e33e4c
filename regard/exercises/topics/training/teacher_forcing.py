"""Make inputs and labels for teacher forcing (E7)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def inputs_and_labels(target: Tensor) -> tuple[Tensor, Tensor]:
    """Target (B, n), each row start, words, end, padding; return the decoder's inputs and labels (B, n - 1)."""
    raise NotImplementedError
'''


def reference(target: Tensor, *, how: str = "shifted") -> tuple[Tensor, Tensor]:
    """Return the target without its last column, and without its first."""
    return {
        "shifted": (target[:, :-1], target[:, 1:]),
        "unshifted": (target[:, :-1], target[:, :-1]),
        "unshifted end": (target[:, 1:], target[:, 1:]),
        "whole": (target, target),
        "reversed": (target[:, 1:], target[:, :-1]),
        "two": (target[:, :-2], target[:, 2:]),
        "end lost": (target[:, :-2], target[:, 1:-1]),
    }[how]


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("one sentence", (torch.tensor([[1, 7, 5, 9, 2]]),))
    yield Case("a padded batch", (torch.tensor([[1, 7, 5, 2], [1, 8, 2, 0], [1, 2, 0, 0]]),))


EXERCISE = CodeExercise(
    question="""
        In training, the decoder gets the true target, moved right by one: from the start token it predicts the first
        word, from the first word the second, and from the last word the end token.

        The rows of `target` have the start token, the words, the end token and padding. Return what goes into the
        decoder, and which token it should predict at each place.
    """,
    function="inputs_and_labels",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "not-shifted",
            "Inputs and labels are the same tokens: the labels are not shifted.",
            "The decoder sees the token that it should predict, learns to copy it, and can write nothing.",
            how="unshifted",
        ),
        mistake(
            "not-shifted-without-start",
            "Inputs and labels are the same, both without the start token.",
            "The decoder sees the token that it should predict, and never learns to begin from the start token.",
            how="unshifted end",
        ),
        mistake(
            "whole-target",
            "Inputs and labels are both the whole target.",
            "Cut the last column from the inputs and the first from the labels, so that labels are one step ahead.",
            how="whole",
        ),
        mistake(
            "shifted-backwards",
            "The shift goes the wrong way: the labels are the previous tokens.",
            "The decoder would learn to say what it has just read.",
            how="reversed",
        ),
        mistake(
            "shifted-by-two",
            "The labels are two steps ahead.",
            "Each token should predict the next one; decoding feeds back one token at a time.",
            how="two",
        ),
        mistake(
            "end-lost",
            "The last column is missing from the labels, and with it the end token of the longest sentence.",
            "A model that is never asked for the end token does not learn to stop.",
            how="end lost",
        ),
    ),
)
