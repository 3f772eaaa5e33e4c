"""What an exercise is: a question, a skeleton to fill in, a reference, and the usual mistakes.

The reference computes the right answer, and with an option the answer that a usual mistake gives. The checker compares
a student's answer with all of them, so that a diagnosis is evidence and not a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Mistake:
    """A usual mistake: its name, what is wrong, why it matters, and the options of the reference that make it."""

    name: str
    what: str
    why: str
    options: Mapping[str, Any]


def mistake(name: str, what: str, why: str, **options: Any) -> Mistake:
    """Return a mistake; the options are those that make the reference go wrong in the same way."""
    return Mistake(name, what, why, options)


class Case(NamedTuple):
    """Arguments on which a function is checked; the label completes "right for …" and "wrong for …"."""

    label: str
    arguments: tuple[Any, ...]


class Draw:
    """Random inputs of the checks, the same each time: `draw(3, 4)` is a matrix of normal numbers."""

    def __init__(self, seed: int = 0) -> None:
        import torch

        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        import torch

        return torch.randn(*shape, generator=self.generator)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Return integers from `low` to `high` - 1."""
        import torch

        return torch.randint(low, high, shape, generator=self.generator)


@dataclass(frozen=True)
class CodeExercise:
    """A function to write, or one in which to find the bug.

    `skeleton` is the code that the student completes or corrects. `reference` takes the same arguments as the function
    and the options of the mistakes. `cases` yields arguments, from simple to general.
    """

    question: str
    function: str
    skeleton: str
    reference: Callable[..., Any]
    cases: Callable[[Draw], Iterable[Case]]
    mistakes: tuple[Mistake, ...]
    tolerance: float = 1e-4
    suffix: str = field(default=".py", init=False)


@dataclass(frozen=True)
class NumberExercise:
    """Numbers to compute by hand, written into a TOML file.

    `answers` describes each answer by its name; `reference` returns them all. `tolerance` allows for rounding.
    """

    question: str
    answers: Mapping[str, str]
    reference: Callable[..., dict[str, Any]]
    mistakes: tuple[Mistake, ...]
    tolerance: float = 0.006
    suffix: str = field(default=".toml", init=False)


Exercise = CodeExercise | NumberExercise
