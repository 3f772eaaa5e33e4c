"""Replace plain modules by fused ones, and back."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from regard.attention.multihead import MultiHeadAttention
from regard.attention.projections import StackedProjection
from regard.errors import UsageError, unknown_name
from regard.kernels.training.fused_attention import FusedMultiHeadAttention, FusedStackedProjection
from regard.kernels.training.fused_block import FusedBlock, FusedStack
from regard.kernels.training.fused_feed_forward import FusedFeedForward
from regard.kernels.training.fused_input import FusedTokenInput
from regard.layers.block import Block
from regard.layers.feedforward import FeedForward
from regard.models.stack import Stack, TokenInput

FUSED: dict[str, dict[type[nn.Module], type[nn.Module]]] = {
    "input": {TokenInput: FusedTokenInput},  # tokens to vectors
    "residual": {Block: FusedBlock, Stack: FusedStack},  # and the norm after it
    "hidden": {FeedForward: FusedFeedForward},  # ReLU or GELU
    "attention": {MultiHeadAttention: FusedMultiHeadAttention},  # of short texts
    "heads": {StackedProjection: FusedStackedProjection},  # the gradients of q, k and v joined
}


def fuse_modules(model: nn.Module, only: Iterable[str] | None = None) -> None:
    """Replace the plain modules of a model, and the model itself if it is one, by fused ones in place.

    A module changes its class and nothing else: parameters, hooks and everything that refers to it stay. Only the exact
    classes are replaced, so a subclass of yours keeps its own forward.
    """
    names = tuple(FUSED) if only is None else tuple(only)
    for name in names:
        if name not in FUSED:
            raise UsageError(unknown_name("group of modules to fuse", name, tuple(FUSED)))
    _change_classes(model, {plain: fused for name in names for plain, fused in FUSED[name].items()})


def unfuse_modules(model: nn.Module) -> None:
    """Replace the fused modules of a model by plain ones in place."""
    _change_classes(model, {fused: plain for group in FUSED.values() for plain, fused in group.items()})


def _change_classes(model: nn.Module, classes: dict[type[nn.Module], type[nn.Module]]) -> None:
    for module in model.modules():
        if type(module) in classes:
            module.__class__ = classes[type(module)]
