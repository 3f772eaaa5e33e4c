"""The machine that choices and forecasts rest on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.errors import UsageError

PROCESS = Path("/proc/self")  # Linux' account of this process; elsewhere there is none
GROUPS = Path("/sys/fs/cgroup")
ACCOUNTS = {  # of a control group's memory, of the second version and the first: its limit, use, and files in it
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


@dataclass(frozen=True)
class Machine:
    """Where the training runs. `memory` is the device's own, in bytes."""

    device: str  # as torch names it
    cores: int
    memory: int
    bf16: bool = False  # whether the device computes in bfloat16

    @property
    def type(self) -> str:
        return self.device.partition(":")[0]


def this_machine(device: str | None = None) -> Machine:
    """This machine with the device of that name; by default the fastest that it has: cuda, then mps, then cpu."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device in (None, "auto"):
        device = next(name for name, there in available.items() if there)
    kind, _, number = str(device).partition(":")
    if not available.get(kind) or (number and int(number) >= torch.cuda.device_count()):
        there = ", ".join(name for name, is_there in available.items() if is_there)
        raise UsageError(f"training.device: {device} was asked for, and this machine has {there}")
    if kind == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
        return Machine(str(device), cores, memory, bf16=torch.cuda.is_bf16_supported(including_emulation=False))
    return Machine(str(device), cores, _memory_line("MemTotal") or _pages())


def free_memory(device: str) -> int:
    """Bytes that a program may still take: of the GPU, or of the machine's memory and what its control groups allow."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    return min([_memory_line("MemAvailable") or _pages(), *_left_by_groups()])


def _memory_line(name: str) -> int | None:
    """A line of Linux' account of its memory, in bytes."""
    lines = _lines(Path("/proc/meminfo"))
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def _pages() -> int:
    """The machine's memory where /proc is missing; 8 GB where even that cannot be asked."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30


def _left_by_groups() -> list[int]:
    """Bytes that each control group around this process still allows (a container has one, and a job of Slurm).

    A group's account has the files that Linux keeps in memory with it, and gives them up when memory is needed.
    """
    left = []
    for line in _lines(PROCESS / "cgroup"):
        _, controller, path = line.split(":", 2)
        if controller not in ACCOUNTS:
            continue
        root, (limit, used, files) = GROUPS / controller, ACCOUNTS[controller]
        inner = Path(path.lstrip("/"))
        for group in (root / inner, *(root / outer for outer in inner.parents)):
            most, now = _number(group / limit), _number(group / used)
            if most is not None and now is not None:
                kept = [int(row.split()[1]) for row in _lines(group / "memory.stat") if row.startswith(f"{files} ")]
                left.append(max(0, most - now + sum(kept)))
    return left


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None
