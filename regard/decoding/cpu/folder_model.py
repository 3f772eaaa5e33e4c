"""A translation model as its folder stores it: C decodes with its arrays, so that a process need not import torch.

The import of torch takes longer than everything else that a translation from the command line needs. The arrays serve
greedy and beam search. For everything else, `module` makes the model from the same arrays.
"""

from __future__ import annotations

import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.decoding.cpu.c_matrix import compiled
from regard.decoding.cpu.c_search import ArraySearch
from regard.decoding.cpu.network_settings import NetworkSettings
from regard.decoding.cpu.transformer_arrays import make_arrays
from regard.errors import ModelError, RegardError
from regard.machine import may_have_gpu, one_thread
from regard.machine.lazy_torch import torch
from regard.models.folder.config_file import find_fault, read_json
from regard.models.folder.verification import verify_folder
from regard.models.folder.weights_file import (
    MAX_BYTES_PER_WEIGHT,
    MAX_OTHER_BYTES,
    header_size,
    read_arrays,
    read_shapes,
)

if TYPE_CHECKING:
    from torch import nn

    from regard.decoding.cpu.packed_copy import PackedCopy

MAX_WEIGHTS_PER_LAYER = 32  # of a block; a decoder's has 18


def why_not(folder: Path, *, device: object, dtype: object) -> str | None:
    """Return the reason why modules must decode with the model of a folder, or None if C can do it without torch.

    The modules also raise the errors of damaged folders: a folder with any fault is left to them.
    """
    return why_not_settings(folder, device=device, dtype=dtype) or why_not_weights(folder)


def why_not_settings(folder: Path, *, device: object, dtype: object) -> str | None:
    """Return the part of the reasons that takes no time to find: all but those in the files of the weights."""
    if "torch" in sys.modules:
        return "torch is imported already, so there is no time to save"
    if str(dtype) not in ("auto", "float32"):
        return f"C computes in float32, and dtype is {dtype}"
    if str(device) not in ("auto", "cpu"):
        return f"C runs on a CPU, and device is {device}"
    if str(device) == "auto" and may_have_gpu():
        return "there may be a GPU"
    if compiled() is None:
        return "there is no C compiler, or REGARD_NATIVE=0 switches C off"
    try:
        config = read_json(folder / "config.json")
        NetworkSettings.from_config(config)
    except RegardError as error:
        return str(error)
    return find_fault(config) or None


def why_not_weights(folder: Path) -> str | None:
    """Return the reason why C cannot read the weights of a folder, or None; checks names, sizes and checksums too."""
    path = folder / "model.safetensors"
    try:
        verify_folder(folder)
        settings = NetworkSettings.from_config(read_json(folder / "config.json"))
        layers = settings.layers + (settings.decoder_layers or settings.layers)
        if header_size(path) > MAX_BYTES_PER_WEIGHT * MAX_WEIGHTS_PER_LAYER * layers + MAX_OTHER_BYTES:
            return "the header of model.safetensors is too long"
        make_arrays(settings, read_shapes(path))
    except RegardError as error:
        return str(error)
    return None


class FolderModel:
    """The model of a folder for which `why_not` gives no reason."""

    def __init__(self, folder: Path) -> None:
        self.info: dict[str, Any] = read_json(folder / "config.json")
        self.config = NetworkSettings.from_config(self.info)
        self.weights = read_arrays(folder / "model.safetensors")
        self.c_search = ArraySearch(make_arrays(self.config, self.weights), compiled())

    @cached_property
    def module(self) -> nn.Module:
        """The plain module, with the memory of the arrays; this imports torch."""
        from regard.kernels import fuse
        from regard.models.folder.loading import fill, make_empty
        from regard.models.presets import MODELS

        try:
            with one_thread():
                model = make_empty(MODELS[self.info["kind"]][0].from_dict(self.info["model"]))
                return fuse(fill(model, {name: torch.from_numpy(array) for name, array in self.weights.items()}))
        except ValueError as error:
            raise ModelError(f"config.json: {error}") from error

    @cached_property
    def packed(self) -> PackedCopy:
        """Keeps the packed copy of the module, with which the decoding engine decodes step by step."""
        from regard.decoding.cpu.packed_copy import PackedCopy

        return PackedCopy()
