"""Write a recurrent network over a sequence (Elman 1990; C1)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def rnn(X: Tensor, W: Tensor, U: Tensor, b: Tensor) -> Tensor:
    """Inputs X (n, d), W (d, h), U (h, h), b (h); return all states h_1 … h_n as rows (n, h)."""
    raise NotImplementedError
'''


def reference(
    X: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor,
    *,
    carry: bool = True,
    activation: bool = True,
    bias: bool = True,
    transpose: bool = False,
    before: bool = False,
    backwards: bool = False,
) -> Tensor:
    """Return the states of h_t = tanh(x_t W + h_{t-1} U + b)."""
    state, states = torch.zeros(len(b)), []
    for x in X.flip(0) if backwards else X:
        states.append(state)
        past = state if carry else torch.zeros(len(b))
        state = x @ W + past @ (U.T if transpose else U) + (b if bias else 0.0)
        state = torch.tanh(state) if activation else state
    states.append(state)
    return torch.stack(states[:-1] if before else states[1:])


def cases(draw: Draw) -> Iterator[Case]:
    for label, n, d, h in (("one step", 1, 3, 2), ("two steps", 2, 3, 4), ("six steps", 6, 2, 5)):
        yield Case(label, (draw(n, d), draw(d, h), draw(h, h) * 0.5, draw(h)))


EXERCISE = CodeExercise(
    question="""
        Write a recurrent network that reads a sequence from left to right:

            h_t = tanh(x_t W + h_{t-1} U + b)        h_0 = 0

        Return all states as rows, h_1 first. A loop over the steps is fine: that it cannot be avoided is one of the
        reasons for the Transformer.
    """,
    function="rnn",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "state-not-carried",
            "Each step starts from the zero state.",
            "The state is the network's only memory: without it, word order and everything earlier are lost.",
            carry=False,
        ),
        mistake(
            "no-tanh",
            "The tanh is missing.",
            "The states grow without bound, and a linear network of many steps is no more than one of one step.",
            activation=False,
        ),
        mistake(
            "no-bias",
            "The bias is missing.",
            "With an input of zeros, every unit would be stuck at zero.",
            bias=False,
        ),
        mistake(
            "transposed",
            "The matrix U is transposed.",
            "U is square, so nothing complains. torch.nn.RNN stores its weights transposed; here states are rows.",
            transpose=True,
        ),
        mistake(
            "states-before-the-step",
            "The rows are h_0 … h_{n-1}: each state before its step.",
            "Row t must know input t; append the state after it was updated.",
            before=True,
        ),
        mistake(
            "read-backwards",
            "The sequence is read from right to left.",
            "A bidirectional network does both; this one reads forward.",
            backwards=True,
        ),
    ),
)
