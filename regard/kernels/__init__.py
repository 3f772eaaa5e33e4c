"""Triton and C kernels, and fused forms of the plain modules. Skip this folder on a first reading."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import nn

Model = TypeVar("Model", bound="nn.Module")


def fuse(model: Model, *, only: Iterable[str] | None = None, fp8: bool = False) -> Model:
    """Replace plain modules by fused subclasses, in place, and return the model.

    In training on an NVIDIA GPU the fused modules run Triton kernels; everywhere else, and for whatever the kernels do
    not implement, they run the plain forward. Parameters and state_dict stay the same. `only` restricts the
    replacement to some groups of modules: "input", "residual", "hidden", "attention", "heads",
    "random-features".

    With `fp8` the wide layers in the blocks of a Transformer multiply 8-bit numbers in training. They need an NVIDIA
    GPU of the Hopper generation or later; a CPU emulates them.

    A module in which you replaced a method stays plain. If you replace one later and compile the model with
    torch.compile, call `fuse` again before.
    """
    from regard.kernels.fused_modules import fuse_modules

    fuse_modules(model, only)
    if fp8:
        from regard.kernels.fp8.enable import enable_fp8

        enable_fp8(model)
    return model


def unfuse(model: Model) -> Model:
    """Replace fused modules by plain ones, in place, and return the model."""
    from regard.kernels.fused_modules import unfuse_modules

    unfuse_modules(model)
    return model
