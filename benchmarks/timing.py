"""Time several ways of doing one thing against each other, in turns, so that a busy machine disturbs all alike."""

from __future__ import annotations

import gc
import json
import math
import os
import platform
import random
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

Run = Callable[[], object]

SAMPLE = 3e-3  # seconds: a sample repeats its call until it lasts this long, far above the clock's grain
LONG = 0.1  # seconds: no sample has to last longer


class Samples:
    """Seconds a call, one number for each contender and round."""

    def __init__(self, seconds: dict[str, list[float]]) -> None:
        self.seconds = seconds

    def median(self, name: str) -> float:
        return median(self.seconds[name])

    def ratio(self, name: str, other: str) -> float:
        """How many times as long `name` takes as `other`: the median of the ratios round by round.

        What slows the machine down for a while slows both parts of such a ratio, and cancels.
        """
        return median(a / b for a, b in zip(self.seconds[name], self.seconds[other], strict=True))

    def again(self, name: str) -> float:
        """One half of the contender's samples over the other: the same thing twice, so what is not 1 is noise."""
        return median(self.seconds[name][::2]) / median(self.seconds[name][1::2])

    def excess(self, name: str, other: str) -> float:
        """How many seconds longer `name` takes than `other`, likewise round by round."""
        return median(a - b for a, b in zip(self.seconds[name], self.seconds[other], strict=True))


def take_turns(runs: dict[str, Run], *, device: str, rounds: int, budget: float) -> Samples:
    """Sample every contender once a round, for at least `rounds` rounds and then until `budget` seconds are spent.

    Each round has an order of its own and all samples hold the same number of calls, so that none gains by its place,
    by who ran before it or by a longer sample; only of what is slow a sample holds fewer, which last as long.
    """
    once = {name: seconds_once(run, device) for name, run in runs.items()}
    most = max(math.ceil(SAMPLE / time) for time in once.values())
    calls = {name: min(most, math.ceil(LONG / time)) for name, time in once.items()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    names, order = list(runs), random.Random(0)
    start, done = time.perf_counter(), 0
    while done < max(rounds, 2) or (time.perf_counter() - start < budget and done < 200):
        order.shuffle(names)
        for name in names:
            seconds[name].append(sample(runs[name], calls[name], device))
        done += 1
    return Samples(seconds)


def fastest(forms: dict[str, Run], *, device: str, rounds: int = 4) -> str:
    """The name of the form that takes least time, by a short contest."""
    if len(forms) == 1:
        return next(iter(forms))
    samples = take_turns(forms, device=device, rounds=rounds, budget=0.0)
    return min(forms, key=samples.median)


def sample(run: Run, calls: int, device: str) -> float:
    """Seconds a call, over `calls` calls in a row; on CUDA between two events in the stream of work."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        if device == "cuda":
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            first.record()
            for _ in range(calls):
                run()
            last.record()
            last.synchronize()
            return first.elapsed_time(last) / 1e3 / calls
        start = time.perf_counter()
        for _ in range(calls):
            run()
        return (time.perf_counter() - start) / calls
    finally:
        if collecting:
            gc.enable()


def seconds_once(run: Run, device: str) -> float:
    """About how long a call takes; the calls made to find out also warm the contender up."""
    once = sample(run, 1, device)
    if once < 100 * SAMPLE:  # a first call may be slow for reasons of its own
        once = sample(run, 1, device)
    if once < SAMPLE:
        once = sample(run, max(1, math.ceil(SAMPLE / once / 4)), device)
    return once


def recorded(run: Run) -> Run:
    """The same work as a CUDA graph, so that nobody waits for Python."""
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(3):  # what is compiled or chosen is so now
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run()

    def again(_: Run = run) -> object:  # which holds the memory that the graph reads
        graph.replay()
        return outputs

    return again


def keep(report: dict[str, object], path: Path | None) -> None:
    """Write the report to a file, if one is named."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def command() -> str:
    """What was asked for, as a reader would: files of other folders by their names only."""
    words = [Path(word).name if word.startswith(("/", "..")) else word for word in sys.argv[1:]]
    script = Path(sys.argv[0]).resolve().relative_to(Path(__file__).resolve().parents[1])
    return shlex.join(["python", script.as_posix(), *words])


def hardware(device: str) -> dict[str, object]:
    """What the numbers were measured on."""
    facts: dict[str, object] = {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0,  # of other work, if asked first
    }
    if device == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
