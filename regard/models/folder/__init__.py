"""Read and write model folders. No other module does.

    manifest.json       format version, size and sha256 of each file
    config.json         kind and settings of the model, special tokens, versions, and further information
    model.safetensors   the weights: float32, bfloat16, float16, int8 with a scale per output row, or int4 with a scale
                        and a minimum per group of 32 numbers
    README.md           the model card

and the files of the tokenizers. A folder may come from an untrusted source, so names, sizes, checksums, settings and
shapes are checked before memory is allocated, and nothing is ever unpickled.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.models.folder.loading import load_model, load_with_config
    from regard.models.folder.saving import RESERVED, save_model
    from regard.models.folder.verification import FORMAT, NAMES, read_config, verify_folder

_WHERE = {  # imported on first use, because only some of them need torch
    "load_model": "loading",
    "load_with_config": "loading",
    "RESERVED": "saving",
    "save_model": "saving",
    "FORMAT": "verification",
    "NAMES": "verification",
    "read_config": "verification",
    "verify_folder": "verification",
}

__all__ = [
    "FORMAT",
    "NAMES",
    "RESERVED",
    "load_model",
    "load_with_config",
    "read_config",
    "save_model",
    "verify_folder",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
