"""From which length on are random features faster than exact attention? And is anybody's linear attention faster?

Causal attention, features made from queries and keys included, against each backend of SDPA by itself, flash-linear-
attention and performer-pytorch. On CUDA 65,536 tokens in all, 16 heads of width 64, bfloat16; on the CPU one text, 4
heads, float32. Targets, with 128 features:
    CUDA   faster than the best SDPA at L = 2,048 forward and at 4,096 forward and backward, 20 times as fast forward at
           65,536; at least 25% of what reading q, k, v and writing the output once would take (the byte floor), for
           calls from Python: a few after a pause, and many in a row, as the layers of a model make them; ahead of the
           others
    CPU    faster than SDPA at L = 2,048, 10 times as fast at 32,768
Prints a table and, as the last line, everything as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from torch import Tensor

import regard
from benchmarks.attention.random_features_contenders import Cell, contenders, d, timed
from benchmarks.timing import Run, command, hardware, keep, recorded, take_turns

LENGTHS = {"cuda": (512, 1024, 2048, 4096, 16384, 65536), "cpu": (512, 1024, 2048, 4096, 32768)}
TOKENS, HEADS = 65536, {"cuda": 16, "cpu": 4}
LONGEST_BACKWARD = {"cuda": 65536, "cpu": 4096}
FLOOR = 4 * d * 2  # bytes for each token and head: q, k, v and y in bfloat16
OURS, SHARE = "regard 128", 0.25
GRAPH = f"{OURS}, graph"  # the same call as a CUDA graph: what it takes without Python
IN_A_ROW = f"{OURS}, in a row"  # many calls from Python; a sample of OURS has a few, and begins with an idle GPU
MANY = 50
SHAPES = [(chunk, warps, stages) for chunk in (64, 128) for warps in (4, 8) for stages in (1, 2, 3)]  # to be tried
SAME = ("regard 128", "chunked 128", "fla 128")  # they compute the same thing


def all_cells(device: str, lengths: tuple[int, ...], works: tuple[str, ...]) -> Iterator[Cell]:
    for work in works:
        for L in lengths:
            if work == "forward" or LONGEST_BACKWARD[device] >= L:
                yield Cell(work, L, max(1, TOKENS // L) if device == "cuda" else 1, HEADS[device], device)


def prepare(
    cell: Cell, counts: list[int], leave_out: list[str], *, record: bool
) -> tuple[dict[str, Run], dict[str, str]]:
    """What runs, each tried twice, ours with these numbers of features; and of what does not the reason."""
    runs: dict[str, Run] = {}
    reasons: dict[str, str] = {}
    inputs, outputs = cell.inputs(), {}
    for name, make in contenders(cell, counts):
        if name.split()[0] in leave_out:
            continue
        try:
            run = timed(cell, make(), inputs)
            first = run()
            outputs[name] = (first if isinstance(first, Tensor) else first[0]).detach()
            del first
            run()
            runs[name] = recorded(run) if record else run
            if name == OURS and cell.device == "cuda" and cell.work == "forward" and not record:
                runs[GRAPH] = recorded(run)
                runs[IN_A_ROW] = in_a_row(run)
        except Exception as error:  # whatever other people's code does: it is reported, and the others are measured
            reasons[name] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
            if name == OURS:
                raise
        if cell.device == "cuda":
            torch.cuda.empty_cache()
    check_same({name: y for name, y in outputs.items() if name in SAME})
    return runs, reasons


def in_a_row(run: Run) -> Run:
    def many() -> object:
        for _ in range(MANY - 1):
            run()
        return run()

    return many


def check_same(outputs: dict[str, Tensor]) -> None:
    """Raise AssertionError unless those who have the same features have the same outputs, half precision aside."""
    wanted = outputs[OURS].float()
    for name, y in outputs.items():
        off = ((y.float() - wanted).square().mean() / wanted.square().mean()).sqrt().item()
        if not off < 0.03:
            raise AssertionError(f"{OURS} and {name} do not compute the same thing: they differ by {off:.1%}")


def measure(cell: Cell, *, rounds: int, counts: list[int], leave_out: list[str], record: bool) -> dict[str, object]:
    """The cell with its times, and how many times as fast we are as the best SDPA and as each other."""
    runs, reasons = prepare(cell, counts, leave_out, record=record)
    samples = take_turns(runs, device=cell.device, rounds=rounds, budget=0.0)
    if IN_A_ROW in runs:
        samples.seconds[IN_A_ROW] = [seconds / MANY for seconds in samples.seconds[IN_A_ROW]]
    exact = [name for name in runs if name.startswith("sdpa")]
    best = min(exact, key=samples.median) if exact else None
    return {
        "work": cell.work,
        "L": cell.L,
        "B": cell.B,
        "H": cell.H,
        "seconds": {name: samples.median(name) for name in runs},
        "does_not_run": reasons,
        "best_sdpa": best,
        "times_as_fast": {name: samples.ratio(name, OURS) for name in runs if name != OURS},
        "again": samples.again(OURS),
    }


def floor_share(cell: dict, name: str, rate: float) -> float:
    """The time of the byte floor over that of a contender."""
    return cell["B"] * cell["L"] * cell["H"] * FLOOR / rate / cell["seconds"][name]


def try_shapes(L: int, rounds: int) -> list[dict[str, object]]:
    """Times of our forward call as a graph, with other launch configurations of its two large kernels."""
    from regard.kernels.linear import launch_triton  # Triton is for Linux

    cell, rows = Cell("forward", L, max(1, TOKENS // L), HEADS["cuda"], "cuda"), []
    (_, make), inputs = next(iter(contenders(cell, [128]))), cell.inputs()
    usual = {"FORWARD": launch_triton.FORWARD, "SUMS": launch_triton.SUMS}
    for name in usual:
        for shape in itertools.starmap(launch_triton.LaunchShape, SHAPES):
            setattr(launch_triton, name, shape)
            try:
                run = recorded(timed(cell, make(), inputs))
                samples = take_turns({"run": run}, device="cuda", rounds=rounds, budget=0.0)
                rows.append({"kernel": name, **shape._asdict(), "seconds": samples.median("run")})
                print(f"{L:6} {name:8} {shape}: {1e3 * samples.median('run'):.3f} ms", flush=True)
            except Exception as error:  # too much shared memory, for one
                print(f"{L:6} {name:8} {shape}: {type(error).__name__}", flush=True)
            setattr(launch_triton, name, usual[name])
    return rows


def copy_rate(device: str) -> float:
    """Bytes a second that a plain copy reads and writes."""
    x = torch.empty(2**30 if device == "cuda" else 2**26, dtype=torch.uint8, device=device)
    y = torch.empty_like(x)
    samples = take_turns({"copy": lambda: y.copy_(x)}, device=device, rounds=5, budget=0.0)
    return 2 * x.numel() / samples.median("copy")


def summary(cells: list[dict], device: str, rate: float) -> dict[str, object]:
    """Each target that was measured, and whether it is met."""
    forward = {cell["L"]: cell for cell in cells if cell["work"] == "forward"}
    backward = {cell["L"]: cell for cell in cells if cell["work"] == "backward"}

    def against_sdpa(by_length: dict[int, dict], L: int) -> float | None:
        cell = by_length.get(L)
        return None if cell is None or cell["best_sdpa"] is None else cell["times_as_fast"][cell["best_sdpa"]]

    targets = [("forward at 2048, times SDPA", against_sdpa(forward, 2048), 1.0)]
    if device == "cuda":
        shares = [floor_share(cell, OURS, rate) for cell in forward.values()]
        in_a_row = [floor_share(cell, IN_A_ROW, rate) for cell in forward.values() if IN_A_ROW in cell["seconds"]]
        others = [
            ratio
            for cell in cells
            for name, ratio in cell["times_as_fast"].items()
            if name.startswith(("fla", "performer"))
        ]
        targets += [
            ("forward and backward at 4096, times SDPA", against_sdpa(backward, 4096), 1.0),
            ("forward at 65536, times SDPA", against_sdpa(forward, 65536), 20.0),
            ("share of the byte floor, least", min(shares, default=None), SHARE),
            ("share of the byte floor in a row, least", min(in_a_row, default=None), SHARE),
            ("times the others, least", min(others, default=None), 1.0),
        ]
    else:
        targets.append(("forward at 32768, times SDPA", against_sdpa(forward, 32768), 10.0))
    return {name: {"found": got, "target": want, "met": got > want} for name, got, want in targets if got is not None}


def row(cell: dict, rate: float) -> str:
    times = "  ".join(f"{name} {seconds * 1e3:.3f}" for name, seconds in cell["seconds"].items())
    best = cell["best_sdpa"]
    ratio = "     -" if best is None else f"{cell['times_as_fast'][best]:6.2f}"
    shares = {name: floor_share(cell, name, rate) for name in (OURS, IN_A_ROW, GRAPH) if name in cell["seconds"]}
    floor = (
        "  byte floor: " + ", ".join(f"{name} {share:.1%}" for name, share in shares.items()) if GRAPH in shares else ""
    )
    return f"{cell['work']:8} {cell['L']:6} {cell['B']:4} {ratio}  {times}{floor}"


def versions() -> dict[str, str | None]:
    versions_used: dict[str, str | None] = {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "regard": regard.__version__,
    }
    for name in ("triton", "fla-core", "performer-pytorch"):
        try:
            versions_used[name] = version(name)
        except PackageNotFoundError:
            versions_used[name] = None
    return versions_used


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: CUDA if there is one")
    parser.add_argument("--lengths", type=int, nargs="+", metavar="L", help="default: those of the targets")
    parser.add_argument(
        "--features", type=int, nargs="+", default=[64, 128, 256], metavar="F", help="how many of ours; 128 among them"
    )
    parser.add_argument("--rounds", type=int, default=5, help="samples of each contender (default: 5)")
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME", help="sdpa, fla, performer or chunked")
    parser.add_argument(
        "--recorded", action="store_true", help="forward as CUDA graphs: the kernels' time, and none of Python's"
    )
    parser.add_argument(
        "--shapes", action="store_true", help="instead: our forward call on CUDA with other launch configurations"
    )
    parser.add_argument("--limit", type=float, default=150.0, help="seconds after which no cell is begun (150)")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a target is missed")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    args = parser.parse_args()
    if 128 not in args.features:
        parser.error("--features: 128 must be among them, for the targets are about it")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here; use cpu or auto")
    if (args.recorded or args.shapes) and (args.device == "cpu" or not torch.cuda.is_available()):
        parser.error("--recorded and --shapes: only a CUDA device records calls")
    return args


def main() -> int:
    args = arguments()
    start = time.perf_counter()
    device = ("cuda" if torch.cuda.is_available() else "cpu") if args.device == "auto" else args.device
    report: dict[str, object] = {
        "benchmark": "random_features",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware(device),
        "versions": versions(),
        "setting": {"device": device, "H": HEADS[device], "d": d, "causal": True},
    }
    rate = copy_rate(device)
    report["copy_bytes_a_second"] = rate
    print(report["hardware"], report["versions"], report["setting"], f"a copy: {rate / 1e12:.2f} TB/s", sep="\n")
    print("\nwork          L    B  times  milliseconds a call; times: as fast as the best SDPA with 128 features")
    if args.shapes:
        report["shapes"] = [shape for L in args.lengths or (4096, 65536) for shape in try_shapes(L, args.rounds)]
        keep(report, args.out)
        print(json.dumps(report))
        return 0
    cells, reasons = [], {}
    works = ("forward",) if args.recorded else ("forward", "backward")
    for cell in all_cells(device, tuple(args.lengths or LENGTHS[device]), works):
        if time.perf_counter() - start > args.limit:
            print(f"{cell.work:8} {cell.L:6}: not begun, {args.limit:.0f} s are over")
            continue
        cells.append(
            measure(cell, rounds=args.rounds, counts=args.features, leave_out=args.without, record=args.recorded)
        )
        print(row(cells[-1], rate), flush=True)
        keep(report | {"cells": cells}, args.out)  # whatever becomes of the others
        for name, reason in cells[-1]["does_not_run"].items():
            if reasons.setdefault(name, reason) is reason:
                print(f"    {name} does not run: {reason}", flush=True)
    targets = summary(cells, device, rate)
    report |= {"cells": cells, "summary": targets, "seconds": round(time.perf_counter() - start, 1)}
    print()
    for name, target in targets.items():
        print(f"{name}: {target['found']:.2f}, wanted {target['target']:g}: {'met' if target['met'] else 'MISSED'}")
    keep(report, args.out)
    print(json.dumps(report))
    return 1 if args.check and not (targets and all(target["met"] for target in targets.values())) else 0


if __name__ == "__main__":
    sys.exit(main())
