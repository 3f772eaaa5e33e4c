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
from regard.decoding.cpu.quantize import Weight, pack_weights


class PackedCopy:
    """Keeps the packed copy of a model, and makes a new one when the model has changed."""

    def __init__(self) -> None:
        self.made: tuple[list[Any], nn.Module] | None = (
            None  # the fingerprint of the model that was copied, and the copy
        )

    def of(self, model: nn.Module) -> nn.Module:
        """Return the packed copy of a model, or the model itself if packing would not help or hooks watch it."""
        if not can_pack(model):
            self.made = None
            return model
        if is_hooked(model):
            return model
        fingerprint, made = weights_fingerprint(model), self.made
        if made is None or made[0] != fingerprint:
            self.made = made = fingerprint, packed_copy(model)
        return made[1]


def packed_copy(model: nn.Module) -> nn.Module:
    """Copy the modules of a model, but not their tensors, and pack the matrices of the copy."""
    tensors: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return pack_weights(copy.deepcopy(model, tensors), "packed").eval()


def can_pack(model: nn.Module) -> bool:
    """Whether a model is in float32 on a CPU, and there are C kernels.

    Without them the weights stay plain: torch's kernels for packed weights keep some memory for each number of rows
    that they meet, and a long file has many.
    """
    weights = list(model.parameters())
    return (
        bool(weights)
        and all(weight.dtype is torch.float32 and weight.device.type == "cpu" for weight in weights)
        and not any(isinstance(weight, Weight) for weight in weights)
        and compiled() is not None
    )


def is_hooked(model: nn.Module) -> bool:
    """Whether hooks watch or change what the modules of a model compute; a copy would not call them."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def weights_fingerprint(model: nn.Module) -> list[Any]:
    """Describe which modules and tensors a model has, and how often each tensor was changed in place."""

    def version(tensor: Tensor) -> int:
        return 0 if tensor.is_inference() else tensor._version

    tensors = [
        tensor for module in model.modules() for tensor in (*module._parameters.values(), *module._buffers.values())
    ]
    return [
        *map(id, model.modules()),
        *((tensor.data_ptr(), version(tensor)) for tensor in tensors if tensor is not None),
    ]
