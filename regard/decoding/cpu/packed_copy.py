"""A copy of a model for decoding on a CPU: the same weights, packed in the order in which the C kernels read them.

The model itself stays a plain module, which can be recorded, trained, saved and moved to another device. The copy
shares all tensors with it, but for the packed matrices, which take as much memory again as the matrices that decoding
multiplies by. They are packed when the copy first decodes.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from regard.decoding.cpu.c_matrix import compiled
from regard.decoding.cpu.packed_weight import Weight
from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.decoder_layout import all_modules, why_not_hooked
from regard.traits import traits_of


class PackedCopy:
    """Keeps the packed copy of a model, and makes a new one when the model has changed."""

    def __init__(self) -> None:
        self.made: tuple[list[Any], nn.Module] | None = None  # the fingerprint of the copied model, and the copy

    def of(self, model: nn.Module) -> nn.Module:
        """Return the packed copy of a model, or the model itself where `why_not` gives a reason."""
        if why_not(model) is not None:
            self.made = None
            return model
        if why_not_hooked(all_modules(model)) is not None:  # a copy would not call the hooks
            return model
        fingerprint, made = model_fingerprint(model), self.made
        if made is None or made[0] != fingerprint:
            self.made = made = fingerprint, packed_copy(model)
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


def model_fingerprint(model: nn.Module) -> list[Any]:
    """Describe a model: its modules and their traits, its tensors, and how often each was changed in place."""

    def version(tensor: Tensor) -> int:
        return 0 if tensor.is_inference() else tensor._version

    modules = all_modules(model)
    tensors = [tensor for module in modules for tensor in (*module._parameters.values(), *module._buffers.values())]
    return [
        traits_of(model),
        *map(id, modules),
        *((tensor.data_ptr(), version(tensor)) for tensor in tensors if tensor is not None),
    ]
