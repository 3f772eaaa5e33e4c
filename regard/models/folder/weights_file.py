"""model.safetensors of a model folder: the weights in the format of a storage, checked before they are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from safetensors import SafetensorError, safe_open

from regard.errors import ModelError, UsageError
from regard.machine.lazy_torch import torch
from regard.models.folder.config_file import shortened
from regard.models.folder.integer_groups import GROUP, IntegerGroups, bits_of, from_groups, to_groups
from regard.system import LOCKS_MAPPED_FILES

if TYPE_CHECKING:
    from torch import Tensor, nn

Storage = Literal["float32", "bfloat16", "float16", "int8", "int4"]
StoredForm = Literal["float32", "bfloat16", "float16", "int8", "int8-groups", "int4"]
# Limits on the header, for a model with a known number of weights.
MAX_BYTES_PER_WEIGHT = 1024  # including the scales of an int8 or int4 weight
MAX_OTHER_BYTES = 4096
# An int8 weight w is stored with w.scale, one number per output row; a weight in groups of integers with w.scale and
# w.minimum, one number per group (integer_groups.py).
SCALE = ".scale"
MINIMUM = ".minimum"


def distinct_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a model by name; shared ones (tied tables) occur once."""
    seen: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    return {name: weight for name, weight in state.items() if seen.setdefault(id(weight), name) == name}


def form_of_storage(storage: Storage, kind: str) -> StoredForm:
    """Return how the matrices of a model of this kind are stored.

    Those of a language model in int8 are in groups: its perplexity grows by 0.8% with one scale for each row, and by
    less than 0.1% with groups (SmolLM2-135M).
    """
    return "int8-groups" if storage == "int8" and kind == "transformer-lm" else storage


def stored_weights(model: nn.Module, storage: StoredForm) -> dict[str, Tensor]:
    """Return the weights as they are stored: shared ones once, matrices in the format of the storage."""
    stored: dict[str, Tensor] = {}
    for name, parameter in distinct_weights(model).items():
        stored |= stored_weight(name, parameter.detach().cpu().contiguous(), storage)
    return stored


def stored_weight(name: str, weight: Tensor, storage: StoredForm) -> dict[str, Tensor]:
    """Return a weight as it is stored, with the scales of its rows, or the scales and minima of its groups."""
    if not weight.is_floating_point():  # such as the number of a draw of random features
        return {name: weight}
    weight = weight.float()
    if storage == "int8" and weight.dim() == 2:
        scale = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
        return {name: (weight / scale[:, None]).round().to(torch.int8), name + SCALE: scale}
    if (bits := group_bits(name, storage)) and weight.dim() == 2:
        groups = to_groups(weight, bits)
        return {name: groups.numbers, name + SCALE: groups.scales, name + MINIMUM: groups.minima}
    return {name: _in_storage(name, weight, storage)}


def group_bits(name: str, storage: str) -> int:
    """Return the bits of a matrix's integers if it is stored in groups, otherwise 0."""
    return {"int4": bits_of(name), "int8-groups": 8}.get(storage, 0)


def stored_layout(name: str, shape: tuple[int, ...], storage: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the types and shapes of what `stored_weight` returns for a floating-point weight of this shape."""
    if storage == "int8" and len(shape) == 2:
        return {name: ("I8", shape), name + SCALE: ("F32", shape[:1])}
    if (bits := group_bits(name, storage)) and len(shape) == 2:
        rows, columns = shape
        stored = columns if bits == 8 else -(-columns // 2)
        groups = ("F16", (rows, -(-columns // GROUP)))
        return {name: ("U8", (rows, stored)), name + SCALE: groups, name + MINIMUM: groups}
    return {name: ({"bfloat16": "BF16", "float16": "F16"}.get(storage, "F32"), shape)}


def _in_storage(name: str, weight: Tensor, storage: StoredForm) -> Tensor:
    if storage == "float16":
        largest = torch.finfo(torch.float16).max
        if bool((weight.abs() > largest).any()):
            raise UsageError(f"the weight {name!r} has numbers above {largest:.0f}, which float16 cannot store")
        return weight.half()
    return weight.bfloat16() if storage == "bfloat16" else weight


def read_weights(path: Path, model: nn.Module, device: torch.device | str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Read the weights; ModelError unless they are exactly those of the model."""
    expected = {
        name: ("I64" if weight.dtype == torch.int64 else "", tuple(weight.shape))
        for name, weight in distinct_weights(model).items()
    }
    weights: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # not a dict
            stored = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
            _check_weights(path, stored, expected)
            for name in expected:
                weight = file.get_tensor(name)
                if weight.dtype == torch.int8:
                    scale = file.get_tensor(name + SCALE)
                    _check_scale(path, name, scale.numpy())
                    weight = weight.float() * scale[:, None]
                elif weight.dtype == torch.uint8:
                    weight = _read_groups(path, file, name, expected[name][1])
                target_dtype = None if weight.dtype == torch.int64 else dtype
                # safetensors maps the file; without a copy, Windows could not replace it while the model is in use
                weights[name] = weight.to(device=device, dtype=target_dtype, copy=LOCKS_MAPPED_FILES)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: cannot be read as safetensors: {shortened(error)}") from error
    return weights


def _read_groups(path: Path, file: Any, name: str, shape: tuple[int, ...]) -> Tensor:
    groups = IntegerGroups(*map(file.get_tensor, (name, name + SCALE, name + MINIMUM)))
    if not (bool(groups.scales.isfinite().all()) and bool((groups.scales >= 0).all())):
        raise ModelError(f"{path}: a scale of the weight {name!r} is not a number from 0")
    if not bool(groups.minima.isfinite().all()):
        raise ModelError(f"{path}: a minimum of the weight {name!r} is not a finite number")
    return from_groups(groups, 8 if groups.numbers.shape == shape else 4, shape[1])


def read_shapes(path: Path) -> dict[str, np.ndarray]:
    """Return arrays without numbers, with the shapes of the weights; ModelError unless they are float32 or int8."""
    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # not a dict
            stored = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: cannot be read as safetensors: {shortened(error)}") from error
    if others := {dtype for dtype, _ in stored.values()} - {"F32", "I8"}:
        raise ModelError(f"{path}: there are weights of type {min(others)}")
    weights = {name: shape for name, (_, shape) in stored.items() if not name.endswith(SCALE)}
    _check_weights(path, stored, {name: ("", shape) for name, shape in weights.items()})
    return {name: np.broadcast_to(np.float32(0), shape) for name, shape in weights.items()}


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the weights, which `read_shapes` has checked, as float32 arrays."""
    arrays: dict[str, np.ndarray] = {}
    with safe_open(path, framework="np") as file:
        for name in file.keys():  # noqa: SIM118  # not a dict
            if name.endswith(SCALE):
                continue
            arrays[name] = file.get_tensor(name)
            if arrays[name].dtype == np.int8:
                scale = file.get_tensor(name + SCALE)
                _check_scale(path, name, scale)
                arrays[name] = arrays[name].astype(np.float32) * scale[:, None]
    return arrays


def header_size(path: Path) -> int:
    """Return the length in bytes of the header of a safetensors file."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if not 0 < size <= path.stat().st_size - 8:
        raise ModelError(f"{path}: cannot be read as safetensors: its header is missing or longer than the file")
    return size


def _check_scale(path: Path, name: str, scale: np.ndarray) -> None:
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise ModelError(f"{path}: a scale of the weight {name!r} is not a positive number")


def _check_weights(
    path: Path, stored: dict[str, tuple[str, tuple[int, ...]]], expected: dict[str, tuple[str, tuple[int, ...]]]
) -> None:
    """Raise ModelError unless names, types and shapes are those of the model, before any weight is read.

    `expected` has the shape of each weight, and its type unless that depends on the storage.
    """
    scales: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, (dtype, shape) in expected.items():
        if name not in stored:
            raise ModelError(f"{path}: the weight {name!r} is missing")
        in_groups = "int8-groups" if stored[name][1] == shape else "int4"
        storage = {"I8": "int8", "U8": in_groups}.get(stored[name][0], "") if len(shape) == 2 else ""
        layout = stored_layout(name, shape, storage)
        _check_weight(path, name, stored[name], (layout[name][0] if storage else dtype, layout.pop(name)[1]))
        scales |= layout
    for name, layout_of_scale in scales.items():
        if name not in stored:
            raise ModelError(f"{path}: the weight {name!r} is missing")
        _check_weight(path, name, stored[name], layout_of_scale)
    if extra := stored.keys() - expected.keys() - scales.keys():
        raise ModelError(f"{path}: the weight {shortened(repr(min(extra)))} belongs to no part of the model")


def _check_weight(
    path: Path, name: str, stored: tuple[str, tuple[int, ...]], expected: tuple[str, tuple[int, ...]]
) -> None:
    """Raise ModelError unless a weight is stored with this shape, and with this type, or any for floats if it is ""."""
    dtype, shape = expected
    stored_dtype, stored_shape = stored
    if stored_shape != shape:
        raise ModelError(
            f"{path}: the weight {name!r} has shape {shortened(stored_shape)}, the settings ask for {shape}"
        )
    if stored_dtype not in ((dtype,) if dtype else ("F32", "BF16", "F16")):
        raise ModelError(f"{path}: the weight {name!r} is stored as {stored_dtype}, which the format does not know")
