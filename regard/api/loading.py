"""Load a model by its name or folder, ready to use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.api.embedder import Embedder
from regard.api.model_names import find_model
from regard.api.translator import Translator
from regard.api.writer import Writer
from regard.decoding.cpu.quantize import pack_weights
from regard.errors import ModelError, UsageError, unknown_name
from regard.kernels import fuse
from regard.machine import find_device
from regard.models.folder import load_with_config
from regard.text.tokenizers.special_tokens import PAD
from regard.text.tokenizers.tokenizer import Tokenizer, read_tokenizers

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def load(
    name_or_folder: str | Path, *, device: str | torch.device = "auto", dtype: str | torch.dtype = "auto"
) -> Translator | Writer | Embedder:
    """Load the model in a folder, or the shipped model with that name, ready to use.

    The result follows the model's kind: a Translator, a Writer (language models) or an Embedder (sentence encoders).
    `device` "auto" is the first of CUDA, MPS and CPU that this machine has; `dtype` "auto" is float32, and "int8"
    rounds the weights for a CPU, which reads them faster (decoding/cpu/quantize.py).

    In float32 on a CPU the model decodes with a packed copy of its matrices (decoding/cpu/packed_copy.py), as the
    command line does. `.model` is the plain module.
    """
    folder = find_model(name_or_folder)
    if dtype == "int8":
        device, number = "cpu" if device == "auto" else device, torch.float32
    else:
        number = find_dtype(dtype)
    model, info = load_with_config(folder, device=find_device(device), dtype=number)
    model = fuse(pack_weights(model, "int8") if dtype == "int8" else model)
    rows = [size for name, size in info["model"].items() if name.endswith("vocabulary")]
    try:
        return wrap_model(model, *read_tokenizers(folder, most=max(rows)), info=info, pack=True)
    except ModelError as error:
        raise error if str(folder) in str(error) else ModelError(f"{folder}: {error}") from error


def wrap_model(
    model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
) -> Translator | Writer | Embedder:
    """Wrap a model in the class for its kind; `pack` as in those classes."""
    config: Any = model.config
    if config.pad_id != PAD:
        raise ModelError(f"the model takes token {config.pad_id} for padding, and the tokenizers pad with {PAD}")
    if hasattr(config, "target_vocabulary"):
        return Translator(model, source, target, info=info, pack=pack)
    if source is not target:
        raise ModelError(f"two tokenizers, and a model of kind {config.kind!r} has one vocabulary")
    if config.kind == "encoder":
        return Embedder(model, source, info=info)
    return Writer(model, source, info=info, pack=pack)


def find_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """The number format of that name; what suits the device is left to the user, so "auto" is float32 everywhere."""
    if isinstance(dtype, torch.dtype):
        if dtype not in DTYPES.values():
            raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype}")
        return dtype
    if dtype == "auto":
        return torch.float32
    if dtype not in DTYPES:
        raise UsageError(unknown_name("dtype", dtype, ("auto", *DTYPES, "int8")))
    return DTYPES[dtype]
