"""Is regard's trainer ahead of torch.nn.Transformer in a plain loop? Tokens per second and peak memory, in one run.

Both train the same model from the same weights on the same batches, in fp32 on the CPU and with bf16 autocast on
CUDA; their losses are compared before the clock starts. Target: in every cell more tokens per second, and no more
memory. Prints a table and, as the last line, everything as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

import regard
from benchmarks.timing import command, hardware, keep, take_turns
from benchmarks.train.train_contenders import CONTENDERS, PLACES, Ours, Plain, Setting, copy_weights, make_batches

SETTINGS = (
    Setting("demo", 2, 128, 4, 512, vocabulary=1_500, batch_tokens=2_048, length=12, batches=8),
    Setting("small", 3, 256, 4, 1024, vocabulary=8_000, batch_tokens=4_096, length=22, batches=4),
    Setting("base", 6, 512, 8, 2048, vocabulary=16_000, batch_tokens=2_048, length=22, batches=2),
)
QUICK = Setting("quick", 1, 16, 2, 32, vocabulary=60, batch_tokens=256, length=8, batches=2)
CUDA_BATCHES = {"base": 25_000}  # tokens, where a GPU takes more than a CPU
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}  # of the loss, relative
MB = 2**20


def chosen_settings(names: list[str], places: list[str], device: str) -> list[Setting]:
    settings = [setting for setting in (*SETTINGS, QUICK) if setting.name in names]
    if device == "cuda":
        settings = [
            replace(setting, batch_tokens=CUDA_BATCHES.get(setting.name, setting.batch_tokens), batches=8)
            for setting in settings
        ]
    return [replace(setting, place=place) for setting in settings for place in places]


def measure(setting: Setting, device: str, precision: str, *, rounds: int, budget: float) -> dict[str, object]:
    """The setting with its tokens per second, memory and verdict."""
    memory = {name: memory_alone(setting, name, device, precision) for name in CONTENDERS}
    torch.manual_seed(0)
    batches = make_batches(setting, device)
    tokens, cells = sum(batch.tokens for batch in batches), sum(batch.labels.numel() for batch in batches)
    ours, plain = Ours(setting, device, precision), Plain(setting, device, precision)
    copy_weights(ours.model, plain.model)
    parameters = check_equal(ours, plain, batches, TOLERANCE[precision])

    def run(contender: Ours | Plain) -> None:
        for batch in batches:
            contender.step(batch)

    runs = {"regard": lambda: run(ours), "torch": lambda: run(plain)}
    samples = take_turns(runs, device=device, rounds=rounds, budget=budget)
    ratio = samples.ratio("torch", "regard")  # of the times, so the other way round of the speeds
    known = all(memory.values())
    memory_ratio = memory["regard"] / memory["torch"] if known else None
    return {
        **asdict(setting),
        "parameters": parameters,
        "tokens": tokens,
        "padding": 1 - tokens / cells,
        "tokens_per_second": {name: tokens / samples.median(name) for name in runs},
        "ratio": ratio,
        "again": samples.again("regard"),
        "rounds": len(samples.seconds["regard"]),
        "memory": memory,
        "memory_ratio": memory_ratio,
        "ahead": is_ahead(ratio, memory_ratio),
    }


def is_ahead(ratio: float, memory_ratio: float | None) -> bool:
    return ratio > 1 and (memory_ratio is None or memory_ratio <= 1)


def check_equal(ours: Ours, plain: Plain, batches: list, tolerance: float) -> int:
    """The number of parameters; AssertionError unless both have as many and, without dropout, the same losses."""
    counts = [sum(parameter.numel() for parameter in contender.model.parameters()) for contender in (ours, plain)]
    assert counts[0] == counts[1], f"the models are not of one size: {counts[0]:,} and {counts[1]:,} parameters"
    ours.model.eval(), plain.model.eval()
    for batch in batches:
        mine, theirs = (contender.loss(batch).detach() for contender in (ours, plain))
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=0.0, msg=lambda text: f"unequal losses: {text}")
    ours.model.train(), plain.model.train()
    return counts[0]


def memory_alone(setting: Setting, name: str, device: str, precision: str) -> int | None:
    """Bytes that training takes at its peak, in a process of its own; None where that cannot be told."""
    command = [sys.executable, __file__, "--device", device, "--alone", name, json.dumps([asdict(setting), precision])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {name} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def own_memory(setting: Setting, name: str, device: str, precision: str) -> int | None:
    """What `memory_alone` asks its process for: everything above what the process holds once all is imported."""
    batches = make_batches(setting, device)
    before = held_memory(device)
    contender = CONTENDERS[name](setting, device, precision)
    for batch in batches:
        contender.step(batch)
    after = peak_memory(device)
    return None if before is None or after is None else after - before


def held_memory(device: str) -> int | None:
    return torch.cuda.memory_allocated() if device == "cuda" else from_status("VmRSS")


def peak_memory(device: str) -> int | None:
    return torch.cuda.max_memory_allocated() if device == "cuda" else from_status("VmHWM")


def from_status(key: str) -> int | None:
    """A size that Linux knows of this process. (getrusage's peak will not do: it is inherited from the parent.)"""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith(key))


def summary(cells: list[dict]) -> dict[str, object]:
    return {
        "cells": len(cells),
        "faster": sum(cell["ratio"] > 1 for cell in cells),
        "worst_ratio": min(cell["ratio"] for cell in cells),
        "worst_memory_ratio": max((cell["memory_ratio"] for cell in cells if cell["memory_ratio"]), default=None),
        "noise": max(abs(cell["again"] - 1) for cell in cells),
        "met": all(cell["ahead"] for cell in cells),
    }


def row(cell: dict) -> str:
    speeds = "".join(f"{cell['tokens_per_second'][name]:>10,.0f}" for name in CONTENDERS)
    memory = "".join(f"{'-' if size is None else f'{size / MB:,.0f}':>8}" for size in cell["memory"].values())
    share = "-" if cell["memory_ratio"] is None else f"{cell['memory_ratio']:.3f}"
    return (
        f"{cell['name']:6} {cell['place']:11}{cell['parameters']:>11,}{speeds}{cell['ratio']:>8.3f}"
        f"{cell['again']:>7.3f}{memory}{share:>8}  {'ahead' if cell['ahead'] else 'not ahead'}"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [setting.name for setting in SETTINGS]
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: CUDA if there is one")
    parser.add_argument("--sizes", nargs="+", choices=names, default=names, help="default: all")
    parser.add_argument(
        "--dropout", choices=PLACES, nargs="+", default=list(PLACES), help="where it falls; default: both"
    )
    parser.add_argument("--rounds", type=int, help="samples of each contender, at least (default: 4; quick: 2)")
    parser.add_argument("--budget", type=float, help="seconds a cell goes on sampling (default: 20; quick: 0)")
    parser.add_argument("--quick", action="store_true", help="a toy size, few rounds: does it run?")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when not ahead or the machine is busy")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    parser.add_argument("--alone", nargs=2, metavar=("NAME", "SETTING"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here; use cpu or auto")
    return args


def main() -> int:
    args = arguments()
    device = ("cuda" if torch.cuda.is_available() else "cpu") if args.device == "auto" else args.device
    if args.alone:
        setting, precision = json.loads(args.alone[1])
        print(json.dumps(own_memory(Setting(**setting), args.alone[0], device, precision)))
        return 0
    precision = "bf16" if device == "cuda" else "fp32"
    settings = chosen_settings(["quick"] if args.quick else args.sizes, args.dropout, device)
    rounds = args.rounds or (2 if args.quick else 4)
    budget = args.budget if args.budget is not None else 0.0 if args.quick else 20.0

    report = {
        "benchmark": "train",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware(device),
        "versions": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "regard": regard.__version__,
        },
        "setting": {"device": device, "precision": precision},
    }
    print(report["hardware"], report["versions"], report["setting"], sep="\n")
    print(f"\n{'':29}{'target tokens/s':>20}{'':15}{'peak MB':>16}")
    print("size   dropout     parameters    regard     torch   ratio  again  regard   torch   ratio")
    cells = []
    for setting in settings:
        cells.append(measure(setting, device, precision, rounds=rounds, budget=budget))
        print(row(cells[-1]), flush=True)
    report |= {"cells": cells, "summary": summary(cells)}
    if busy := report["hardware"]["load"] > report["hardware"]["cores"] / 4:
        print("\nThe machine was busy with other work when this began: these numbers prove nothing.")
    report["summary"]["busy"] = busy
    print("\n" + ", ".join(f"{key} {value}" for key, value in report["summary"].items()))
    keep(report, args.out)
    print(json.dumps(report))
    return 1 if args.check and (busy or not report["summary"]["met"]) else 0


if __name__ == "__main__":
    sys.exit(main())
