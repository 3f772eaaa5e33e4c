"""Linux control groups: the limits that containers and batch systems such as Slurm set for a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PROCESS = Path("/proc/self")  # Linux's account of this process; other systems have none
CONTROL_GROUPS = Path("/sys/fs/cgroup")


def groups_of_process(controller: str) -> Iterator[tuple[int, Path]]:
    """Yield the version and the folder of each control group around this process that may limit this resource.

    In version 2 a group controls all resources; in version 1 each controller, such as "memory" or "cpu", has its own.
    """
    for line in read_lines(PROCESS / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root, inner = CONTROL_GROUPS / controllers, Path(path.lstrip("/"))
        for group in (root / inner, *(root / outer for outer in inner.parents)):
            yield (1 if controllers else 2), group


def cpu_quota() -> float | None:
    """Return how many cores the control groups allow this process on average; None if they set no limit."""
    limits = []
    for version, group in groups_of_process("cpu"):
        if version == 2:
            quota, period = [*read_words(group / "cpu.max"), "", ""][:2]
        else:
            quota, period = (" ".join(read_words(group / f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
        if quota.isdigit() and period.isdigit() and int(period):  # "max" and -1 set no limit
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file; none if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def read_words(path: Path) -> list[str]:
    """Return the words of a file; none if it cannot be read."""
    return " ".join(read_lines(path)).split()
