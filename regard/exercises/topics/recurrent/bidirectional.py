"""Align the two directions of a bidirectional network (C3, D14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
from collections.abc import Callable

import torch
from torch import Tensor


def bidirectional(X: Tensor, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]) -> Tensor:
    """Inputs X (n, d); two networks that read a sequence (n, d) and return states (n, h); return both (n, 2 h)."""
    raise NotImplementedError
'''

Network = Callable[[Tensor], Tensor]


def reference(
    X: Tensor,
    forward: Network,
    backward: Network,
    *,
    read: str = "reversed",
    align: bool = True,
    join: str = "concatenate",
    swap: bool = False,
) -> Tensor:
    """Return for each word the state of the forward network and that of the backward network."""
    ahead = forward(X)
    back = backward(X.flip(0) if read == "reversed" else X)
    back = back.flip(0) if align and read == "reversed" else back
    if join == "add":
        return ahead + back
    return torch.cat([back, ahead] if swap else [ahead, back], -1)


class Sums:
    """A network whose state is a weighted sum of what it has read, so that order matters."""

    def __init__(self, W: Tensor, decay: float) -> None:
        self.W, self.decay = W, decay

    def __call__(self, X: Tensor) -> Tensor:
        state, states = torch.zeros(self.W.shape[1]), []
        for x in X:
            state = self.decay * state + x @ self.W
            states.append(state)
        return torch.stack(states)


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("three words", (draw(3, 2), Sums(draw(2, 3), 0.5), Sums(draw(2, 3), 0.8)))
    yield Case("six words", (draw(6, 4), Sums(draw(4, 2), 0.9), Sums(draw(4, 2), 0.3)))


EXERCISE = CodeExercise(
    question="""
        The state of a recurrent network at word t knows words 1 … t only. Bahdanau's encoder runs a second network from
        right to left and joins both states, so that word t knows the whole sentence.

        `forward` and `backward` are two networks, and each reads the rows that it gets from first to last. Let the
        second one read the sentence backwards. Row t of the result has the forward state of word t, then its backward
        state.
    """,
    function="bidirectional",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "not-aligned",
            "The backward states are not reversed again, so row t has the state of another word.",
            "The network read the last word first; flip its states to put each beside the right word.",
            align=False,
        ),
        mistake(
            "not-reversed",
            "The second network reads forward, too.",
            "Then no state knows what comes after its word.",
            read="forward",
        ),
        mistake(
            "added",
            "The states are added instead of put side by side.",
            "Then left and right context cannot be told apart.",
            join="add",
        ),
        mistake(
            "order-of-directions",
            "The backward states come first.",
            "The next layer's weights expect the forward states first.",
            swap=True,
        ),
    ),
)
