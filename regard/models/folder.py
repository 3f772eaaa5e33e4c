"""The model folder: the only reader and writer of it.

    manifest.json       format version, size and sha256 of each file
    config.json         kind and settings of the model, special tokens, versions, and what else the writer knows
    model.safetensors   the weights: float32, bfloat16, or int8 with a scale per output row
    README.md           the model card

and the tokenizer's files. A folder may come from anywhere, so nothing in it is believed: names, sizes, checksums,
settings and shapes are checked before memory is taken, and nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.errors import ModelError, UsageError, unknown_name
from regard.files import fingerprint, sync_folder, write_synced
from regard.models.folder_config import LARGEST_JSON, STORAGES, find_fault, read_checked_config, read_json, shortened
from regard.models.presets import MODELS, make_model
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS
from regard.version import __version__

FORMAT = 1
NAMES = re.compile(
    r"config\.json|model\.safetensors|README\.md|(source\.|target\.)?(tokenizer\.model|tokenizer\.json|characters\.json)"
)
# Bytes of the header of model.safetensors. A layer has two weights at least, each with name, type, shape and place; no
# weight, with the scale of an int8 one, takes as many as MOST_OF_A_WEIGHT.
LEAST_OF_A_LAYER, MOST_OF_A_WEIGHT, MOST_BESIDE = 100, 1024, 4096
RESERVED = ("kind", "model", "storage", "special_tokens", "versions")  # names in config.json that are not `info`
DRAWING = (Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_)
SCALE = ".scale"  # int8 weights w stand beside w.scale, one number per output row

Storage = Literal["float32", "bfloat16", "int8"]


def save_model(
    model: nn.Module,
    folder: str | Path,
    *,
    storage: Storage = "float32",
    files: Mapping[str, bytes] | None = None,
    info: Mapping[str, Any] | None = None,
    card: str | None = None,
) -> Path:
    """Write the model as a new folder, whole or not at all.

    `files` are the tokenizer's, by name; `info` joins config.json (recipe, scores, alignment head); `card` is the text
    of README.md. A folder that is there already is replaced only if it is a model folder or a run's, whose
    `training/` stays.
    """
    if storage not in STORAGES:
        raise UsageError(unknown_name("storage", storage, STORAGES))
    model = getattr(model, "_orig_mod", model)  # what torch.compile wrapped
    config = getattr(model, "config", None)
    if config is None or config.kind not in MODELS:
        raise UsageError(f"only regard's models have a folder format, got {type(model).__name__}")
    for name in files or {}:
        if not NAMES.fullmatch(name) or name in ("config.json", "model.safetensors", "README.md"):
            raise UsageError(f"{name!r} is not a tokenizer file of a model folder")
    for name in info or {}:
        if name in RESERVED:
            raise UsageError(f"info may not hold {name!r}: config.json writes that itself")
    folder = Path(folder)
    run = (folder / "training").is_dir()
    if folder.exists() and not run and not (folder / "manifest.json").is_file():
        raise UsageError(f"{folder} exists and is not a model folder: it is left alone, choose another name")

    fresh = folder.with_name(f".{folder.name}.writing-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        save_file(_stored(model, storage), fresh / "model.safetensors", metadata={"format": "pt"})
        settings = {
            **(info or {}),
            "kind": config.kind,
            "model": config.to_dict(),
            "storage": storage,
            "special_tokens": {token: number for number, token in enumerate(SPECIAL_TOKENS)},
            "versions": {"regard": __version__, "torch": torch.__version__, "python": platform.python_version()},
        }
        written = json.dumps(settings, indent=1, ensure_ascii=False).encode()
        fault = find_fault(settings) or (f"more than {LARGEST_JSON} bytes" if len(written) > LARGEST_JSON else "")
        if fault:
            raise UsageError(f"config.json with this info could not be read again: {fault}")
        write_synced(fresh / "config.json", written)
        shutil.copymode(fresh / "config.json", fresh / "model.safetensors")  # which only its owner could read
        write_synced(fresh / "README.md", (card or _card(model, storage)).encode())
        for name, content in (files or {}).items():
            write_synced(fresh / name, content)
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
    """The model in that folder, in eval mode; in float32 unless `dtype` says otherwise."""
    return load_with_config(folder, device=device, dtype=dtype)[0]


def load_with_config(
    folder: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> tuple[nn.Module, dict[str, Any]]:
    """The model in that folder, and its config.json."""
    folder = Path(folder)
    settings = read_config(folder)
    path = folder / "model.safetensors"
    header = _header_size(path)
    try:
        config: Any = MODELS[settings["kind"]][0].from_dict(settings["model"])
        if config.kind != settings["kind"]:
            raise UsageError(f"the kind is {settings['kind']!r}, but with these settings it is {config.kind!r}")
        layers = config.layer_count
        if header < layers * LEAST_OF_A_LAYER:
            raise UsageError(f"{layers} layers, and model.safetensors does not hold the weights of so many")
        with torch.device("meta"), Undrawn():  # shapes without memory, to hold the file against
            model = make_model(config)
    except ValueError as error:  # a setting out of range, or settings that do not go together
        raise ModelError(f"{folder / 'config.json'}: {shortened(error)}") from error
    if header > MOST_OF_A_WEIGHT * len(model.state_dict()) + MOST_BESIDE:
        raise ModelError(f"{path}: its header of {header} bytes is longer than that of any such model")
    weights = _read_weights(path, model, device, dtype or torch.float32)
    model.load_state_dict(weights, strict=False, assign=True)  # shared tables are stored once
    return model.requires_grad_(True).eval(), settings


class Undrawn(TorchFunctionMode):
    """Inside, weights are not drawn, for they will be read.

    Drawing on the device "meta" makes torch load its compiler, which takes a second and 150 MB.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return [*args, *kwargs.values()][0] if func in DRAWING else func(*args, **kwargs)  # the weight as it is


def read_config(folder: str | Path) -> dict[str, Any]:
    """config.json of a folder whose manifest was verified."""
    folder = Path(folder)
    verify_folder(folder)
    return read_checked_config(folder / "config.json")


def verify_folder(folder: str | Path) -> list[str]:
    """Check each file that the manifest lists, by name, size and sha256, and return their names."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(f"{folder}: there is no such folder")
    if not (folder / "manifest.json").is_file():
        raise ModelError(f"{folder}: no manifest.json, so this is not a model folder of regard")
    manifest = read_json(folder / "manifest.json")
    version, files = manifest.get("format"), manifest.get("files")
    if type(version) is not int or version < 1 or not isinstance(files, dict):
        raise ModelError(f"{folder / 'manifest.json'}: format or files is missing or damaged")
    if version > FORMAT:
        raise ModelError(
            f"{folder}: written in format {shortened(version)}; this regard, {__version__}, reads up to {FORMAT}: "
            f"update regard"
        )
    for name in ("config.json", "model.safetensors"):
        if name not in files:
            raise ModelError(f"{folder / 'manifest.json'}: {name} is not listed")
    for name, want in files.items():
        if not NAMES.fullmatch(name):
            raise ModelError(f"{folder / 'manifest.json'}: {shortened(repr(name))} is no file of a model folder")
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise ModelError(f"{path}: listed in the manifest, but not there as a file")
        if not isinstance(want, dict) or path.stat().st_size != want.get("size"):
            raise ModelError(f"{path}: its size differs from the manifest's; the file is damaged or incomplete")
        try:
            found = fingerprint(path)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
        if found != want:
            raise ModelError(f"{path}: its sha256 differs from the manifest's; the file is damaged")
    for path in folder.iterdir():  # such as another tokenizer, which nobody signed
        if NAMES.fullmatch(path.name) and path.name not in files:
            raise ModelError(f"{path}: not listed in the manifest; it must go, or the manifest is of another model")
    return list(files)


def distinct_weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and buffers by name, each shared one (tied tables) once."""
    seen: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    return {name: weight for name, weight in state.items() if seen.setdefault(id(weight), name) == name}


def _stored(model: nn.Module, storage: Storage) -> dict[str, Tensor]:
    """The weights as the file holds them: each shared one once, matrices in the storage's format."""
    stored: dict[str, Tensor] = {}
    for name, parameter in distinct_weights(model).items():
        weight = parameter.detach().cpu().contiguous()
        if not weight.is_floating_point():  # the name of a draw of random features
            stored[name] = weight
            continue
        weight = weight.float()
        if storage == "int8" and weight.dim() == 2:
            scale = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
            stored[name] = (weight / scale[:, None]).round().to(torch.int8)
            stored[name + SCALE] = scale
        else:
            stored[name] = weight.bfloat16() if storage == "bfloat16" else weight
    return stored


def _read_weights(path: Path, model: nn.Module, device: torch.device | str, dtype: torch.dtype) -> dict[str, Tensor]:
    """The file's weights, if they are just those of the model."""
    wanted = {
        name: ("I64" if weight.dtype == torch.int64 else "", tuple(weight.shape))
        for name, weight in distinct_weights(model).items()
    }
    weights: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # it is not a dict
            found = {name: (one.get_dtype(), tuple(one.get_shape())) for name, one in slices.items()}
            _check_weights(path, found, wanted)
            for name in wanted:
                weight = file.get_tensor(name)
                if weight.dtype == torch.int8:
                    scale = file.get_tensor(name + SCALE)
                    if not (scale.isfinite() & (scale > 0)).all():
                        raise ModelError(f"{path}: a scale of the weight {name!r} is no positive number")
                    weight = weight.float() * scale[:, None]
                weights[name] = weight.to(device=device, dtype=None if weight.dtype == torch.int64 else dtype)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: cannot be read as safetensors: {shortened(error)}") from error
    return weights


def _header_size(path: Path) -> int:
    """The length of the header of a safetensors file, which stands before it."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if not 0 < size <= path.stat().st_size - 8:
        raise ModelError(f"{path}: cannot be read as safetensors: its header is missing or goes beyond the file")
    return size


def _check_weights(
    path: Path, found: dict[str, tuple[str, tuple[int, ...]]], wanted: dict[str, tuple[str, tuple[int, ...]]]
) -> None:
    """Raise ModelError unless names, types and shapes are those of the model, before any weight is read.

    What is wanted is a shape, and a type where it is not one of the storages'.
    """
    scales = {
        name + SCALE: ("F32", shape[:1]) for name, (_, shape) in wanted.items() if found.get(name, ("",))[0] == "I8"
    }
    for name, (type_, shape) in {**wanted, **scales}.items():
        if name not in found:
            raise ModelError(f"{path}: the weight {name!r} is missing")
        kind, have = found[name]
        if have != shape:
            raise ModelError(f"{path}: the weight {name!r} has shape {shortened(have)}, the settings ask for {shape}")
        if kind not in ((type_,) if type_ else ("F32", "BF16", "I8")) or (kind == "I8" and len(shape) != 2):
            raise ModelError(f"{path}: the weight {name!r} is stored as {kind}, which the format does not know")
    if extra := found.keys() - wanted.keys() - scales.keys():
        raise ModelError(f"{path}: the weight {shortened(repr(min(extra)))} belongs to no part of the model")


def _swap(fresh: Path, folder: Path) -> None:
    """Put the new folder in the old one's place; at every moment one of the two is there under some name."""
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
    """Move the new files into a run's folder, the manifest last: cut off in between, the run still resumes and the
    checksums say that the model is not whole."""
    for path in sorted(fresh.iterdir(), key=lambda path: path.name == "manifest.json"):
        os.replace(path, folder / path.name)
    sync_folder(folder)
    fresh.rmdir()


def _card(model: nn.Module, storage: str) -> str:
    config: Any = model.config
    settings = "\n".join(f"| {name} | {value} |" for name, value in config.to_dict().items())
    count = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"# A {config.kind} model\n\nMade by regard {__version__}, {count:,} parameters, stored as {storage}.\n\n"
        f"| setting | value |\n|---|---|\n{settings}\n"
    )
