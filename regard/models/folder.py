"""Read and write model folders. No other module does.

    manifest.json       format version, size and sha256 of each file
    config.json         kind and settings of the model, special tokens, versions, and further information
    model.safetensors   the weights: float32, bfloat16, or int8 with a scale per output row
    README.md           the model card

and the files of the tokenizers. A folder may come from an untrusted source, so names, sizes, checksums, settings and
shapes are checked before memory is allocated, and nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.errors import ModelError, UsageError, unknown_name
from regard.files import fingerprint, sync_folder, write_synced
from regard.models.folder_config import MAX_JSON_BYTES, STORAGES, find_fault, read_checked_config, read_json, shortened
from regard.models.foreign_folder import describe_foreign_folder
from regard.models.presets import MODELS, make_model
from regard.models.weights_file import Storage, header_size, read_weights, stored_weights
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS
from regard.version import __version__

FORMAT = 1
NAMES = re.compile(
    r"config\.json|model\.safetensors|README\.md|(source\.|target\.)?(tokenizer\.model|tokenizer\.json|characters\.json)"
)
# Limits on the header of model.safetensors. A layer has at least two weights, each with name, type, shape and offsets.
MIN_BYTES_PER_LAYER = 100
MAX_BYTES_PER_WEIGHT = 1024  # including the scale of an int8 weight
MAX_OTHER_BYTES = 4096
RESERVED = ("kind", "model", "storage", "special_tokens", "versions")  # names in config.json that are not `info`
RANDOM_INITIALIZERS = (Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_)


def save_model(
    model: nn.Module,
    folder: str | Path,
    *,
    storage: Storage = "float32",
    files: Mapping[str, bytes] | None = None,
    info: Mapping[str, Any] | None = None,
    card: str | None = None,
) -> Path:
    """Write the model as a new folder, completely or not at all.

    `files` are the files of the tokenizers, by name; `info` is added to config.json (recipe, scores, alignment head);
    `card` is the text of README.md. An existing folder is replaced only if it is a model folder or the folder of a run,
    whose `training/` is kept.
    """
    if storage not in STORAGES:
        raise UsageError(unknown_name("storage", storage, STORAGES))
    model = getattr(model, "_orig_mod", model)  # the module that torch.compile wrapped
    config = getattr(model, "config", None)
    if config is None or config.kind not in MODELS:
        raise UsageError(f"only regard's models have a folder format, got {type(model).__name__}")
    for name in files or {}:
        if not NAMES.fullmatch(name) or name in ("config.json", "model.safetensors", "README.md"):
            raise UsageError(f"{name!r} is not a tokenizer file of a model folder")
    for name in info or {}:
        if name in RESERVED:
            raise UsageError(f"info may not contain {name!r}: config.json has its own")
    folder = Path(folder)
    run = (folder / "training").is_dir()
    if folder.exists() and not run and not (folder / "manifest.json").is_file():
        raise UsageError(f"{folder} exists and is not a model folder: choose another name")

    fresh = folder.with_name(f".{folder.name}.writing-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        save_file(stored_weights(model, storage), fresh / "model.safetensors", metadata={"format": "pt"})
        settings = {
            **(info or {}),
            "kind": config.kind,
            "model": config.to_dict(),
            "storage": storage,
            "special_tokens": {token: number for number, token in enumerate(SPECIAL_TOKENS)},
            "versions": {"regard": __version__, "torch": torch.__version__, "python": platform.python_version()},
        }
        content = json.dumps(settings, indent=1, ensure_ascii=False).encode()
        fault = find_fault(settings) or (f"more than {MAX_JSON_BYTES} bytes" if len(content) > MAX_JSON_BYTES else "")
        if fault:
            raise UsageError(f"config.json with this info could not be read again: {fault}")
        write_synced(fresh / "config.json", content)
        shutil.copymode(fresh / "config.json", fresh / "model.safetensors")  # else only its owner could read it
        write_synced(fresh / "README.md", (card or _card(model, storage)).encode())
        for name, data in (files or {}).items():
            write_synced(fresh / name, data)
        manifest = {"format": FORMAT, "files": {path.name: fingerprint(path) for path in sorted(fresh.iterdir())}}
        write_synced(fresh / "manifest.json", json.dumps(manifest, indent=1).encode())
        if run:
            _fill(fresh, folder)
        else:
            _swap(fresh, folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return folder


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
        try:
            actual = fingerprint(path)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
        if actual != expected:
            raise ModelError(f"{path}: its sha256 differs from that in the manifest; the file is damaged")
    for path in folder.iterdir():  # such as a tokenizer that was added later
        if NAMES.fullmatch(path.name) and path.name not in files:
            raise ModelError(f"{path}: not listed in the manifest: remove it, or use its own manifest")
    return list(files)


def _swap(fresh: Path, folder: Path) -> None:
    """Replace the old folder by the new one; at every moment at least one of them exists under some name."""
    old = folder.with_name(f".{folder.name}.old-{os.getpid()}")
    if folder.exists():
        os.rename(folder, old)
    try:
        os.rename(fresh, folder)
    except BaseException:
        if old.exists():
            os.rename(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _fill(fresh: Path, folder: Path) -> None:
    """Move the new files into the folder of a run, the manifest last.

    If this is interrupted, the run can still resume, and the checksums show that the model is incomplete.
    """
    for path in sorted(fresh.iterdir(), key=lambda path: path.name == "manifest.json"):
        os.replace(path, folder / path.name)
    sync_folder(folder)
    fresh.rmdir()


def _card(model: nn.Module, storage: str) -> str:
    """Return a model card with the settings, for a model without one."""
    config: Any = model.config
    settings = "\n".join(f"| {name} | {value} |" for name, value in config.to_dict().items())
    count = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"# A {config.kind} model\n\nMade by regard {__version__}, {count:,} parameters, stored as {storage}.\n\n"
        f"| setting | value |\n|---|---|\n{settings}\n"
    )
