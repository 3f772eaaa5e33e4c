"""Give a model packed or int8 weights for decoding on a CPU, and the C decoder where it can decode the model."""

from __future__ import annotations

from torch import Tensor, nn

from regard.attention.projections import StackedProjection
from regard.decoding.cpu.c_decoder import make_c_decoder
from regard.decoding.cpu.module_search import make_c_search
from regard.decoding.cpu.packed_weight import FORMS, Form, make_weight
from regard.errors import UsageError, unknown_name
from regard.layers.embedding import Embedding

MATRICES = (nn.Linear, StackedProjection, Embedding)  # modules that multiply by their own `weight`


def pack_weights(model: nn.Module, form: Form) -> nn.Module:
    """Replace the model's matrices in place by weights of this form, for decoding on a CPU; return the model.

    "int8" rounds the numbers; "packed" only changes their layout, but where they are rounded already, C multiplies
    integers (`CMatrix.of_floats`). The model cannot be trained afterwards.
    """
    if form not in FORMS:
        raise UsageError(unknown_name("form", form, FORMS))
    if (reason := why_not(model)) is not None:
        raise UsageError(f"{form} weights are for a CPU, and {reason}")
    packed: dict[int, Tensor] = {}  # by the id of the plain weight: modules that shared it go on sharing it
    for module in model.modules():
        if isinstance(module, MATRICES):
            weight = module.weight
            if id(weight) not in packed:
                packed[id(weight)] = make_weight(weight.detach(), form)
            module._parameters["weight"] = packed[id(weight)]  # type: ignore[assignment]  # a Parameter would copy it
    model.c_decoder = make_c_decoder(model)  # type: ignore[assignment]  # not a module
    model.c_search = make_c_search(model)  # type: ignore[assignment]
    return model


def why_not(model: nn.Module) -> str | None:
    """Return the reason why the model's weights cannot be packed, or None if they can."""
    matrices = (module.weight for module in model.modules() if isinstance(module, MATRICES))
    elsewhere = next((weight.device for weight in matrices if weight.device.type != "cpu"), None)
    return None if elsewhere is None else f"the model is on {elsewhere}"
