"""Which devices run regard's Triton kernels."""

from __future__ import annotations

import torch

from regard.machine import has_triton, triton_is_interpreted

# Module constants instead of questions at each call: torch.compile then treats the answers as constants.
HAVE_TRITON, INTERPRETED = has_triton(), triton_is_interpreted()


def runs_triton(device: torch.device) -> bool:
    """Whether the kernels run on a device: NVIDIA GPUs from Ampere on, and a CPU if Triton interprets the kernels."""
    if not HAVE_TRITON or device.type != "cuda":
        return HAVE_TRITON and INTERPRETED
    from regard.kernels.gpu import AMPERE  # only here, because the import initializes CUDA

    return AMPERE
