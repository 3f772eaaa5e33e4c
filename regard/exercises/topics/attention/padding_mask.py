"""Write a padding mask (D10)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """Lengths (B) of the sentences, padded to `size`; return a mask (B, 1, 1, size), True where a query may attend."""
    raise NotImplementedError
'''


def reference(
    lengths: Tensor, size: int, *, inverted: bool = False, shift: int = 0, masks: str = "keys", side: str = "right"
) -> Tensor:
    """Return True for each key that is no padding."""
    places = torch.arange(size)
    if side == "left":
        places = places.flip(0)
    mask = places < lengths[:, None] + shift  # (B, size)
    mask = ~mask if inverted else mask
    return mask[:, None, None, :] if masks == "keys" else mask[:, None, :, None]


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("one sentence", (torch.tensor([3]), 5))
    yield Case("three sentences", (torch.tensor([2, 5, 1]), 6))
    yield Case("a sentence without padding", (torch.tensor([4, 2]), 4))


EXERCISE = CodeExercise(
    question="""
        Sentences of a batch are padded at the end to the same size. No query should attend to padding. Write the mask:
        entry [b, 0, 0, k] is True where key k of sentence b is a real token, and False where it is padding.

        The two dimensions of size 1 broadcast over heads and queries, so the same mask fits scores (B, H, m, n).
    """,
    function="padding_mask",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "inverted",
            "The mask is inverted: it is True at the padding.",
            "Here True means that a query may attend. Libraries differ, so read what a mask means each time:"
            " an inverted one makes the model attend to nothing but padding.",
            inverted=True,
        ),
        mistake(
            "one-too-many",
            "The mask is off by one: the first padding token is allowed.",
            "Positions count from 0, so a sentence of length 3 has the positions 0, 1, 2: use <, not <=.",
            shift=1,
        ),
        mistake(
            "one-too-few",
            "The mask is off by one: the last real token is masked.",
            "The last token is often the end token or the verb, and no query could attend to it.",
            shift=-1,
        ),
        mistake(
            "queries-masked",
            "The mask lies along the queries, not along the keys.",
            "Shape (B, 1, size, 1) empties whole rows, and padding as a key still gets weight from every real token.",
            masks="queries",
        ),
        mistake(
            "padding-left",
            "The mask expects the padding at the start.",
            "These sentences are padded at the end.",
            side="left",
        ),
    ),
)
