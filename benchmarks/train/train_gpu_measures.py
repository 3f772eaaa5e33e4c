"""How train_gpu.py measures: epochs, memory, kernels, and how fast a GPU multiplies matrices."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import islice
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.timing import sample
from benchmarks.train.train_gpu_contenders import Contender
from regard.text.batches.batch import Batch

SHOWN = 25  # kernels of a profile
LOOK = 50  # steps between two looks at the loss


def one_pass(contender: Contender, most: int | None = None) -> None:
    """Train on all batches of an epoch, or so many, with a look at the loss now and then."""
    with contender.kernels():
        for number, batch in enumerate(islice(contender.batches(), most), start=1):
            contender.step(batch)
            if number % LOOK == 0:
                contender.look()


def warm_up(contender: Contender, curve: Sequence[Batch] = ()) -> dict:
    """The first steps, in which kernels are chosen, compiled and recorded: an epoch, or a `curve` with its losses.

    Then one epoch more, for the memory that the contender takes.
    """
    weights = sum(tensor.nbytes for tensor in (*contender.model.parameters(), *contender.model.buffers()))
    before = memory_now(contender.device)  # its weights are there already
    began, done, losses = time.perf_counter(), 0, []
    with contender.kernels():
        for batch in curve or contender.batches():
            contender.step(batch)
            done += 1
            if curve:
                losses.append(contender.look())
    wait(contender.device)
    seconds = time.perf_counter() - began
    memory_now(contender.device)
    one_pass(contender)
    memory = {key: peak - before[key] + weights for key, peak in memory_peak(contender.device).items()}
    return {"steps": done, "seconds": seconds, "losses": losses, "memory": memory}


def memory_now(device: torch.device) -> dict[str, int]:
    """What is there, without what torch keeps for later; from here on the peak is looked for."""
    if device.type == "cuda":
        wait(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return memory_peak(device)


def memory_peak(device: torch.device) -> dict[str, int]:
    if device.type != "cuda":
        return {}
    return {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def matmul_rate(device: str) -> float:
    """FLOP/s of the product of two large bf16 matrices, the most that a step can hope for."""
    size = 8192 if device == "cuda" else 256
    a, b = torch.randn(2, size, size, device=device, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
    sample(lambda: a @ b, 20, device)
    return 2 * size**3 / median(sample(lambda: a @ b, 20, device) for _ in range(10))


def used_by_others(device: str) -> float:
    """GiB of the GPU that are taken before this process takes any."""
    if device != "cuda":
        return 0.0
    free, total = torch.cuda.mem_get_info()
    return round((total - free) / 2**30, 2)


def print_profile(title: str, run: Callable[[], object], steps: int, device: str) -> None:
    """The kernels (on a CPU the operators) that take most of the time of `run`, which makes so many steps."""
    on_gpu, times = device == "cuda", defaultdict(list)
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        began = time.perf_counter()
        run()
        wait(torch.device(device))
        wall = 1e3 * (time.perf_counter() - began)
    for event in profiler.key_averages():
        spent = event.device_time_total if on_gpu else event.self_cpu_time_total
        if spent:
            times[event.key].append((spent / 1e3, event.count))
    totals = {name: tuple(map(sum, zip(*events, strict=True))) for name, events in times.items()}
    busy, calls = (sum(events) for events in zip(*totals.values(), strict=True))
    print(
        f"\n{title}: a step takes {wall / steps:.2f} ms; {calls / steps:,.0f} kernels, {busy / steps:.2f} ms together"
    )
    print("   ms/step  share  calls/step   µs each  kernel")
    for name, (total, count) in sorted(totals.items(), key=lambda item: -item[1][0])[:SHOWN]:
        numbers = f"{total / steps:>10.3f}{total / busy:>7.1%}{count / steps:>12.1f}{1e3 * total / count:>10.1f}"
        print(f"{numbers}  {name[:110]}")
