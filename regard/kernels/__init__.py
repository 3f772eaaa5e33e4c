"""The engine: Triton and C kernels, and fused forms of the plain modules. Skip this folder on a first reading."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def fuse(model: Model, *, only: Iterable[str] | None = None) -> Model:
    """Replace plain modules by fused subclasses, in place, and return the model.

    In training on an NVIDIA GPU the fused modules run Triton kernels; everywhere else, and for whatever the kernels do
    not implement, they run the plain forward. Parameters and state_dict stay the same. `only` restricts the
    replacement to some groups of modules: "input", "residual", "hidden", "attention", "heads". Without it, layers of
    random features are replaced too, for training and for decoding.
    """
    from regard.kernels.linear.fused_layers import fuse_layers
    from regard.kernels.training.fuse import fuse_modules

    fuse_modules(model, only)
    if only is None:
        fuse_layers(model)
    return model


def unfuse(model: Model) -> Model:
    """Replace fused modules by plain ones, in place, and return the model."""
    from regard.kernels.linear.fused_layers import unfuse_layers
    from regard.kernels.training.fuse import unfuse_modules

    unfuse_modules(model)
    unfuse_layers(model)
    return model
