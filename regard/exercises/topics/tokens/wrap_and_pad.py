"""Make a batch: start and end tokens, padding, and a mask (A4)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def make_batch(sentences: list[list[int]], start: int, end: int, pad: int) -> tuple[Tensor, Tensor]:
    """Return the padded batch (B, n), and a mask (B, n) that is True at real tokens."""
    raise NotImplementedError
'''


def reference(
    sentences: list[list[int]],
    start: int,
    end: int,
    pad: int,
    *,
    begin: bool = True,
    finish: str = "sentence",
    side: str = "right",
    inverted: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return each sentence between start and end, padded to the longest, and where the real tokens are."""
    rows = [[start] * begin + sentence + [end] * (finish == "sentence") for sentence in sentences]
    size = max(map(len, rows))
    padding = [[pad] * (size - len(row)) for row in rows]
    ids = torch.tensor([row + fill if side == "right" else fill + row for row, fill in zip(rows, padding, strict=True)])
    mask = ids != pad
    if finish == "batch":
        ids = torch.cat([ids, torch.full((len(ids), 1), end)], dim=1)
        mask = torch.cat([mask, torch.ones(len(ids), 1, dtype=torch.bool)], dim=1)
    return ids, ~mask if inverted else mask


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("one sentence", ([[7, 5, 9]], 1, 2, 0))
    yield Case("three sentences", ([[7], [5, 9, 8, 6], [4, 4]], 1, 2, 0))
    yield Case("other special tokens", ([[0, 5], [3]], 10, 11, 12))


EXERCISE = CodeExercise(
    question="""
        Make a batch of sentences, which are lists of token numbers. Put each sentence between the start and the end
        token, then fill up with padding on the right, until all are as long as the longest. Return the batch and a mask
        that is True at real tokens (start and end are real) and False at padding.
    """,
    function="make_batch",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "end-after-padding",
            "The end token stands behind the padding.",
            "The model would have to write padding before it may end. The end token ends the sentence, not the row.",
            finish="batch",
        ),
        mistake(
            "no-end",
            "The end token is missing.",
            "The model never learns to stop, and writes on until a limit.",
            finish="never",
        ),
        mistake(
            "no-start",
            "The start token is missing.",
            "The decoder needs something to predict the first token from.",
            begin=False,
        ),
        mistake(
            "padded-left",
            "The padding is on the left.",
            "Some models generate from batches padded on the left; here positions count from the start token.",
            side="left",
        ),
        mistake(
            "mask-inverted",
            "The mask is inverted: it is True at the padding.",
            "Here True means a real token. An inverted mask makes the model attend to nothing but padding.",
            inverted=True,
        ),
    ),
)
