"""`regard.load`: from a name or a folder to a model that is ready to use."""

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
from regard.models.folder import load_with_config
from regard.models.protocols import config_of
from regard.tasks import task_for
from regard.text.tokenizers.special_tokens import PAD
from regard.text.tokenizers.tokenizer import Tokenizer, read_tokenizers

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def load(
    name_or_folder: str | Path, *, device: str | torch.device = "auto", dtype: str | torch.dtype = "auto"
) -> Translator | Writer | Embedder:
    """The model of that folder, or the one of that name that regard brings along, ready to use.

    What comes back follows the model's kind: a Translator, a Writer (language models) or an Embedder (sentence
    encoders). `device` "auto" is the first of CUDA, MPS and CPU that is there; `dtype` "auto" is float32, and
    "int8" rounds the weights for a CPU, which reads them faster (decoding/quantize.py).
    """
    folder = find_model(name_or_folder)
    if dtype == "int8":
        device, number = "cpu" if device == "auto" else device, torch.float32
    else:
        number = find_dtype(dtype)
    model, info = load_with_config(folder, device=find_device(device), dtype=number)
    if dtype == "int8":
        pack_weights(model, "int8")
    try:
        return wrap_model(model, *read_tokenizers(folder, most=max(config_of(model).vocabularies)), info=info)
    except ModelError as error:
        raise error if str(folder) in str(error) else ModelError(f"{folder}: {error}") from error


def wrap_model(
    model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any]
) -> Translator | Writer | Embedder:
    """Return a model in memory with its tokenizers, as its task wraps it."""
    config = config_of(model)
    if config.pad_id != PAD:
        raise ModelError(f"the model takes token {config.pad_id} for padding, and the tokenizers pad with {PAD}")
    return task_for(config.kind).wrap(model, source, target, info=info)


def one_tokenizer(model: nn.Module, source: Tokenizer, target: Tokenizer) -> Tokenizer:
    """Return the tokenizer of a model with one vocabulary; ModelError if there are two."""
    if source is not target:
        raise ModelError(f"two tokenizers, and a model of kind {config_of(model).kind!r} has one vocabulary")
    return source


def find_device(device: str | torch.device) -> torch.device:
    """The device of that name, if this machine has it."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise UsageError(unknown_name("device", device, ("auto", "cpu", "cuda", "cuda:0", "mps"))) from None
    available = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    if (found.index or 0) >= available.get(found.type, 0):
        raise UsageError(f"there is no device {str(device)!r} on this machine: take 'auto' or 'cpu'")
    return found


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
