"""Write model folders, completely or not at all."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from regard.errors import UsageError, unknown_name
from regard.models.config import Config
from regard.models.folder.changes import why_not_saved
from regard.models.folder.config_file import MAX_JSON_BYTES, STORAGES, find_fault
from regard.models.folder.verification import NAMES
from regard.models.folder.weights_file import Storage, form_of_storage, stored_weights
from regard.models.presets import MODELS
from regard.system import replace
from regard.system.files import fingerprint, sync_folder, write_synced
from regard.text.tokenizers.special_tokens import DEFAULT, SPECIAL_TOKENS
from regard.text.tokenizers.tokenizer import Tokenizer, tokenizer_files
from regard.version import __version__

SPECIAL_TOKEN_IDS = {token: number for number, token in enumerate(SPECIAL_TOKENS)}
RESERVED = ("kind", "model", "storage", "special_tokens", "versions")  # names in config.json that are not `info`


def save_model(
    model: nn.Module,
    folder: str | Path,
    *,
    storage: Storage = "float32",
    tokenizer: Tokenizer | tuple[Tokenizer, Tokenizer] | None = None,
    files: Mapping[str, bytes] | None = None,
    info: Mapping[str, Any] | None = None,
    card: str | None = None,
) -> Path:
    """Write the model as a new folder, completely or not at all.

    With `tokenizer`, or a pair of them for source and target, `regard.load` can read the folder. `files` are instead
    the files of the tokenizers, by name; `info` is added to config.json (recipe, scores, alignment head);
    `card` is the text of README.md. An existing folder is replaced only if it is a model folder or the folder of a run,
    whose `training/` is kept.

    >>> import regard
    >>> model = regard.make_model(regard.TransformerLMConfig(vocabulary=9, layers=1, dim=8, heads=2, hidden=8))
    >>> folder = save_model(model, "models/example")
    >>> regard.load_model(folder).config == model.config
    True
    """
    if storage not in STORAGES:
        raise UsageError(unknown_name("storage", storage, STORAGES))
    model = getattr(model, "_orig_mod", model)  # the module that torch.compile wrapped
    config = getattr(model, "config", None)
    if config is None or config.kind not in MODELS:
        raise UsageError(f"only regard's models have a folder format, got {type(model).__name__}")
    if reason := why_not_saved(model):
        raise UsageError(f"cannot save this model: {reason}")
    if tokenizer is not None:
        files = _files_of(tokenizer, config, files)
    for name in files or {}:
        if not NAMES.fullmatch(name) or name in ("config.json", "model.safetensors", "README.md"):
            raise UsageError(f"{name!r} is not a tokenizer file of a model folder")
    if reserved := [name for name in info or {} if name in RESERVED]:
        raise UsageError(f"info may not contain {', '.join(map(repr, reserved))}: config.json has its own")
    form = form_of_storage(storage, config.kind)
    return write_folder(
        folder,
        config,
        lambda path: save_file(stored_weights(model, form), path, metadata={"format": "pt"}),
        storage=storage,
        files=files,
        info=info,
        card=card or _card(model, storage),
    )


def write_folder(
    folder: str | Path,
    config: Config,
    write_weights: Callable[[Path], None],
    *,
    storage: Storage,
    files: Mapping[str, bytes] | None,
    info: Mapping[str, Any] | None,
    card: str,
) -> Path:
    """Write a model folder whose weights a function writes into a file; the other arguments are those of save_model."""
    folder = Path(folder)
    run = (folder / "training").is_dir()
    if folder.exists() and not run and not (folder / "manifest.json").is_file():
        raise UsageError(f"{folder} exists and is not a model folder: choose another name")

    fresh = folder.with_name(f".{folder.name}.writing-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        write_weights(fresh / "model.safetensors")
        settings = {
            **(info or {}),
            "kind": config.kind,
            "model": config.to_dict(),
            "storage": storage,
            **({"special_tokens": SPECIAL_TOKEN_IDS} if config.special_tokens == DEFAULT else {}),
            "versions": {"regard": __version__, "torch": torch.__version__, "python": platform.python_version()},
        }
        content = json.dumps(settings, indent=1, ensure_ascii=False).encode()
        fault = find_fault(settings) or (f"more than {MAX_JSON_BYTES} bytes" if len(content) > MAX_JSON_BYTES else "")
        if fault:
            raise UsageError(f"config.json with this info could not be read again: {fault}")
        write_synced(fresh / "config.json", content)
        shutil.copymode(fresh / "config.json", fresh / "model.safetensors")  # else only its owner could read it
        write_synced(fresh / "README.md", card.encode())
        for name, data in (files or {}).items():
            write_synced(fresh / name, data)
        format = _needed_format(config, storage, (files or {}).keys())
        manifest = {"format": format, "files": {path.name: fingerprint(path) for path in sorted(fresh.iterdir())}}
        write_synced(fresh / "manifest.json", json.dumps(manifest, indent=1).encode())
        if run:
            _fill(fresh, folder)
        else:
            _swap(fresh, folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return folder


def _needed_format(config: Config, storage: Storage, files: Collection[str]) -> int:
    """Return the oldest format of a folder that knows these settings, this storage and these files."""
    in_groups = storage == "int4" or form_of_storage(storage, config.kind) == "int8-groups"
    new = storage == "float16" or in_groups or any(name.endswith(("tokenizer.json", "pieces.json")) for name in files)
    return 2 if new else config.folder_format


def _files_of(
    tokenizer: Tokenizer | tuple[Tokenizer, Tokenizer], config: Config, files: Mapping[str, bytes] | None
) -> dict[str, bytes]:
    """Return the files of the tokenizers of a model; UsageError if they do not fit it."""
    if files is not None:
        raise UsageError("give the tokenizers as tokenizer= or as files=, not both")
    source, target = tokenizer if isinstance(tokenizer, tuple) else (tokenizer, tokenizer)
    sides = {"source": source, "target": target}
    for setting, side in config.vocabulary_fields().items():
        if not hasattr(sides[side], "save"):
            raise UsageError(f"tokenizer must be one of regard's tokenizers, got {type(sides[side]).__name__}")
        size = getattr(config, setting)
        if sides[side].size > size:
            raise UsageError(f"the tokenizer has {sides[side].size} tokens, but {setting} of the model is {size}")
    return tokenizer_files(source, target)


def _swap(fresh: Path, folder: Path) -> None:
    """Replace the old folder by the new one; at every moment at least one of them exists under some name."""
    old = folder.with_name(f".{folder.name}.old-{os.getpid()}")
    if folder.exists():
        replace(folder, old)
    try:
        replace(fresh, folder)
    except BaseException:
        if old.exists():
            replace(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _fill(fresh: Path, folder: Path) -> None:
    """Move the new files into the folder of a run, the manifest last.

    If this is interrupted, the run can still resume, and the checksums show that the model is incomplete.
    """
    for path in sorted(fresh.iterdir(), key=lambda path: path.name == "manifest.json"):
        replace(path, folder / path.name)
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
