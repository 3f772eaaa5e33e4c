"""Write model.safetensors one weight at a time, for models that should not be in memory twice.

The format: eight bytes with the length of the header, the header in JSON, then the numbers of all weights.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.models.folder.weights_file import StoredForm, stored_layout, stored_weight

NAMES = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "I64": torch.int64,
}
ALIGNMENT = 8  # of the end of the header


def write_weights(
    path: Path, shapes: Mapping[str, tuple[int, ...]], weights: Iterable[tuple[str, Tensor]], storage: StoredForm
) -> None:
    """Write floating-point weights of these shapes, which `weights` yields in any order, in a storage."""
    layout: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        layout |= stored_layout(name, shape, storage)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offsets, end = {}, 0
    for name, (dtype, shape) in layout.items():
        offsets[name], start = end, end
        end += NAMES[dtype].itemsize * torch.Size(shape).numel()
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    content = json.dumps(header, separators=(",", ":")).encode()
    content += b" " * (-(8 + len(content)) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        file.truncate(8 + len(content) + end)
        for name, weight in weights:
            if tuple(weight.shape) != shapes.get(name):
                raise UsageError(f"the weight {name!r} has shape {tuple(weight.shape)}, expected {shapes.get(name)}")
            for stored_name, stored in stored_weight(name, weight, storage).items():
                file.seek(8 + len(content) + offsets.pop(stored_name))
                file.write(stored.contiguous().view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())
    if offsets:
        raise UsageError(f"the weight {min(offsets)!r} is missing")
