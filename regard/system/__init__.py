"""What differs between operating systems: locks, syncing, signals, child processes, cores and memory.

posix.py is for Linux and macOS, windows.py for Windows. Both have the same names, and no other module of regard uses a
function that only one of these systems has (tests/system/test_posix_names.py).
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("fcntl") is not None:
    from regard.system.posix import (
        DISK_FULL_CODES,
        HAS_C_KERNELS,
        HAS_SEVERAL_PROCESSES,
        LOCKS_MAPPED_FILES,
        STOP_SIGNALS,
        allow_port_reuse,
        available_memory,
        forward_signal,
        is_private,
        open_lock,
        peak_resident,
        remove_lock,
        replace,
        start_child,
        stop_this_process,
        sync_folder,
        total_memory,
        try_lock,
        usable_cores,
    )
else:
    from regard.system.windows import (
        DISK_FULL_CODES,
        HAS_C_KERNELS,
        HAS_SEVERAL_PROCESSES,
        LOCKS_MAPPED_FILES,
        STOP_SIGNALS,
        allow_port_reuse,
        available_memory,
        forward_signal,
        is_private,
        open_lock,
        peak_resident,
        remove_lock,
        replace,
        start_child,
        stop_this_process,
        sync_folder,
        total_memory,
        try_lock,
        usable_cores,
    )

__all__ = [
    "DISK_FULL_CODES",
    "HAS_C_KERNELS",
    "HAS_SEVERAL_PROCESSES",
    "LOCKS_MAPPED_FILES",
    "STOP_SIGNALS",
    "allow_port_reuse",
    "available_memory",
    "forward_signal",
    "is_private",
    "open_lock",
    "peak_resident",
    "remove_lock",
    "replace",
    "start_child",
    "stop_this_process",
    "sync_folder",
    "total_memory",
    "try_lock",
    "usable_cores",
]
