"""Count the parameters of an encoder block by hand (E2, E3)."""

from __future__ import annotations

from regard.exercises.exercise import NumberExercise, mistake

D, HIDDEN, HEADS = 512, 2048, 8


def reference(
    *, matrices: int = 4, per_head: bool = False, hidden_bias: bool = True, gains: int = 2, layers: int = 2
) -> dict[str, int]:
    """Return the parameters of attention, feed-forward and normalization, and of the whole block."""
    attention = matrices * D * D * (HEADS if per_head else 1)
    feed_forward = layers * D * HIDDEN + (HIDDEN + D if hidden_bias else 0)
    norms = 2 * gains * D
    return {
        "attention": attention,
        "feed_forward": feed_forward,
        "norms": norms,
        "block": attention + feed_forward + norms,
    }


EXERCISE = NumberExercise(
    question="""
        Count the parameters of an encoder block of the original Transformer: width d = 512, 8 heads of width 64, and a
        feed-forward net with 2048 hidden units.

        - attention: the matrices W_q, W_k, W_v and W_o, without biases
        - feed-forward: two matrices, each with a bias
        - two layer normalizations, each with a gain and a bias per feature
    """,
    answers={"attention": "a number", "feed_forward": "a number", "norms": "a number", "block": "their sum"},
    reference=reference,
    tolerance=0.5,
    mistakes=(
        mistake(
            "times-heads",
            "The matrices of attention are counted once per head.",
            "The heads share the width: 8 heads of width 64 are 512 columns, so more heads cost no parameters.",
            per_head=True,
        ),
        mistake(
            "output-matrix-forgotten",
            "W_o is missing: there are only three matrices in attention.",
            "The output matrix mixes the heads; it is as large as the others.",
            matrices=3,
        ),
        mistake(
            "biases-forgotten",
            "The biases of the feed-forward net are missing.",
            "There are 2048 for the hidden units and 512 for the output.",
            hidden_bias=False,
        ),
        mistake(
            "one-matrix",
            "Only one matrix of the feed-forward net is counted.",
            "One leads from 512 to 2048, a second one back.",
            layers=1,
        ),
        mistake(
            "only-gains",
            "The biases of the layer normalizations are missing.",
            "Each has a gain and a bias per feature.",
            gains=1,
        ),
    ),
)
