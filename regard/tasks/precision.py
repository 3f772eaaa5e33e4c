"""Mixed precision: matrix products in bfloat16, float16 or 8 bits, as the recipe's `training.precision` says."""

from __future__ import annotations

import torch

# Without an entry ("fp32"), everything is computed in the dtype of the weights. With "fp8" the fused layers multiply
# 8-bit numbers (regard/kernels/fp8), and everything else is computed in bfloat16.
_AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}


def autocast_dtype(precision: str | None) -> torch.dtype | None:
    """Return the dtype of matrix products in that precision; None for the dtype of the weights."""
    return _AUTOCAST_DTYPES.get(precision or "fp32")


def autocast(device: torch.device, precision: str | None) -> torch.autocast:
    """Compute matrix products in that precision inside the block; training and validation share it."""
    dtype = autocast_dtype(precision)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
