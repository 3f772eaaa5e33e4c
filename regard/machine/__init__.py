"""What this machine has: devices, cores, memory, disk, kernels, and the environment variables that regard reads.

This is the only part of regard that asks such questions. It imports torch inside functions, so that commands which
need no model start quickly.
"""

from __future__ import annotations

from regard.machine.devices import (
    Machine,
    available_devices,
    c_compiler,
    compute_capability,
    cpu_autocasts_lstm,
    cpu_flags,
    device_name,
    find_device,
    has_triton,
    is_ampere,
    may_have_gpu,
    multiprocessors,
    number_of_cores,
    one_thread,
    set_threads,
    share_of_threads,
    sharing_cores,
    synchronize,
    this_machine,
    threads_in_use,
    triton_is_interpreted,
)
from regard.machine.memory import (
    available_memory,
    free_disk,
    free_memory,
    is_out_of_memory,
    memory_in_use,
    peak_allocated,
    peak_memory,
    peak_resident,
    reset_peak_memory,
    total_memory,
)
from regard.machine.settings import SETTINGS, Setting, check_environment, launched_by_torchrun, setting
from regard.machine.terminal import in_notebook, redraws

__all__ = [
    "SETTINGS",
    "Machine",
    "Setting",
    "available_devices",
    "available_memory",
    "c_compiler",
    "check_environment",
    "compute_capability",
    "cpu_autocasts_lstm",
    "cpu_flags",
    "device_name",
    "find_device",
    "free_disk",
    "free_memory",
    "has_triton",
    "in_notebook",
    "is_ampere",
    "is_out_of_memory",
    "launched_by_torchrun",
    "may_have_gpu",
    "memory_in_use",
    "multiprocessors",
    "number_of_cores",
    "one_thread",
    "peak_allocated",
    "peak_memory",
    "peak_resident",
    "redraws",
    "reset_peak_memory",
    "set_threads",
    "setting",
    "share_of_threads",
    "sharing_cores",
    "synchronize",
    "this_machine",
    "threads_in_use",
    "total_memory",
    "triton_is_interpreted",
]
