"""What a model consisted of when it was prepared for decoding, to notice quickly that it has changed.

Each call of a decoder asks. To compute the traits of all modules would take a millisecond; to compare objects by
identity takes some ten microseconds. A snapshot references the objects, so no other object can get their address.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from operator import is_
from typing import Any

from torch import Tensor, nn

from regard.decoding.decoder_layout import all_modules

REGISTRIES = ("_parameters", "_buffers", "_modules")  # dicts of a module, which are changed in place


class ModelSnapshot:
    """The modules of a model, their attributes, and the versions of their tensors."""

    def __init__(self, model: nn.Module) -> None:
        self.parts = list(_parts(model))
        self.tensors = [part for part in self.parts if type(part) in (Tensor, nn.Parameter)]
        self.contents = list(map(_content, self.tensors))

    def matches(self, model: nn.Module) -> bool:
        """Whether the model still consists of the same objects, and no tensor was changed in place."""
        parts = list(_parts(model))
        return (
            len(parts) == len(self.parts)
            and all(map(is_, parts, self.parts))
            and self.contents == list(map(_content, self.tensors))
        )


def _content(tensor: Tensor) -> tuple[int, int]:
    """Return what changes with the numbers: `model.to` replaces the memory, an operation in place the version."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _parts(model: nn.Module) -> Iterator[Any]:
    """Yield the classes, attributes and hooks of all modules, and what their registries contain."""
    for module in all_modules(model):
        attributes = vars(module)
        yield type(module)
        yield from attributes.values()
        yield from chain.from_iterable(attributes[name].values() for name in REGISTRIES)
        yield from chain(module._forward_hooks.values(), module._forward_pre_hooks.values())
