"""The engine: Triton and C kernels, and fused forms of the plain modules. Skip this folder on a first reading."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def fuse(model: Model) -> Model:
    """Replace plain modules by their fused counterparts, which share the parameters, in place; return the model.

    A module whose options a fused counterpart does not implement stays plain.
    """
    from regard.kernels.linear.fused_layers import FUSED

    for module in model.modules():
        fused = FUSED.get(type(module))
        if fused is not None and fused.why_not(module) is None:
            module.__class__ = fused
    return model
