"""Durable files: synced writes, checksums, atomic replacement, locks.

A file is complete or absent, never partial. What depends on the operating system is in posix.py and windows.py.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import UsageError
from regard.system import open_lock, remove_lock, replace, sync_folder, try_lock

__all__ = [
    "cache_folder",
    "fingerprint",
    "locked",
    "remove_leftovers",
    "replace_file",
    "sync_file",
    "sync_folder",
    "write_synced",
]


def cache_folder() -> Path:
    """Return the user's cache folder, for data that can be made again: compiled code, measurements."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Wait until a file that another library has written is on disk."""
    with open(path, "r+b") as file:  # Windows syncs only files that are open for writing
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.writing-{os.getpid()}")
    try:
        write_synced(temporary, content)
        replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def fingerprint(path: Path) -> dict[str, Any]:
    """Return the size and sha256 of a file, as in manifests."""
    with open(path, "rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


@contextmanager
def locked(path: Path, *, holder: str) -> Iterator[str | None]:
    """Lock a folder for one process. `path` is the lock file, which records the `holder` and the time.

    The operating system releases the lock when the process ends, even if it crashes, so a lock never has to be broken.
    Yield the entry of a previous process that ended without releasing the lock, or None. Raise UsageError if another
    process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = open_lock(path)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ELOOP, errno.ENXIO):
            raise _no_lock_file(path) from error
        raise
    try:
        previous = _claim(path, handle, holder)
    except BaseException:
        os.close(handle)
        raise
    try:
        yield previous
    finally:
        remove_lock(path, handle)


def _claim(path: Path, handle: int, holder: str) -> str | None:
    """Lock the open file and enter the holder; return the previous entry, None if there is none."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:  # writing to it might change another file
        raise _no_lock_file(path)
    if not try_lock(handle):
        raise UsageError(f"{path.parent.parent} is in use: {_entry(handle)}")
    if not path.exists() or os.fstat(handle).st_ino != path.stat().st_ino:  # its holder has just removed it
        raise UsageError(f"{path.parent.parent} was in use until just now: try again")
    previous = _entry(handle) or None
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    os.ftruncate(handle, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    os.write(handle, f"{holder}, process {os.getpid()} on {platform.node()}, since {since}".encode())
    return previous


def _no_lock_file(path: Path) -> UsageError:
    return UsageError(f"{path} is a folder, a link or a device, and a lock must be a file of its own: remove it")


def _entry(handle: int) -> str:
    os.lseek(handle, 0, os.SEEK_SET)
    return os.read(handle, 1000).decode(errors="replace")


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of a killed process; only the holder of the folder's lock may call this."""
    for path in [*folder.rglob(".*.writing-*"), *folder.parent.glob(f".{folder.name}.writing-*")]:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
