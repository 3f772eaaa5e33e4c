"""Memory and disk space: what is in use, what it was at its peak, and what is left."""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from regard import system
from regard.machine.control_groups import PROCESS, groups_of_process, read_lines

if TYPE_CHECKING:
    import torch

CONTROL_GROUP_FILES = {  # memory of a control group by its version: its limit, its use, and cached files in that use
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
UNKNOWN_MEMORY = 8 << 30  # assumed where the system does not tell


def memory_in_use(device: torch.device) -> int:
    """Bytes that this process uses: its tensors on a GPU, otherwise its resident memory; 0 if unknown."""
    import torch

    return torch.cuda.memory_allocated(device) if device.type == "cuda" else _process_status("VmRSS") or 0


def peak_memory(device: torch.device) -> int:
    """The most bytes that this process has used since `reset_peak_memory`; 0 if unknown."""
    import torch

    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _process_status("VmHWM") or 0


def reset_peak_memory(device: torch.device) -> None:
    """Let `peak_memory` start again from the memory in use now."""
    import torch

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):  # if that is not allowed, the peak covers the whole past, which is as much or more
            (PROCESS / "clear_refs").write_text("5", encoding="ascii")


def peak_resident() -> int | None:
    """The most main memory that this process has ever used, in bytes; None if unknown."""
    if (PROCESS / "status").exists():  # on Linux getrusage also counts what the parent had when it started this process
        return _process_status("VmHWM")
    return system.peak_resident()


def peak_allocated(device: torch.device | None = None) -> int | None:
    """The most memory that tensors have used on a GPU, by default the current one; None without a GPU in use."""
    torch = sys.modules.get("torch")  # a process that has not imported it has no tensors
    if torch is None or (device is None and not torch.cuda.is_initialized()):
        return None
    if device is not None and device.type != "cuda":
        return None
    return int(torch.cuda.max_memory_allocated(device))


def available_memory(device: torch.device) -> int:
    """Bytes that this process can still take: free memory, and on a GPU what torch's allocator has cached."""
    import torch

    cached = torch.cuda.memory_reserved(device) - memory_in_use(device) if device.type == "cuda" else 0
    return cached + free_memory(str(device))


def total_memory(device: str) -> int:
    """Bytes of memory that a GPU has, or the machine for other devices."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_properties(device).total_memory
    return _memory_info("MemTotal") or system.total_memory() or UNKNOWN_MEMORY


def free_memory(device: str) -> int:
    """Bytes that are free on a GPU, or in main memory as far as the process's control groups allow their use."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.mem_get_info(device)[0]
    free = _memory_info("MemAvailable") or system.available_memory() or total_memory(device)
    return min([free, *_left_by_control_groups()])


def free_disk(folder: Path) -> int:
    """Bytes that are free on the disk of a folder."""
    return shutil.disk_usage(folder).free


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out; on the CPU torch raises a plain RuntimeError."""
    on_gpu = getattr(sys.modules.get("torch"), "OutOfMemoryError", MemoryError)  # torch may be incomplete
    return isinstance(error, (MemoryError, on_gpu)) or "can't allocate memory" in str(error)


def _process_status(name: str) -> int | None:
    """A line of Linux's account of this process, in bytes."""
    return _kilobytes(PROCESS / "status", name)


def _memory_info(name: str) -> int | None:
    """A line of Linux's account of its memory, in bytes."""
    return _kilobytes(Path("/proc/meminfo"), name)


def _kilobytes(path: Path, name: str) -> int | None:
    return next((1024 * int(line.split()[1]) for line in read_lines(path) if line.startswith(f"{name}:")), None)


def _left_by_control_groups() -> list[int]:
    """Bytes that each control group of this process still allows; containers and Slurm jobs have one.

    The use of a group includes cached files, which Linux drops when memory is needed.
    """
    left = []
    for version, group in groups_of_process("memory"):
        limit, use, cached_name = CONTROL_GROUP_FILES[version]
        most, now = _number(group / limit), _number(group / use)
        if most is not None and now is not None:
            rows = [row.split() for row in read_lines(group / "memory.stat")]
            left.append(max(0, most - now + sum(int(row[1]) for row in rows if row[:1] == [cached_name])))
    return left


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no such file, or "max"
        return None
