"""Solution of greedy."""

from collections.abc import Callable

from torch import Tensor


def greedy(model: Callable[[list[int]], Tensor], start: int, end: int, max_tokens: int) -> list[int]:
    """`model` maps the tokens so far to the logits (V) of the next; return the new tokens, without start and end."""
    tokens: list[int] = []
    while len(tokens) < max_tokens:
        token = int(model([start, *tokens]).argmax())
        if token == end:
            break
        tokens.append(token)
    return tokens
