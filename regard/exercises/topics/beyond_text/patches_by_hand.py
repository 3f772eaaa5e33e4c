"""Count the tokens of a Vision Transformer by hand (Dosovitskiy et al. 2021; G5)."""

from __future__ import annotations

from regard.exercises.exercise import NumberExercise, mistake

SIZE, PATCH, CHANNELS = 224, 16, 3


def reference(
    *, extra: int = 1, both_sides: bool = True, channels: bool = True, pairs: str = "square"
) -> dict[str, int]:
    """Return the number of tokens, the numbers in a patch, and the scores of a head."""
    side = SIZE // PATCH
    tokens = (side * side if both_sides else side) + extra
    numbers = PATCH * PATCH * (CHANNELS if channels else 1)
    return {"tokens": tokens, "patch": numbers, "scores": tokens * tokens if pairs == "square" else tokens}


EXERCISE = NumberExercise(
    question="""
        A Vision Transformer cuts an image of 224 × 224 pixels with three colours into patches of 16 × 16 pixels. Each
        patch is a token, and one more token, the class token, gathers what is needed to classify the image.

        a) How many tokens does attention see?
        b) How many numbers are in a patch, before it is projected to the width of the model?
        c) How many scores does one head compute?
    """,
    answers={"tokens": "a) a number", "patch": "b) a number", "scores": "c) a number"},
    reference=reference,
    tolerance=0.5,
    mistakes=(
        mistake(
            "no-class-token",
            "The class token is not counted.",
            "It attends and is attended to like any patch.",
            extra=0,
        ),
        mistake(
            "one-side-only",
            "The patches are counted along one side only.",
            "The image is cut in both directions: 14 rows of 14 patches.",
            both_sides=False,
        ),
        mistake(
            "colours-forgotten",
            "The three colours are missing in b).",
            "Each pixel has a number for red, for green and for blue.",
            channels=False,
        ),
        mistake(
            "scores-linear",
            "There is only one score for each token in c).",
            "Each token compares itself with every token. Halving the patch size makes 16 times as many scores.",
            pairs="linear",
        ),
    ),
)
