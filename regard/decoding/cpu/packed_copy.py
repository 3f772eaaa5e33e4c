"""A copy of a model for decoding on a CPU: the same weights, packed in the order in which the C kernels read them.

The model itself stays a plain module, which can be recorded, trained, saved and moved to another device. The copy
shares all tensors with it, but for the packed matrices, which take as much memory again as the matrices that decoding
multiplies by. They are packed when the copy first decodes.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import nn

from regard.decoding.cpu.c_matrix import compiled
from regard.decoding.cpu.packed_weight import Weight
from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.decoder_layout import all_modules, why_not_hooked
from regard.decoding.model_snapshot import ModelSnapshot

Network = TypeVar("Network", bound=nn.Module)


class PackedCopy:
    """Keeps the packed copy of a model, and makes a new one when the model has changed."""

    def __init__(self) -> None:
        self.made: tuple[ModelSnapshot, Any] | None = None  # the model as it was copied, and the copy

    def of(self, model: Network) -> Network:
        """Return the packed copy of a model, or the model itself where `why_not` gives a reason."""
        if getattr(model, "c_search", None) is not None:  # its weights are packed, and its search notices changes
            return model
        made = self.made
        if made is None or not made[0].matches(model):
            if why_not_hooked(all_modules(model)) is not None:  # a copy would not call the hooks
                return model
            copied: Any = model if why_not(model) is not None else packed_copy(model)
            self.made = made = ModelSnapshot(model), copied
        return made[1]


def packed_copy(model: nn.Module) -> nn.Module:
    """Copy the modules of a model, but not their tensors, and pack the matrices of the copy."""
    tensors: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return pack_weights(copy.deepcopy(model, tensors), "packed").eval()


def why_not(model: nn.Module) -> str | None:
    """Return the reason why a packed copy would not help, or None if it would.

    Without C kernels the weights stay plain: torch's kernels for packed weights keep some memory for each number of
    rows that they meet, and a long file has many.
    """
    weights = list(model.parameters())
    if not weights or any(weight.dtype is not torch.float32 or weight.device.type != "cpu" for weight in weights):
        return "it is not in float32 on a CPU"
    if any(isinstance(weight, Weight) for weight in weights):
        return "its weights are packed already"
    return None if compiled() is not None else "there are no C kernels"
