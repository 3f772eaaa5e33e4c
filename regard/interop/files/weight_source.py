"""Weights of a single file by name, as an import reads them: the counterpart of HubFolder for other formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.machine.lazy_torch import torch
from regard.system.files import fingerprint

TYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "I8": "int8"}


@dataclass(frozen=True)
class WeightSource:
    """The shapes and types of some weights, and a function that reads one."""

    root: Path
    shapes: Mapping[str, tuple[int, ...]]
    get: Callable[[str], torch.Tensor]
    dtypes: Mapping[str, str] = field(default_factory=dict)  # as safetensors names them; others are read as float32
    beside: tuple[Path, ...] = ()  # further files that were read

    @property
    def storage(self) -> str:
        """The storage that keeps every number: that of the matrices, or float32 if they differ or are quantized."""
        kinds = {self.dtypes.get(name, "F32") for name, shape in self.shapes.items() if len(shape) > 1}
        return TYPES.get(kinds.pop(), "float32") if len(kinds) == 1 else "float32"

    def license_text(self) -> str:
        """Return the licence of the model; a single file has none."""
        return ""

    def fingerprints(self) -> dict[str, dict[str, Any]]:
        """Return size and sha256 of each file that was read."""
        return {path.name: fingerprint(path) for path in (self.root, *self.beside)}
