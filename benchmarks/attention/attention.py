"""Is regard as fast as what it stands on? `attend` against bare SDPA, `MultiHeadAttention` against its rivals.

Every contender does equal work: same inputs, same weights, results compared before the clock starts. Each runs in the
fastest form it has. Targets, cell by cell:
    attend      at most 3% or 5 us (the larger) behind F.scaled_dot_product_attention
    multihead   at most 3% behind the better of torch.nn.MultiheadAttention and x_transformers.Attention, and
                ahead of both in most cells
Prints a table and, as the last line, everything as one JSON object. See benchmarks/README.md.

    B batch   H heads   m queries   n keys   d head width   D = H · d model width
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

import regard
from benchmarks.attention.attention_contenders import (
    HAS_X_TRANSFORMERS,
    UNEQUAL,
    Cell,
    Forms,
    H,
    Setting,
    attend_runs,
    d,
    multihead_runs,
)
from benchmarks.timing import Samples, command, fastest, hardware, keep, take_turns

SIZES, QUICK_SIZES = (128, 256, 512, 1024, 2048, 4096), (16, 32)
SHARE, MICROSECONDS = 0.03, 5e-6  # how far behind still counts as level
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 1e-2}


def all_cells(sizes: tuple[int, ...]) -> Iterator[Cell]:
    for subject in ("attend", "multihead"):
        for work, masks in (("forward", 3), ("backward", 3), ("step", 2)):
            for mask in ("causal", "padding", "none")[:masks]:  # without padding, a step sees all keys either way
                for n in sizes:
                    yield Cell(subject, work, mask, n)


def check_equal(cell: Cell, forms: Forms, tolerance: float) -> None:
    """Raise AssertionError unless all contenders give the same outputs and, after a backward, input gradients."""
    results = {
        f"{name} {form}".strip(): as_tuple(run()) for name, by_form in forms.items() for form, run in by_form.items()
    }
    first, *others = results
    for name in others:
        for ours, theirs in zip(results[first][:2], results[name][:2], strict=True):
            try:
                torch.testing.assert_close(theirs, ours, atol=tolerance, rtol=tolerance)
            except AssertionError as error:
                raise AssertionError(f"{cell}: {first} and {name} do not compute the same thing: {error}") from error


def as_tuple(result: object) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def measure(cell: Cell, setting: Setting, *, rounds: int, budget: float) -> dict[str, object]:
    """The cell with its times, ratios and verdict."""
    with torch.set_grad_enabled(cell.work == "backward"):
        forms = (attend_runs if cell.subject == "attend" else multihead_runs)(cell, setting)
        check_equal(cell, forms, TOLERANCE[setting.dtype])
        best = {name: fastest(by_form, device=setting.device) for name, by_form in forms.items()}
        runs = {name: forms[name][form] for name, form in best.items()}
        samples = take_turns(runs, device=setting.device, rounds=rounds, budget=budget)
    rivals = {name: samples.ratio("regard", name) for name in forms if name != "regard"}
    return {
        **asdict(cell),
        "m": cell.m,
        "seconds": {name: samples.median(name) for name in runs},
        "forms": {name: form for name, form in best.items() if form},
        "ratios": rivals,
        "again": samples.again("regard"),
        "rounds": len(samples.seconds["regard"]),
        **verdict(cell, samples, list(rivals)),
    }


def verdict(cell: Cell, samples: Samples, rivals: list[str]) -> dict[str, object]:
    """Who the cell is judged against, and whether we are "behind", "level" or "ahead"."""
    rivals = [name for name in rivals if name != UNEQUAL]
    if cell.subject == "multihead" and cell.work == "step":
        rivals = [name for name in rivals if name != "torch"]  # it has no cache, so beating it here proves nothing
    if not rivals:
        return {"against": None, "ratio": None, "verdict": "not judged"}
    best = min(rivals, key=samples.median)
    ratio, excess = samples.ratio("regard", best), samples.excess("regard", best)
    allowed = SHARE * samples.median(best)
    if cell.subject == "attend":
        allowed = max(allowed, MICROSECONDS)
    word = "behind" if excess > allowed else "ahead" if ratio < 1 else "level"
    return {"against": best, "ratio": ratio, "excess": excess, "verdict": word}


def summary(cells: list[dict]) -> dict[str, object]:
    """Both targets, and how noisy the run was."""
    summaries: dict[str, object] = {}
    for subject in ("attend", "multihead"):
        judged = [cell for cell in cells if cell["subject"] == subject and cell["ratio"] is not None]
        counts = {word: sum(cell["verdict"] == word for cell in judged) for word in ("behind", "level", "ahead")}
        most = subject == "attend" or 2 * counts["ahead"] > len(judged)
        summaries[subject] = {
            "cells": len(judged),
            **counts,
            "worst_ratio": max((cell["ratio"] for cell in judged), default=None),
            "met": bool(judged) and counts["behind"] == 0 and most,
        }
    noise = [abs(cell["again"] - 1) for cell in cells]
    summaries["noise"] = {"median": median(noise), "worst": max(noise)}
    return summaries


def row(cell: dict) -> str:
    times = "  ".join(
        f"{name} {seconds * 1e6:.1f}"
        + (f" ({cell['forms'][name]})" if name == "torch" and name in cell["forms"] else "")
        for name, seconds in cell["seconds"].items()
    )
    ratio = "     -" if cell["ratio"] is None else f"{cell['ratio']:6.3f}"
    return (
        f"{cell['subject']:9} {cell['work']:8} {cell['mask']:7} {cell['m']:5} {cell['n']:5} {ratio} "
        f"{cell['again']:6.3f}  {cell['verdict']:10} {times}"
    )


def versions() -> dict[str, str | None]:
    try:
        x_transformers = version("x-transformers") if HAS_X_TRANSFORMERS else None
    except PackageNotFoundError:  # a bare folder on the path
        x_transformers = "unknown"
    return {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "regard": regard.__version__,
        "x-transformers": x_transformers,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: CUDA if there is one")
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16", "float16"), default="auto")
    parser.add_argument("--only", choices=("attend", "multihead"), help="one half of the cells")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help=f"default: {' '.join(map(str, SIZES))}")
    parser.add_argument("--batch", type=int, metavar="B", help="default: 1 on the CPU, 8 on CUDA")
    parser.add_argument("--rounds", type=int, help="samples of each contender, at least (default: 4; quick: 2)")
    parser.add_argument("--budget", type=float, help="seconds a cell goes on sampling (default: 1.2; quick: 0)")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds: does it run?")
    parser.add_argument(
        "--check", action="store_true", help="exit with status 1 when a target is missed or the machine is busy"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here; use cpu or auto")
    return args


def main() -> int:
    args = arguments()
    device = ("cuda" if torch.cuda.is_available() else "cpu") if args.device == "auto" else args.device
    default = torch.bfloat16 if device == "cuda" else torch.float32
    dtype = default if args.dtype == "auto" else getattr(torch, args.dtype)
    setting = Setting(device, dtype, args.batch or (8 if device == "cuda" else 1))
    sizes = tuple(args.sizes or (QUICK_SIZES if args.quick else SIZES))
    rounds = args.rounds or (2 if args.quick else 4)
    budget = args.budget if args.budget is not None else 0.0 if args.quick else 1.2

    torch.manual_seed(0)
    report = {
        "benchmark": "attention",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware(device),
        "versions": versions(),
        "setting": {"device": device, "dtype": str(dtype).removeprefix("torch."), "B": setting.B, "H": H, "d": d},
    }
    print(report["hardware"], report["versions"], report["setting"], sep="\n")
    if not HAS_X_TRANSFORMERS:
        print("x-transformers is not installed: measuring without it, and the steps of multihead are not judged")
    print("\nsubject   work     mask        m     n  ratio  again  verdict    microseconds a call")
    cells = []
    for cell in all_cells(sizes):
        if args.only in (None, cell.subject):
            cells.append(measure(cell, setting, rounds=rounds, budget=budget))
            print(row(cells[-1]), flush=True)
    report |= {"cells": cells, "summary": summary(cells)}
    if busy := report["hardware"]["load"] > report["hardware"]["cores"] / 4:
        # Threads that wait for a core wait in whole time slices, which hide any difference between contenders.
        print("\nThe machine was busy with other work when this began: these numbers prove nothing.")
    report["summary"]["busy"] = busy
    print()
    for name in ("attend", "multihead", "noise"):
        target = report["summary"][name]
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in target.items()))
    keep(report, args.out)
    print(json.dumps(report))
    met = all(report["summary"][subject]["met"] for subject in ("attend", "multihead") if args.only in (None, subject))
    return 1 if args.check and (busy or not met) else 0


if __name__ == "__main__":
    sys.exit(main())
