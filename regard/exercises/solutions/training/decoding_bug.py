"""Solution of decoding-bug."""

from collections.abc import Callable

import torch
from torch import Tensor


def decode_batch(model: Callable[[Tensor], Tensor], batch: int, start: int, end: int, pad: int, limit: int) -> Tensor:
    """`model` maps tokens (B, t) to logits (B, t, V); return the new tokens (B, up to limit), padded after the end."""
    tokens = torch.full((batch, 1), start)
    finished = torch.zeros(batch, dtype=torch.bool)
    for _ in range(limit):
        logits = model(tokens)[:, -1]  # was the first position
        token = logits.argmax(-1)
        token = token.masked_fill(finished, pad)  # was missing
        tokens = torch.cat([tokens, token[:, None]], dim=1)
        finished |= token == end
        if finished.all():  # was any()
            break
    return tokens[:, 1:]
