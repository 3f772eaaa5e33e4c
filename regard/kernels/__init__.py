"""The engine: Triton and C kernels, and fused forms of the plain modules. Skip this folder on a first reading."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def fuse(model: Model) -> Model:
    """Replace plain modules by their fused counterparts, which share the parameters, in place; return the model."""
    return model
