"""Checks of the inputs of layers, with messages that say what does not fit."""

from __future__ import annotations

import torch
from torch import Tensor


def check_width(x: Tensor, dim: int) -> None:
    """Raise ValueError unless x is (…, dim)."""
    if x.shape[-1:] != (dim,):
        raise ValueError(f"x must be (…, {dim}), since dim is {dim}, got {tuple(x.shape)}")


def check_like(name: str, x: Tensor, weight: Tensor) -> None:
    """Raise TypeError or ValueError unless x has the weights' dtype (autocast may mix them) and device."""
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(f"{name} must have the weights' dtype {weight.dtype}, got {x.dtype}")
    if x.device != weight.device:
        raise ValueError(f"{name} must be on the weights' device {weight.device}, got {x.device}")
