"""Replace plain modules by fused ones, and back."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.projections import StackedProjection
from regard.errors import UsageError, unknown_name
from regard.kernels.fp8.enable import disable_fp8
from regard.kernels.fp8.linear import Fp8Linear
from regard.kernels.fused_class import FusedClass
from regard.kernels.linear.fused_layers import FusedRandomFeatureAttention
from regard.kernels.training.fused_attention import FusedMultiHeadAttention, FusedStackedProjection
from regard.kernels.training.fused_block import FusedBlock, FusedStack
from regard.kernels.training.fused_feed_forward import FusedFeedForward
from regard.kernels.training.fused_input import FusedTokenInput
from regard.layers.block import Block
from regard.layers.feedforward import FeedForward
from regard.models.stack import Stack, TokenInput
from regard.traits import replaced_methods

FUSED: dict[str, dict[type[nn.Module], type[FusedClass]]] = {
    "input": {TokenInput: FusedTokenInput},  # tokens to vectors
    "residual": {Block: FusedBlock, Stack: FusedStack},  # and the norm after it
    "hidden": {FeedForward: FusedFeedForward},  # ReLU or GELU
    "attention": {MultiHeadAttention: FusedMultiHeadAttention},  # of short texts
    "heads": {StackedProjection: FusedStackedProjection},  # the gradients of q, k and v joined
    "random-features": {RandomFeatureAttention: FusedRandomFeatureAttention},
}

PLAIN: dict[type[nn.Module], type[nn.Module]] = {
    Fp8Linear: nn.Linear,
    **{fused: plain for group in FUSED.values() for plain, fused in group.items()},
}


def fuse_modules(model: nn.Module, only: Iterable[str] | None = None) -> None:
    """Replace the plain modules of a model, and the model itself if it is one, by fused ones in place.

    A module changes its class and nothing else: parameters, hooks and everything that refers to it stay. Only the exact
    classes are replaced, so a subclass of yours keeps its own forward. A module stays plain if the fused class gives a
    reason in `why_not_fuse`, or if a method in it was replaced on an instance. At each call a fused module asks
    whether its kernels can do the work, and otherwise runs the plain forward.
    """
    names = tuple(FUSED) if only is None else tuple(only)
    for name in names:
        if name not in FUSED:
            raise UsageError(unknown_name("group of modules to fuse", name, tuple(FUSED)))
    classes = {plain: fused for name in names for plain, fused in FUSED[name].items()}
    for module in model.modules():
        fused = classes.get(type(module))
        if fused is not None and fused.why_not_fuse(module) is None:
            module.__class__ = fused
    unfuse_changed(model)


def unfuse_modules(model: nn.Module) -> None:
    """Replace the fused modules of a model by plain ones in place."""
    disable_fp8(model)
    for module in model.modules():
        module.__class__ = PLAIN.get(type(module), type(module))


def unfuse_changed(model: nn.Module) -> None:
    """Replace the fused modules in which a method was replaced on an instance by plain ones, in place.

    A fused module notices such a change at each call, except in code that torch.compile has compiled. Call this, or
    `fuse` again, before you compile.
    """
    for module in model.modules():
        if type(module) in PLAIN and any(replaced_methods(part) for part in module.modules()):
            module.__class__ = PLAIN[type(module)]
