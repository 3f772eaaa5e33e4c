"""Find the bug in a decoder for batches (E8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
from collections.abc import Callable

import torch
from torch import Tensor


def decode_batch(model: Callable[[Tensor], Tensor], batch: int, start: int, end: int, pad: int, limit: int) -> Tensor:
    """`model` maps tokens (B, t) to logits (B, t, V); return the new tokens (B, up to limit), padded after the end."""
    tokens = torch.full((batch, 1), start)
    finished = torch.zeros(batch, dtype=torch.bool)
    for _ in range(limit):
        logits = model(tokens)[:, 0]
        token = logits.argmax(-1)
        tokens = torch.cat([tokens, token[:, None]], dim=1)
        finished |= token == end
        if finished.any():
            break
    return tokens[:, 1:]
'''


class BatchModel:
    """A stand-in for a model: each row of the batch ends after a number of steps of its own."""

    def __init__(self, table: Tensor, end: int, steps: list[int]) -> None:
        self.table, self.end, self.steps = table, end, steps

    def __call__(self, tokens: Tensor) -> Tensor:
        weights = torch.arange(1, tokens.shape[1] + 1)
        rows = (tokens * weights).cumsum(1) + torch.arange(len(tokens))[:, None]
        logits = self.table[rows % len(self.table)].clone()
        places = torch.arange(tokens.shape[1])
        ends = places[None] == torch.tensor(self.steps)[:, None]
        logits[..., self.end] = torch.where(ends, 99.0, -99.0)
        return logits


def reference(
    model: Callable[[Tensor], Tensor],
    batch: int,
    start: int,
    end: int,
    pad: int,
    limit: int,
    *,
    position: int = -1,
    stop: str = "all",
    fill: bool = True,
) -> Tensor:
    """Return greedy outputs; a finished row gets padding until all are finished."""
    tokens = torch.full((batch, 1), start)
    finished = torch.zeros(batch, dtype=torch.bool)
    for _ in range(limit):
        token = model(tokens)[:, position].argmax(-1)
        token = torch.where(finished, pad, token) if fill else token
        tokens = torch.cat([tokens, token[:, None]], dim=1)
        finished |= token == end
        if bool(finished.any() if stop == "any" else finished.all()) and stop != "never":
            break
    return tokens[:, 1:]


def cases(draw: Draw) -> Iterator[Case]:
    def model(*steps: int) -> BatchModel:
        table = draw(17, 8)
        table[:, 0] = -99.0  # a model does not write padding
        return BatchModel(table, end=2, steps=list(steps))

    yield Case("a batch of one", (model(3), 1, 1, 2, 0, 8))
    yield Case("rows that end at different steps", (model(2, 5, 3), 3, 1, 2, 0, 8))
    yield Case("a row that does not end", (model(1, 99), 2, 1, 2, 0, 5))


EXERCISE = CodeExercise(
    question="""
        This function decodes a batch greedily. It should go on until all rows have ended, or `limit` tokens are
        written; a row that has ended gets padding. Its outputs are nonsense, and most of them stop in the middle of a
        sentence. There are three bugs in it. Find and mend them.
    """,
    function="decode_batch",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "first-position",
            "The next token is still taken from the first position instead of the last.",
            "The logits of position t predict token t + 1; the new token follows the last one.",
            position=0,
        ),
        mistake(
            "stops-with-the-first",
            "Decoding still stops as soon as any row has ended.",
            "The others are cut in the middle: stop when all rows have ended.",
            stop="any",
        ),
        mistake(
            "no-padding-after-the-end",
            "A row that has ended still gets tokens instead of padding.",
            "What a model writes after the end token is undefined, and would be part of the output.",
            fill=False,
        ),
        mistake(
            "never-stops",
            "Decoding goes on to the limit even if all rows have ended.",
            "The result is right but for useless columns of padding, and the time is wasted.",
            stop="never",
        ),
    ),
)
