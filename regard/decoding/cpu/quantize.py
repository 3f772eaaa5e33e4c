"""Give a model packed or rounded weights for decoding on a CPU, and the C decoder where it can decode the model."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from regard.attention.projections import StackedProjection
from regard.decoding.cpu.c_decoder import make_c_decoder
from regard.decoding.cpu.c_encoder import make_c_encoder
from regard.decoding.cpu.grouped_weight import GroupedWeight
from regard.decoding.cpu.module_search import make_c_search
from regard.decoding.cpu.packed_weight import Int8Weight, PackedWeight, Weight
from regard.errors import UsageError, unknown_name
from regard.layers.embedding import Embedding
from regard.models.folder.integer_groups import bits_of
from regard.models.language_model import TransformerLM

Form = Literal["packed", "int8", "int8-groups", "int4"]
FORMS = ("packed", "int8", "int8-groups", "int4")
MATRICES = (nn.Linear, StackedProjection, Embedding)  # modules that multiply by their own `weight`


def form_of_dtype(model: nn.Module, dtype: str) -> Form:
    """Return the form of a model's weights for `--dtype int8` or int4.

    In int8, language models have integers in groups: their activations have outliers, for which one scale for each row
    is not enough (grouped_weight.py). Other models have one scale for each row, which is faster.
    """
    if dtype == "int4":
        return "int4"
    return "int8-groups" if isinstance(model, TransformerLM) else "int8"


def make_weight(weight: Tensor, form: Form, name: str = "") -> Weight:
    """Return the matrix (o, i) with this name in this form."""
    if form == "packed":
        return PackedWeight.of(weight)
    if form == "int8":
        return Int8Weight.of(weight)
    return GroupedWeight.of(weight.float(), bits_of(name) if form == "int4" else 8)


def pack_weights(model: nn.Module, form: Form) -> nn.Module:
    """Replace the model's matrices in place by weights of this form, for decoding on a CPU; return the model.

    "int8", "int8-groups" and "int4" round the numbers; "packed" only changes their layout, but where they are rounded
    already, C multiplies integers (`CMatrix.of_floats`). The model cannot be trained afterwards.
    """
    if form not in FORMS:
        raise UsageError(unknown_name("form", form, FORMS))
    if (reason := why_not(model)) is not None:
        raise UsageError(f"{form} weights are for a CPU, and {reason}")
    packed: dict[int, Tensor] = {}  # by the id of the plain weight: modules that shared it go on sharing it
    for name, module in model.named_modules():
        if isinstance(module, MATRICES):
            weight = module.weight
            if id(weight) not in packed:
                packed[id(weight)] = make_weight(weight.detach(), form, f"{name}.weight")
            module._parameters["weight"] = packed[id(weight)]  # type: ignore[assignment]  # a Parameter would copy it
    model.c_decoder = make_c_decoder(model)  # type: ignore[assignment]  # not a module
    model.c_search = make_c_search(model)  # type: ignore[assignment]
    model.c_encoder = make_c_encoder(model)  # type: ignore[assignment]
    return model


def why_not(model: nn.Module) -> str | None:
    """Return the reason why the model's weights cannot be packed, or None if they can."""
    matrices = (module.weight for module in model.modules() if isinstance(module, MATRICES))
    elsewhere = next((weight.device for weight in matrices if weight.device.type != "cpu"), None)
    return None if elsewhere is None else f"the model is on {elsewhere}"
