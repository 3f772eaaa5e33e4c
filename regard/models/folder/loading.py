"""Read model folders: verify the files, build the model from its settings, and read its weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.errors import ModelError, UsageError
from regard.files import fingerprint
from regard.models.folder.config_file import read_checked_config, read_json, shortened
from regard.models.folder.weights_file import header_size, read_weights
from regard.models.foreign_folder import describe_foreign_folder
from regard.models.presets import MODELS, make_model
from regard.version import __version__

FORMAT = 1
NAMES = re.compile(
    r"config\.json|model\.safetensors|README\.md|(source\.|target\.)?(tokenizer\.model|tokenizer\.json|characters\.json|words\.json)"
)
# Limits on the header of model.safetensors. A layer has at least two weights, each with name, type, shape and offsets.
MIN_BYTES_PER_LAYER = 100
MAX_BYTES_PER_WEIGHT = 1024  # including the scale of an int8 weight
MAX_OTHER_BYTES = 4096
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
        with torch.device("meta"), WithoutInitialization():  # shapes without memory, to compare with the file
            model = make_model(config)
    except ValueError as error:  # a setting out of range, or settings that contradict each other
        raise ModelError(f"{folder / 'config.json'}: {shortened(error)}") from error
    if header > MAX_BYTES_PER_WEIGHT * len(model.state_dict()) + MAX_OTHER_BYTES:
        raise ModelError(f"{path}: its header of {header} bytes is too long for this model")
    weights = read_weights(path, model, device, dtype or torch.float32)
    model.load_state_dict(weights, strict=False, assign=True)  # shared tables are stored once
    return model.requires_grad_(True).eval(), settings


class WithoutInitialization(TorchFunctionMode):
    """Skip the random initialization of weights inside the block, because they will be read from a file.

    Random numbers on the device "meta" make PyTorch load its compiler, which takes a second and 150 MB.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return (
            [*args, *kwargs.values()][0] if func in RANDOM_INITIALIZERS else func(*args, **kwargs)
        )  # the weight, unchanged


def read_config(folder: str | Path) -> dict[str, Any]:
    """Verify the manifest of a folder and return its config.json."""
    folder = Path(folder)
    verify_folder(folder)
    return read_checked_config(folder / "config.json")


def verify_folder(folder: str | Path) -> list[str]:
    """Check the name, size and sha256 of each file in the manifest, and return the names."""
    folder = Path(folder)
    try:
        return _verified_files(folder)
    except OSError as error:  # a folder or a file without read permission, or one that has just been removed
        raise ModelError(f"{error.filename or folder}: cannot be read: {error.strerror}") from error


def _verified_files(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder")
    if not (folder / "manifest.json").is_file():
        foreign = describe_foreign_folder(folder)
        raise ModelError(foreign or f"{folder}: no manifest.json, so this is not a model folder of regard")
    manifest = read_json(folder / "manifest.json")
    version, files = manifest.get("format"), manifest.get("files")
    if type(version) is not int or version < 1 or not isinstance(files, dict):
        raise ModelError(f"{folder / 'manifest.json'}: format or files is missing or damaged")
    if version > FORMAT:
        raise ModelError(
            f"{folder}: written in format {shortened(version)}, but regard {__version__} reads formats up to {FORMAT}: "
            f"update regard"
        )
    for name in ("config.json", "model.safetensors"):
        if name not in files:
            raise ModelError(f"{folder / 'manifest.json'}: {name} is not listed")
    for name, expected in files.items():
        if not NAMES.fullmatch(name):
            raise ModelError(f"{folder / 'manifest.json'}: {shortened(repr(name))} is not a file of a model folder")
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise ModelError(f"{path}: listed in the manifest, but missing or not a regular file")
        if not isinstance(expected, dict) or path.stat().st_size != expected.get("size"):
            raise ModelError(f"{path}: its size differs from that in the manifest; the file is damaged or incomplete")
        if fingerprint(path) != expected:
            raise ModelError(f"{path}: its sha256 differs from that in the manifest; the file is damaged")
    for path in folder.iterdir():  # such as a tokenizer that was added later
        if NAMES.fullmatch(path.name) and path.name not in files:
            raise ModelError(f"{path}: not listed in the manifest: remove it, or use its own manifest")
    return list(files)
