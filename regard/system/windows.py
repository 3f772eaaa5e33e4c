"""Windows. posix.py has the same names, and explains them.

Differences that other code must respect: an open or memory-mapped file cannot be removed or replaced, a file can be
synced only if it is open for writing, and text is not UTF-8 unless one says so.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

HAS_SEVERAL_PROCESSES = False
HAS_C_KERNELS = False  # they are written for GCC and Clang, and for a `long` of 64 bits
LOCKS_MAPPED_FILES = True
STOP_SIGNALS: tuple[int, ...] = (
    signal.SIGINT,
    signal.SIGTERM,
    getattr(signal, "SIGBREAK", signal.SIGTERM),  # Ctrl-Break, and a console window that is closed
)
ERROR_DISK_FULL = 112  # Windows' own number, which safetensors reports
DISK_FULL_CODES: tuple[int, ...] = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, ERROR_DISK_FULL)
LOCKED_BYTE = 2**31 - 2  # far behind the text: Windows lets no other process read a locked byte
REPLACE_SECONDS = 2.0  # virus scanners and indexers open new files for a moment


def open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)


def try_lock(handle: int) -> bool:
    try:
        _change_lock(handle, lock=True)
    except OSError:
        return False
    return True


def remove_lock(path: Path, handle: int) -> None:
    """Close the file first, because Windows removes no open file; if another process has locked it since, it stays."""
    try:
        _change_lock(handle, lock=False)
    finally:
        os.close(handle)
        with suppress(OSError):
            path.unlink()


def _change_lock(handle: int, *, lock: bool) -> None:
    import msvcrt

    os.lseek(handle, LOCKED_BYTE, os.SEEK_SET)
    msvcrt.locking(handle, msvcrt.LK_NBLCK if lock else msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]


def sync_folder(folder: Path) -> None:
    """Nothing: Windows cannot sync a folder, and NTFS keeps a journal of renames."""


def is_private(path: Path) -> bool:
    """Tell whether it exists: the folders of a Windows user are closed to others."""
    return path.exists()


def replace(source: Path, target: Path) -> None:
    """Rename a file or folder, and try again for a while if another program has it open."""
    give_up = time.monotonic() + REPLACE_SECONDS
    while True:
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)


def start_child(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, **options)


def forward_signal(child: subprocess.Popen[bytes], number: int) -> None:
    """Nothing: Ctrl-C and Ctrl-Break reach all processes of a console, so the child has received it too."""


def stop_this_process() -> None:
    signal.raise_signal(signal.SIGTERM)


def usable_cores() -> int:
    return os.cpu_count() or 1


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 5),
    )


def total_memory() -> int | None:
    status = _memory_status()
    return None if status is None else int(status.total)


def available_memory() -> int | None:
    status = _memory_status()
    return None if status is None else int(status.available)


def _memory_status() -> _MemoryStatus | None:
    status = _MemoryStatus()
    status.length = ctypes.sizeof(status)
    try:
        succeeded = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return None
    return status if succeeded else None


def peak_resident() -> int | None:
    return None


def allow_port_reuse(listening: socket.socket) -> None:
    """Nothing: with SO_REUSEADDR, two servers could listen on one port of Windows."""
