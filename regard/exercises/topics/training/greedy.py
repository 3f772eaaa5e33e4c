"""Write greedy decoding (E8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
from collections.abc import Callable

import torch
from torch import Tensor


def greedy(model: Callable[[list[int]], Tensor], start: int, end: int, max_tokens: int) -> list[int]:
    """`model` maps the tokens so far to the logits (V) of the next; return the new tokens, without start and end."""
    raise NotImplementedError
'''


class HashModel:
    """A stand-in for a language model: logits that depend on all tokens so far, and the end after some steps."""

    def __init__(self, table: Tensor, end: int, steps: int) -> None:
        self.table, self.end, self.steps = table, end, steps

    def __call__(self, tokens: list[int]) -> Tensor:
        row = sum((i + 1) * token for i, token in enumerate(tokens)) % len(self.table)
        logits = self.table[row].clone()
        logits[self.end] = 99.0 if len(tokens) > self.steps else -99.0
        return logits


def reference(
    model: Callable[[list[int]], Tensor],
    start: int,
    end: int,
    max_tokens: int,
    *,
    keep_start: bool = False,
    keep_end: bool = False,
    feed: str = "all",
    largest: bool = True,
    stop: bool = True,
    extra: int = 0,
) -> list[int]:
    """Return the most probable token at each step, until the end token or the limit."""
    tokens = [start]
    for _ in range(max_tokens + extra):
        logits = model({"all": tokens, "last": tokens[-1:], "start": [start]}[feed])
        token = int(logits.argmax() if largest else logits.argmin())
        if token == end and stop:
            if keep_end:
                tokens.append(token)
            break
        tokens.append(token)
    return tokens if keep_start else tokens[1:]


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("a text that ends", (HashModel(draw(13, 9), end=2, steps=4), 1, 2, 10))
    yield Case("a text that reaches the limit", (HashModel(draw(13, 9), end=2, steps=50), 1, 2, 6))
    yield Case("an empty text", (HashModel(draw(13, 9), end=0, steps=0), 1, 0, 5))


EXERCISE = CodeExercise(
    question="""
        Write greedy decoding. Begin with the start token. At each step, give the model all tokens so far (start first),
        take the token with the largest logit, and feed it back. Stop at the end token, or after `max_tokens` new
        tokens. Return the new tokens, without start and end.
    """,
    function="greedy",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "start-returned",
            "The start token is in the result.",
            "It is a signal for the model, and no part of the text.",
            keep_start=True,
        ),
        mistake(
            "end-returned",
            "The end token is in the result.",
            "It is a signal that the text is complete, and no part of it.",
            keep_end=True,
        ),
        mistake(
            "only-the-last-token",
            "The model gets the last token only, not all tokens so far.",
            "It forgets what it wrote. (With a key-value cache one feeds one token, and the cache has the rest.)",
            feed="last",
        ),
        mistake(
            "nothing-fed-back",
            "The model always gets the start token only.",
            "Each new token must be fed back, else the model predicts the first word again and again.",
            feed="start",
        ),
        mistake(
            "does-not-stop",
            "It does not stop at the end token.",
            "What a model writes after the end is undefined.",
            stop=False,
        ),
        mistake(
            "one-too-many",
            "It writes one token more than max_tokens.",
            "The start token does not count, but every new one does.",
            extra=1,
        ),
        mistake(
            "one-too-few",
            "It writes one token fewer than max_tokens.",
            "The start token does not count towards the limit.",
            extra=-1,
        ),
    ),
)
