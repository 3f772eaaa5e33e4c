"""Write the learning rate of the Transformer (Vaswani et al. 2017, eq. 3; E7)."""

from __future__ import annotations

from collections.abc import Iterator

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
def learning_rate(step: int, d: int, warmup: int) -> float:
    """Return the learning rate of a training step, counted from 1."""
    raise NotImplementedError
'''


def reference(
    step: int, d: int, warmup: int, *, pick: str = "min", width: float = -0.5, shift: int = 0, rise: float = -1.5
) -> float:
    """Return d^-0.5 min(step^-0.5, step warmup^-1.5)."""
    step = step + shift
    rising, falling = step * warmup**rise, step**-0.5
    choice = {"min": min(rising, falling), "max": max(rising, falling), "rising": rising, "falling": falling}
    return 1000 * d**width * choice[pick]


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("a step of the warm-up", (100, 512, 4000))
    yield Case("the end of the warm-up", (4000, 512, 4000))
    yield Case("a later step", (100_000, 256, 4000))


EXERCISE = CodeExercise(
    question="""
        The original Transformer was trained with a learning rate that rises linearly for the first `warmup` steps and
        then falls with the root of the step:

            d^(-0.5) · min(step^(-0.5), step · warmup^(-1.5))

        Write it, times 1000, so that the numbers are easy to read.
    """,
    function="learning_rate",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "maximum",
            "It is the larger of the two terms instead of the smaller.",
            "The rate then starts very high, and training diverges in its first steps.",
            pick="max",
        ),
        mistake(
            "never-falls",
            "The rate only rises.",
            "After the warm-up it should fall with the root of the step.",
            pick="rising",
        ),
        mistake(
            "no-warm-up",
            "The warm-up is missing.",
            "The first steps would be the largest, when the gradients are the wildest.",
            pick="falling",
        ),
        mistake(
            "width-multiplied",
            "The rate is multiplied by √d instead of divided by it.",
            "Wider models need smaller steps.",
            width=0.5,
        ),
    ),
)
