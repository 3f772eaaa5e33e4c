"""Which devices run regard's Triton kernels."""

from __future__ import annotations

import importlib.util
import os

import torch

# Module constants, and not questions at each call: compiled code then takes the answers as constants.
HAVE_TRITON = importlib.util.find_spec("triton") is not None  # not imported here, because that takes a while
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # Triton itself reads this variable when kernels are defined


def runs_triton(device: torch.device) -> bool:
    """Whether the kernels run on a device: NVIDIA GPUs from Ampere on, and a CPU if Triton interprets the kernels."""
    if not HAVE_TRITON or device.type != "cuda":
        return HAVE_TRITON and INTERPRETED
    from regard.kernels.gpu import AMPERE  # only here, because the import initializes CUDA

    return AMPERE
