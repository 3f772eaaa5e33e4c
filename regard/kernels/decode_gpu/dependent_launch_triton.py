"""Programmatic dependent launch: on Hopper GPUs a kernel may start before the one ahead of it has finished.

Few rows leave most of a GPU idle. The next kernel can use that time to read its weights, which no kernel changes; then
it waits for the results of the kernels before it.
"""

from __future__ import annotations

import triton
from torch import Tensor
from triton import language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from regard.machine import compute_capability

HOPPER = (9, 0)  # compute capability
MAX_EARLY_ROWS = 8  # with more rows, an early launch costs more than it saves


def launch_options(x: Tensor) -> dict[str, bool]:
    """Return the keyword arguments that launch a kernel for the rows of x, early where that pays."""
    early = len(x) <= MAX_EARLY_ROWS and x.is_cuda and compute_capability(x.device) >= HOPPER
    return {"EARLY": True, "launch_pdl": True} if early else {"EARLY": False}


@triton.jit
def wait_for_inputs(EARLY: tl.constexpr):
    """Let the next kernel start, and wait until the kernels before this one have written their results."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
