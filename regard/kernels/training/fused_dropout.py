"""Dropout that kernels draw themselves, in training on NVIDIA GPUs: when, and from which seed.

Srivastava et al. 2014. A mask that is stored is written once and read twice. The kernels of `drawn_triton` draw it in
the forward pass and once more in the backward pass, from the same seed. The seed is a number on the device that
torch's generator gives at each call: so a recorded step draws anew when it is repeated, `torch.manual_seed` fixes all
masks, and a training that goes on from a checkpoint goes on with the masks that it would have had.

The places are "input" (tokens to vectors), "residual" (and the norm after it), "hidden" (ReLU or GELU), "attention" (of
short texts) and "heads" (the gradients of q, k and v joined). In "residual", "hidden" and "heads" kernels run without
dropout too: they also add up what the tokens give to the biases' gradients. The environment variable REGARD_DRAWN may
name fewer places, with commas between; where it is empty, all is left to torch.
"""

from __future__ import annotations

import importlib.util
import os

import torch
from torch import Tensor

from regard.errors import UsageError, unknown_name

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ALL = ("input", "residual", "hidden", "attention", "heads")
WITHOUT = ("residual", "hidden", "heads")  # where they also run if nothing is dropped
HAVE_TRITON = importlib.util.find_spec("triton") is not None  # only looked for: to load it takes a while
MOST = 0.99  # of what is dropped: shares are counted in 1/65536


def read_places(asked: str | None) -> tuple[str, ...]:
    """All places; or where some are asked for, these."""
    if asked is None:
        return ALL
    named = tuple(filter(None, (name.strip() for name in asked.split(","))))
    for name in named:
        if name not in ALL:
            raise UsageError(unknown_name("place in REGARD_DRAWN", name, ALL))
    return named


PLACES = read_places(os.environ.get("REGARD_DRAWN"))


def draws(what: str, x: Tensor, dropout: float) -> bool:
    """Whether a kernel drops such a share of x, or none, in the place that is called `what`."""
    if not (what in PLACES and (dropout or what in WITHOUT) and dropout <= MOST and torch.is_grad_enabled()):
        return False
    if not (x.is_cuda and HAVE_TRITON and x.dtype in DTYPES):
        return False
    from regard.kernels.gpu import AMPERE

    return AMPERE


def draw_seed(like: Tensor, count: int = 1) -> Tensor:
    """A number that a call's mask comes from, (1,), on the device; or those of several calls, drawn by one kernel."""
    return torch.randint(2**63 - 1, (count,), device=like.device)
