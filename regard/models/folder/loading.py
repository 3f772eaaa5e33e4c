"""Read model folders: build the model from its settings, and read its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.errors import ModelError, UsageError
from regard.models.folder.config_file import shortened
from regard.models.folder.verification import read_config
from regard.models.folder.weights_file import MAX_BYTES_PER_WEIGHT, MAX_OTHER_BYTES, header_size, read_weights
from regard.models.presets import MODELS, make_model

# Of the header of model.safetensors. A layer has at least two weights, each with name, type, shape and offsets.
MIN_BYTES_PER_LAYER = 100
RANDOM_INITIALIZERS = (Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_)


def load_model(
    folder: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> nn.Module:
    """Load the model of a folder, in eval mode; in float32 unless `dtype` is given."""
    return load_with_config(folder, device=device, dtype=dtype)[0]


def load_with_config(
    folder: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> tuple[nn.Module, dict[str, Any]]:
    """Load the model of a folder and its config.json."""
    folder = Path(folder)
    settings = read_config(folder)
    path = folder / "model.safetensors"
    header = header_size(path)
    try:
        config: Any = MODELS[settings["kind"]][0].from_dict(settings["model"])
        if config.kind != settings["kind"]:
            raise UsageError(f"the kind is {settings['kind']!r}, but with these settings it is {config.kind!r}")
        layers = config.layer_count
        if header < layers * MIN_BYTES_PER_LAYER:
            raise UsageError(f"there are {layers} layers, but model.safetensors is too short to contain their weights")
        model = make_empty(config)
    except ValueError as error:  # a setting out of range, or settings that contradict each other
        raise ModelError(f"{folder / 'config.json'}: {shortened(error)}") from error
    if header > MAX_BYTES_PER_WEIGHT * len(model.state_dict()) + MAX_OTHER_BYTES:
        raise ModelError(f"{path}: its header of {header} bytes is too long for this model")
    return fill(model, read_weights(path, model, device, dtype or torch.float32)), settings


def make_empty(config: Any) -> nn.Module:
    """Make a model whose weights have shapes but no memory, to compare with a file."""
    with torch.device("meta"), WithoutInitialization():
        return make_model(config)


def fill(model: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    """Put the weights of a file into an empty model, and return it in eval mode."""
    model.load_state_dict(weights, strict=False, assign=True)  # shared tables are stored once
    return model.requires_grad_(True).eval()


class WithoutInitialization(TorchFunctionMode):
    """Skip the random initialization of weights inside the block, because they will be read from a file.

    Random numbers on the device "meta" make PyTorch load its compiler, which takes a second and 150 MB.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return (
            [*args, *kwargs.values()][0] if func in RANDOM_INITIALIZERS else func(*args, **kwargs)
        )  # the weight, unchanged
