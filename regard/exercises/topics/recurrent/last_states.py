"""Pick the state after the last real word: the bottleneck of the encoder-decoder (Sutskever et al. 2014; C4)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def last_states(states: Tensor, lengths: Tensor) -> Tensor:
    """States (B, n, h) of padded sentences with these lengths (B); return the last state of each (B, h)."""
    raise NotImplementedError
'''


def reference(states: Tensor, lengths: Tensor, *, pick: str = "last real") -> Tensor:
    """Return the state after the last real word of each sentence."""
    rows = torch.arange(len(states))
    if pick == "mean":
        return states.mean(1)
    n = states.shape[1]
    places = {"last real": lengths - 1, "last column": lengths * 0 - 1, "one late": lengths % n, "first": lengths * 0}
    return states[rows, places[pick]]


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("one sentence", (draw(1, 5, 3), torch.tensor([3])))
    yield Case("sentences of different length", (draw(3, 6, 4), torch.tensor([5, 1, 2])))


EXERCISE = CodeExercise(
    question="""
        In a recurrent encoder-decoder, the last state of the encoder is all that the decoder gets to know about the
        source sentence. In a batch, short sentences are padded, and the network has read the padding, too. Return for
        each sentence its state after the last real word.
    """,
    function="last_states",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "state-after-the-padding",
            "The last column is taken: the state after the padding.",
            "The network forgets while it reads padding, and a translation then depends on the rest of the batch.",
            pick="last column",
        ),
        mistake(
            "one-too-late",
            "It is off by one: the state after the first padding token.",
            "A sentence of length 3 has the states 0, 1, 2; the last one has index length - 1.",
            pick="one late",
        ),
        mistake(
            "first-state",
            "The first state is taken.",
            "It has seen one word only.",
            pick="first",
        ),
        mistake(
            "mean",
            "It is the mean of all states, padding included.",
            "Averaging is one way to a sentence vector, but the bottleneck is the last state.",
            pick="mean",
        ),
    ),
)
