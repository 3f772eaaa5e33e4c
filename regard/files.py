"""Files that are there whole or not at all: synced writing, checksums, atomic replacement, locks.

The only place that knows how the operating system makes a write last.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import UsageError


def cache_folder() -> Path:
    """Where things are kept for this user that can be made again: compiled code, measurements."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


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


@contextmanager
def locked(path: Path, *, holder: str) -> Iterator[str | None]:
    """Hold a folder for one process: `path` is a file in it, which says who `holder` is and since when.

    The operating system lets the lock go when the process ends, however it ends, so a lock never has to be broken. What
    is given back is the entry of a process that ended without leaving: None, or who it was. UsageError when another
    process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _lock(handle):
            raise UsageError(f"{path.parent.parent} is in use: {_entry(handle)}")
        if not path.exists() or os.fstat(handle).st_ino != path.stat().st_ino:  # its holder left in this moment
            raise UsageError(f"{path.parent.parent} was in use until just now: try again")
        before = _entry(handle) or None
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{holder}, process {os.getpid()} on {platform.node()}, since {since}".encode(), 0)
        try:
            yield before
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _entry(handle: int) -> str:
    return os.pread(handle, 1000, 0).decode(errors="replace")


def _lock(handle: int) -> bool:
    """Whether this process holds the lock of an open file now."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed had begun to write; for the holder of the folder's lock."""
    for path in [*folder.rglob(".*.writing-*"), *folder.parent.glob(f".{folder.name}.writing-*")]:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
