"""Count what exact attention and random features cost, by hand (F3)."""

from __future__ import annotations

from regard.exercises.exercise import NumberExercise, mistake

N, D_K, D_V, D = 4096, 64, 64, 128


def reference(*, values: bool = True, features: int = 2, order: str = "right") -> dict[str, int]:
    """Return the multiplications of both, and the length at which they are equal."""
    M = features * D  # a sine and a cosine for each of the D random rows
    exact = N * N * (D_K + (D_V if values else 0))
    linear = N * M * D_V * 2 if order == "right" else N * N * (M + D_V)
    equal = 2 * M * D_V // (D_K + (D_V if values else 0))
    return {"exact": exact, "random_features": linear, "equal_at": equal}


EXERCISE = NumberExercise(
    question="""
        A text has n = 4096 tokens; keys and values have width 64. Count the multiplications of one head.

        a) Exact attention: Q Kᵀ, and the product of the n × n weights with V. (The softmax itself is not counted.)
        b) Random features with D = 128 random rows, so that φ(x) has 2 D = 256 entries, a sine and a cosine for each:
           φ(K)ᵀ V, and then φ(Q) times that. (Computing φ itself, and the normalizer, are not counted.)
        c) For which n are both equal?
    """,
    answers={"exact": "a) a number", "random_features": "b) a number", "equal_at": "c) a number of tokens"},
    reference=reference,
    tolerance=0.5,
    mistakes=(
        mistake(
            "values-forgotten",
            "In exact attention, the product with V is not counted.",
            "There are two products of the same size: one makes the scores, one mixes the values.",
            values=False,
        ),
        mistake(
            "cosines-forgotten",
            "φ(x) is taken with 128 entries instead of 256.",
            "Each random row gives a sine and a cosine.",
            features=1,
        ),
        mistake(
            "order-of-products",
            "φ(Q) φ(K)ᵀ is multiplied first.",
            "That makes an n × n matrix again. Multiply φ(K)ᵀ V first: this order is the whole point.",
            order="left",
        ),
    ),
)
