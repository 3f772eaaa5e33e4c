"""Files that are there whole or not at all: synced writing, checksums, atomic replacement.

The only place that knows how the operating system makes a write last.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Put new content in a file's place; a reader sees the old one or the new one, never a part."""
    fresh = path.with_name(f".{path.name}.writing-{os.getpid()}")
    try:
        write_synced(fresh, content)
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def fingerprint(path: Path) -> dict[str, Any]:
    """Size and sha256 of a file, as manifests list them."""
    with open(path, "rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last. On Windows a folder cannot be opened, and renames last without it."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
