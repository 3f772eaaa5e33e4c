"""Verify the files of a model folder: their names, sizes and checksums. This needs no torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.models.folder.config_file import read_checked_config, read_json, shortened
from regard.models.folder.foreign_folder import describe_foreign_folder
from regard.system.files import fingerprint
from regard.version import __version__

FORMAT = 2  # the newest; a folder is written in format 1 unless it has something that only format 2 knows
NAMES = re.compile(
    r"config\.json|model\.safetensors|README\.md|(source\.|target\.)?(tokenizer\.(model|json)|(characters|labels|words|pieces)\.json)"
)


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
