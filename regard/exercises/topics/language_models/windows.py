"""Cut a text into training windows (E10)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def windows(text: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Text (N) of token numbers; return inputs and labels (B, size): windows one after the other, the rest dropped."""
    raise NotImplementedError
'''


def reference(
    text: Tensor, size: int, *, shift: int = 1, stride: str = "size", need: str = "one token more"
) -> tuple[Tensor, Tensor]:
    """Return windows of the text, and the same windows one token later."""
    last = len(text) - size - (1 if need == "one token more" else size)
    starts = range(0, last + 1, size if stride == "size" else 1)
    inputs = torch.stack([text[i : i + size] for i in starts])
    labels = torch.stack([text[i + shift : i + shift + size] for i in starts])
    return inputs, labels


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("a text that fits", (torch.arange(13), 4))
    yield Case("a text with a rest", (draw.integers(0, 50, 31), 5))
    yield Case("a text one token too short for another window", (draw.integers(0, 50, 12), 4))


EXERCISE = CodeExercise(
    question="""
        A language model is trained on windows of a long text. The label of each token is the next token of the text.
        Cut the text into windows of `size` tokens that follow each other without overlap, and drop the rest. A window
        is used only if all its labels exist, that of the last token included.

        For the text 0 1 2 3 4 5 6 and size 3: inputs 0 1 2 and 3 4 5, labels 1 2 3 and 4 5 6.
    """,
    function="windows",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "not-shifted",
            "The labels are the inputs: they are not shifted.",
            "The model sees the token that it should predict, and the loss falls to zero for nothing.",
            shift=0,
        ),
        mistake(
            "overlapping",
            "The windows start at every token, so they overlap.",
            "That is fine for a small text, but an epoch takes `size` times as long.",
            stride="one",
        ),
        mistake(
            "last-window-lost",
            "The last window is lost although all its labels exist.",
            "Only one token more than the window is needed, not a whole window more.",
            need="another window",
        ),
    ),
)
