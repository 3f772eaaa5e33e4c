"""Linux and macOS. windows.py has the same names, with what Windows does instead."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

HAS_SEVERAL_PROCESSES = True  # whether `regard train --nproc` works
HAS_C_KERNELS = True  # whether the C files of regard/kernels/native can be compiled
LOCKS_MAPPED_FILES = False  # whether a file that is mapped into memory can be neither removed nor replaced
# They end a training run or a server in good order. SIGHUP: the terminal was closed.
STOP_SIGNALS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DISK_FULL_CODES: tuple[int, ...] = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def open_lock(path: Path) -> int:
    """Open a lock file, which is created if it is missing. Links are not followed: they might lead to any file."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)


def try_lock(handle: int) -> bool:
    """Try to lock an open file; return whether this process now holds the lock, which ends with the process."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove_lock(path: Path, handle: int) -> None:
    """Remove a lock file that this process has locked, before the lock is released, and never that of another one."""
    try:
        if path.exists() and os.path.samestat(path.stat(), os.fstat(handle)):  # unless the folder was moved meanwhile
            path.unlink()
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_private(path: Path) -> bool:
    """Tell whether a file or folder belongs to this user, and no other user may write to it; links are not followed."""
    try:
        status = path.lstat()
    except OSError:
        return False
    is_link = stat.S_ISLNK(status.st_mode)
    return status.st_uid == os.geteuid() and not is_link and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def replace(source: Path, target: Path) -> None:
    """Rename a file or folder, replacing a file of that name."""
    os.replace(source, target)


def start_child(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own: Ctrl-C reaches only this process, which forwards it once."""
    return subprocess.Popen(command, start_new_session=True, **options)


def forward_signal(child: subprocess.Popen[bytes], number: int) -> None:
    """Send a stop signal to a process of `start_child`."""
    child.send_signal(number)


def stop_this_process() -> None:
    """Send SIGTERM to this process, from any thread."""
    os.kill(os.getpid(), signal.SIGTERM)


def usable_cores() -> int:
    """Count the CPU cores that this process may use; macOS cannot limit them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def total_memory() -> int | None:
    """The machine's main memory in bytes; None if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def available_memory() -> int | None:
    """Bytes of main memory that are free; None, because only Linux tells, in /proc/meminfo."""
    return None


def peak_resident() -> int | None:
    """The most main memory that this process has used, in bytes; on Linux also what its parent had at the start."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def allow_port_reuse(listening: socket.socket) -> None:
    """Let a socket take a port that still has lingering connections of a previous server."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
