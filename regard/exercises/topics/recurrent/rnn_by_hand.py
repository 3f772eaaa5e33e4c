"""Unroll a recurrent network by hand (C1)."""

from __future__ import annotations

from regard.exercises.exercise import NumberExercise, mistake

INPUTS = (1.0, 0.0, 2.0)


def reference(
    *, activation: bool = True, carry: bool = True, swap: bool = False, start: float = 0.0
) -> dict[str, float]:
    """Return the states of h_t = max(0, 2 x_t - h_{t-1} + 1)."""
    state, states = start, {}
    w, u = (-1.0, 2.0) if swap else (2.0, -1.0)
    for t, x in enumerate(INPUTS, start=1):
        state = w * x + u * (state if carry else 0.0) + 1
        state = max(0.0, state) if activation else state
        states[f"h{t}"] = state
    return states


EXERCISE = NumberExercise(
    question="""
        A recurrent network with one number as its state computes

            h_t = ReLU(2 x_t - h_{t-1} + 1)        h_0 = 0

        where ReLU(z) = max(0, z). Compute its states for the inputs x_1 = 1, x_2 = 0, x_3 = 2.
    """,
    answers={"h1": "a number", "h2": "a number", "h3": "a number"},
    reference=reference,
    mistakes=(
        mistake(
            "no-activation",
            "The ReLU is left out, so a state is negative.",
            "Without it, the network is linear: many steps are no more than one.",
            activation=False,
        ),
        mistake(
            "state-forgotten",
            "The previous state is not used.",
            "Then each state depends on its own input only: the network has no memory.",
            carry=False,
        ),
        mistake(
            "weights-swapped",
            "The weight of the input is used for the state, and the other way around.",
            "Read the formula again: 2 belongs to x_t, -1 to h_{t-1}.",
            swap=True,
        ),
        mistake(
            "starts-at-one",
            "The first state h_0 is 1 instead of 0.",
            "A network without a given state starts from zero.",
            start=1.0,
        ),
    ),
)
