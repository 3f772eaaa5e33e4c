"""What a model consisted of when it was prepared for decoding, to notice quickly that it has changed.

Each call of a decoder asks. To compute the traits of all modules would take a millisecond; to compare objects by
identity takes a fraction of that. A snapshot references the objects, so no other object can get their address; only
the model itself is referenced weakly, so that a table of snapshots by model does not keep the models alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_
from typing import Any
from weakref import ref

from torch import Tensor, nn

from regard.decoding.decoder_layout import all_modules

DICTS = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")  # they are changed in place


class ModelSnapshot:
    """The modules of a model, their attributes, and the versions of their tensors."""

    def __init__(self, model: nn.Module) -> None:
        self.model = ref(model)
        _, *self.modules = all_modules(model)
        self.parts = _parts([model, *self.modules])
        self.tensors = [part for part in self.parts if type(part) in (Tensor, nn.Parameter)]
        self.contents = list(map(_content, self.tensors))

    def matches(self, model: nn.Module) -> bool:
        """Whether the model still consists of the same objects, and no tensor was changed in place."""
        if model is not self.model():
            return False
        parts = _parts([model, *self.modules])  # they include the children of each module, so others would be noticed
        return (
            len(parts) == len(self.parts)
            and all(map(is_, parts, self.parts))
            and self.contents == list(map(_content, self.tensors))
        )


def _content(tensor: Tensor) -> tuple[int, int]:
    """Return what changes with the numbers: `model.to` replaces the memory, an operation in place the version."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _parts(modules: Iterable[nn.Module]) -> list[Any]:
    """Return the classes, attributes and hooks of modules, and what their registries contain."""
    parts: list[Any] = []
    for module in modules:
        attributes = vars(module)
        parts.append(type(module))
        parts += attributes.values()  # whole dicts at a time: a loop over their thousands of values takes a millisecond
        for name in DICTS:
            if values := attributes[name]:
                parts += values.values()
    return parts
