"""Devices and cores, and the kernels that can run on them."""

from __future__ import annotations

import ctypes
import importlib.util
import math
import os
import platform
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import UsageError, unknown_name
from regard.machine.control_groups import cpu_quota
from regard.machine.memory import total_memory
from regard.machine.settings import setting
from regard.system import HAS_C_KERNELS, usable_cores

if TYPE_CHECKING:
    import torch

C_COMPILERS = ("cc", "gcc", "clang")
THREAD_COUNT_LOCK = threading.RLock()  # torch has one number for all threads
AMPERE = (8, 0)  # compute capability


@dataclass(frozen=True)
class Machine:
    """The machine that a training runs on. `memory` is the memory of the device, in bytes."""

    device: str  # as torch names it
    cores: int
    memory: int
    bf16: bool = False  # whether the device computes in bfloat16

    @property
    def type(self) -> str:
        return self.device.partition(":")[0]


def available_devices() -> dict[str, int]:
    """Return how many devices of each type this machine has, the fastest type first."""
    import torch

    return {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
        "cpu": 1,
    }


def find_device(device: str | torch.device) -> torch.device:
    """Return the device with this name; "auto" is the first of CUDA, MPS and CPU that this machine has."""
    import torch

    available = available_devices()
    if device == "auto":
        return torch.device(next(name for name, count in available.items() if count))
    try:
        known = torch.device(device)
    except (RuntimeError, TypeError):
        raise UsageError(unknown_name("device", device, ("auto", "cpu", "cuda", "cuda:0", "mps"))) from None
    if (known.index or 0) >= available.get(known.type, 0):
        raise UsageError(f"there is no device {str(device)!r} on this machine: take 'auto' or 'cpu'")
    return known


def may_have_gpu() -> bool:
    """Whether torch might find a GPU here. This does not import torch, and is True where only torch can tell."""
    if platform.system() != "Linux" or Path("/dev/kfd").exists():  # of AMD's driver
        return True
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def this_machine(device: str | None = None) -> Machine:
    """Describe this machine with the named device, by default the fastest one: cuda, then mps, then cpu."""
    import torch

    available = available_devices()
    if device in (None, "auto"):
        device = next(name for name, count in available.items() if count)
    kind, _, number = str(device).partition(":")
    if int(number or 0) >= available.get(kind, 0):
        names = ", ".join(name for name, count in available.items() if count)
        raise UsageError(f"training.device: {device} was asked for, and this machine has {names}")
    bf16 = kind == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return Machine(str(device), number_of_cores(), total_memory(str(device)), bf16)


def number_of_cores() -> int:
    """Count the CPU cores that this process may use: its affinity mask, and the quota of its control groups."""
    quota = cpu_quota()
    return usable_cores() if quota is None else max(1, min(usable_cores(), math.floor(quota)))


def set_threads(threads: int | None) -> None:
    """Let PyTorch and the C kernels compute with so many threads.

    None leaves the choice to OMP_NUM_THREADS and OpenMP, which starts one thread for each core that it sees. It does
    not know the quota of a control group, and threads beyond the quota would wait for each other, so None lowers their
    number to the quota.
    """
    if threads is None:
        if "OMP_NUM_THREADS" in os.environ or number_of_cores() == usable_cores():
            return
        threads = number_of_cores()
    # OpenMP reads the variable for threads that Python starts later, and child processes inherit it.
    os.environ |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if (torch := sys.modules.get("torch")) is not None:  # otherwise it reads the variables when it is imported
        torch.set_num_threads(threads)


_sharing = threading.local()


@contextmanager
def sharing_cores(workers: int) -> Iterator[None]:
    """In this thread, leave the other `workers` - 1 threads their share of the cores."""
    _sharing.workers = workers
    try:
        yield
    finally:
        del _sharing.workers


def share_of_threads() -> int:
    """Return how many threads the C kernels may use in this thread: all, or its share of them."""
    return max(1, threads_in_use() // getattr(_sharing, "workers", 1))


def threads_in_use() -> int:
    """Return with how many threads PyTorch and the C kernels compute; this does not import torch."""
    # While another thread imports torch, the module is there and incomplete.
    if (get_num_threads := getattr(sys.modules.get("torch"), "get_num_threads", None)) is not None:
        return get_num_threads()
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list is for nested threads
    return int(first) if first.isdecimal() and int(first) else usable_cores()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread inside the block.

    After each small operation, OpenMP's threads wait for the next one without sleeping. On a busy machine this takes
    time away from the thread that has work. Blocks of several threads run one after the other, because a thread that
    first asks torch for the number during a block would keep 1.
    """
    import torch

    with THREAD_COUNT_LOCK:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def device_name(device: str | torch.device) -> str:
    """Return the model name of a GPU, and "cpu" or "mps" for other devices."""
    import torch

    device = torch.device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def multiprocessors(device: torch.device) -> int:
    """Count the multiprocessors of a GPU; 1 for other devices, where kernels are interpreted."""
    import torch

    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def synchronize(device: torch.device) -> None:
    """Wait until all work on a device is done."""
    import torch

    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


def has_triton() -> bool:
    """Whether Triton is installed. It is not imported, because that takes a while."""
    return importlib.util.find_spec("triton") is not None


def triton_is_interpreted() -> bool:
    """Whether Triton interprets kernels on the CPU instead of compiling them; tests do that."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def compute_capability(device: torch.device | None = None) -> tuple[int, int]:
    """Return the compute capability of an NVIDIA GPU, by default the current one; (0, 0) for other devices."""
    import torch

    if not torch.cuda.is_available() or torch.version.hip is not None:
        return (0, 0)
    return torch.cuda.get_device_capability(device)


@cache
def is_ampere() -> bool:
    """Whether the GPU is NVIDIA's Ampere or later; True without any GPU, where kernels are interpreted.

    Triton supports earlier GPUs poorly, bfloat16 begins with Ampere, and matrix products would take minutes to compile.
    """
    import torch

    return not torch.cuda.is_available() or compute_capability() >= AMPERE


@cache
def cpu_autocasts_lstm(dtype: torch.dtype) -> bool:
    """Whether PyTorch's LSTM runs under autocast to this dtype on this CPU; without AVX-512 it raises (torch 2.13)."""
    import torch

    try:
        with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
            torch.nn.LSTM(1, 1)(torch.zeros(1, 1, 1))
    except RuntimeError:
        return False
    return True


def c_compiler() -> str | None:
    """Find a C compiler; None if there is none, on Windows, or if REGARD_NATIVE=0 forbids native code."""
    if setting("REGARD_NATIVE") == "0" or not HAS_C_KERNELS:
        return None
    return next(filter(None, map(shutil.which, C_COMPILERS)), None)


def cpu_flags() -> str:
    """Describe the CPU well enough to tell whether code that was compiled on another one runs here."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {flags}"
