"""Is training bound by the GPU? Tokens per second, share of the GPU's matmul rate and memory, against plain PyTorch.

Three cells, each in a process of its own: GPT-2 (124 M) against a plain GPT-2, compiled; the Transformer (base) against
torch.nn.Transformer, compiled and eager; Transformer-Tiny on ragged batches against an eager loop. regard trains
through its own trainer. Prints a table and, as the last line, everything as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

import regard
from benchmarks.timing import Samples, command, hardware, keep, take_turns
from benchmarks.train.train_contenders import PLACES, RECIPE, Setting
from benchmarks.train.train_gpu_batches import PAIRS, smooth_batches
from benchmarks.train.train_gpu_contenders import (
    GPT_RECIPE,
    Contender,
    base_contenders,
    flops_per_token,
    gpt_contenders,
    tiny_contenders,
)
from benchmarks.train.train_gpu_measures import SHOWN, matmul_rate, one_pass, print_profile, used_by_others, warm_up
from regard.text.batches.batch import Batch
from regard.text.tokenizers.special_tokens import PAD
from regard.training.recipe.schema import TrainingRecipe

GIB = 2**30
NANOGPT = 41.0  # GiB that nanoGPT was measured to take for GPT-2 and these batches, compiled
PROFILED = 10  # steps, at most
CURVE = 60  # steps of which the losses are compared, each on a batch of its own
# Losses of the two GPT-2 at the same step may differ by rounding, which training makes larger.
CURVE_TOLERANCE = {"fp32": 1e-3, "bf16": 0.05}
LOSS_TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}  # of the first loss, relative


@dataclass(frozen=True)
class Cell:
    """What is trained, how long, and what shall come of it. `batches` of a setting are those of an epoch, or pairs."""

    setting: Setting
    quick: Setting
    ratio: float  # to reach, of tokens per second over those of the first peer
    memory: float | None = None  # GiB at most


CELLS = {
    "gpt2": Cell(
        Setting("gpt2", 12, 768, 12, 3072, vocabulary=50_304, batch_tokens=65_536, length=1024, batches=8, dropout=0.0),
        Setting("gpt2", 2, 16, 2, 32, vocabulary=300, batch_tokens=256, length=32, batches=8, dropout=0.0),
        ratio=1.15,
        memory=0.6 * NANOGPT,
    ),
    "base": Cell(
        Setting("base", 6, 512, 8, 2048, vocabulary=16_000, batch_tokens=32_768, length=64, batches=20),
        Setting("base", 1, 16, 2, 32, vocabulary=60, batch_tokens=64, length=8, batches=2),
        ratio=1.7,
    ),
    "tiny": Cell(
        Setting("tiny", 4, 128, 4, 256, 10_000, batch_tokens=4_096, length=13, batches=PAIRS, dropout=0.3),
        Setting("tiny", 1, 16, 2, 32, vocabulary=60, batch_tokens=256, length=13, batches=60, dropout=0.3),
        ratio=5.0,
    ),
}


def make_contenders(args: argparse.Namespace, name: str, device: str, recipe: TrainingRecipe) -> dict[str, Contender]:
    """regard first, then the peer that it is measured by, then others."""
    torch.manual_seed(0)
    setting, compiled = setting_of(args, name), device == "cuda"
    if name == "gpt2":
        return gpt_contenders(setting, device, recipe, compiled=compiled)
    if name == "base":
        return base_contenders(setting, device, recipe, compiled=compiled)
    return tiny_contenders(setting, device, recipe, data=args.data)


def setting_of(args: argparse.Namespace, name: str) -> Setting:
    setting = CELLS[name].quick if args.quick else CELLS[name].setting
    return setting if name == "gpt2" else replace(setting, place=args.dropout)


def recipe_of(args: argparse.Namespace, name: str, device: str) -> TrainingRecipe:
    """What `regard train` would be given: steps are recorded, and those of large models compiled."""
    on_gpu = device == "cuda"
    recipe = replace(
        GPT_RECIPE if name == "gpt2" else RECIPE,
        batch_tokens=setting_of(args, name).batch_tokens,
        precision="bf16" if on_gpu else "fp32",
        compile=on_gpu and name != "tiny",
        capture=on_gpu,
    )
    for assignment in args.set:
        key, _, value = assignment.partition("=")
        cell, _, key = key.rpartition(".")
        if cell in ("", name):
            recipe = replace(recipe, **{key: json.loads(value)})
    return recipe


def measure(args: argparse.Namespace, name: str, device: str) -> dict[str, object]:
    """The cell with speed, memory and verdict."""
    cell, setting, recipe = CELLS[name], setting_of(args, name), recipe_of(args, name, device)
    contenders = make_contenders(args, name, device, recipe)
    ours, peer = (contenders[system] for system in ("regard", "torch"))
    parameters = check_equal(ours, peer, LOSS_TOLERANCE[recipe.precision])
    curve = smooth_batches(setting, device, count=CURVE, fixed=recipe.fixed_shapes) if name == "gpt2" else []
    warm = {system: warm_up(contender, curve) for system, contender in contenders.items()}
    runs = {system: lambda contender=contender: one_pass(contender) for system, contender in contenders.items()}
    samples = take_turns(runs, device=device, rounds=args.rounds or (2 if args.quick else 5), budget=0.0)
    measured = {system: numbers(contenders[system], warm[system], samples, system) for system in contenders}
    learnt = parameters - (setting.length * setting.dim if name == "gpt2" else 0)  # without positions
    result = {
        **asdict(setting),
        "training": {
            key: value for key, value in asdict(recipe).items() if value != getattr(TrainingRecipe, key, None)
        },
        "parameters": parameters,
        "flops_per_token": None if name == "tiny" else flops_per_token(setting, learnt),
        "contenders": measured,
        "ratio": samples.ratio("torch", "regard"),  # of the times, so the other way round of the speeds
        "memory": measured["regard"]["memory"]["taken"] / GIB if device == "cuda" else None,
        "again": samples.again("regard"),
        "rounds": len(samples.seconds["regard"]),
        "curve": compare_curves(warm, recipe.precision) if name == "gpt2" else None,
    }
    if args.profile:
        for system, contender in contenders.items():
            steps = min(PROFILED, measured[system]["steps"])
            print_profile(f"{name}: {system}", lambda contender=contender: one_pass(contender, PROFILED), steps, device)
    return result | {"met": is_met(cell, result)}


def is_met(cell: Cell, result: dict) -> bool:
    light = cell.memory is None or result["memory"] is None or result["memory"] <= cell.memory
    return result["ratio"] >= cell.ratio and light and (result["curve"] is None or result["curve"]["same"])


def check_equal(ours: Contender, peer: Contender, tolerance: float) -> int:
    """The number of parameters; AssertionError unless both have as many and, without dropout, the same first loss."""
    counts = [sum(parameter.numel() for parameter in contender.model.parameters()) for contender in (ours, peer)]
    assert counts[0] == counts[1], f"the models are not of one size: {counts[0]:,} and {counts[1]:,} parameters"
    batch = first_rows(peer.batches()[0], 8)
    ours.model.eval(), peer.model.eval()
    losses = [contender.loss(batch).detach() for contender in (ours, peer)]
    ours.model.train(), peer.model.train()
    torch.testing.assert_close(*losses, rtol=tolerance, atol=0.0, msg=lambda text: f"unequal losses: {text}")
    return counts[0]


def first_rows(batch: Batch, count: int) -> Batch:
    source, labels = None if batch.source is None else batch.source[:count], batch.labels[:count]
    return Batch(batch.ids[:count], source, batch.inputs[:count], labels, int((labels != PAD).sum()))


def numbers(contender: Contender, warm: dict, samples: Samples, name: str) -> dict[str, object]:
    """What is told of a contender."""
    batches = list(contender.batches())
    tokens, cells = sum(batch.tokens for batch in batches), sum(batch.labels.numel() for batch in batches)
    seconds = samples.median(name)
    recorded = getattr(getattr(contender, "loop", None), "captured", None) is not None
    memory = warm["memory"]
    if memory:  # a recorded step allocates nothing: its memory is reserved for it
        memory["taken"] = memory["reserved" if recorded else "allocated"]
    return {
        "tokens_per_second": tokens / seconds,
        "milliseconds": 1e3 * seconds / len(batches),
        "steps": len(batches),
        "padding": 1 - tokens / cells,
        "shapes": len({batch.labels.shape for batch in batches}),
        "recorded": recorded,
        "preparing_seconds": max(0.0, warm["seconds"] - warm["steps"] * seconds / len(batches)),
        "memory": memory,
    }


def compare_curves(warm: dict[str, dict], precision: str) -> dict[str, object]:
    """The losses of the first steps of both, from the same weights on the same batches."""
    ours, theirs = (warm[name]["losses"] for name in ("regard", "torch"))
    apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    return {
        "regard": [round(loss, 4) for loss in ours],
        "torch": [round(loss, 4) for loss in theirs],
        "apart": apart,
        "learnt": theirs[0] - theirs[-1],
        # A curve that stays where it was would be easy to follow.
        "same": apart <= CURVE_TOLERANCE[precision] and theirs[0] - theirs[-1] > 10 * apart,
    }


def in_own_process(name: str, rate: float) -> dict | None:
    """The cell, measured in a process of its own, unless that fails; what it prints is printed here."""
    command = [sys.executable, __file__, *sys.argv[1:], "--alone", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:  # the other cells are measured all the same
        print(f"measuring {name} failed with exit status {done.returncode}")
        return None
    *printed, last = done.stdout.splitlines()
    print("\n".join(printed), end="\n" if printed else "")
    cell = json.loads(last)
    for contender in cell["contenders"].values():
        flops = cell["flops_per_token"]
        contender["share"] = contender["tokens_per_second"] * flops / rate if flops else None
    return cell


def rows(cell: dict) -> list[str]:
    """A line for each contender, and the verdict."""
    lines, ours = [], cell["contenders"]["regard"]["tokens_per_second"]
    for name, contender in cell["contenders"].items():
        share = "-" if contender["share"] is None else f"{contender['share']:.1%}"
        memory, speed = contender["memory"], contender["tokens_per_second"]
        sizes = [f"{memory[key] / GIB:.2f}" if memory else "-" for key in ("allocated", "reserved")]
        lines.append(
            f"{cell['name']:6}{name:12}{speed:>12,.0f}{ours / speed:>8.2f}{contender['milliseconds']:>10.2f}"
            f"{share:>8}{sizes[0]:>10}{sizes[1]:>10}{contender['preparing_seconds']:>10.1f}"
        )
    verdict = f"{'met' if cell['met'] else 'not met'}: ratio {cell['ratio']:.3f}, to reach {CELLS[cell['name']].ratio}"
    if cell["memory"] is not None:
        most = CELLS[cell["name"]].memory
        verdict += f"; memory {cell['memory']:.1f} GiB" + (f", at most {most:.1f}" if most else "")
    if cell["curve"] is not None:
        verdict += f"; losses at most {cell['curve']['apart']:.4f} apart over {len(cell['curve']['torch'])} steps"
        verdict += f", from {cell['curve']['torch'][0]:.3f} to {cell['curve']['torch'][-1]:.3f}"
    return [*lines, f"      {verdict}; again {cell['again']:.3f}"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(CELLS), metavar="CELLS", help=f"some of {','.join(CELLS)}")
    parser.add_argument("--data", type=Path, metavar="DIR", help="Multi30k's folder, for tiny; else sentences like its")
    parser.add_argument(
        "--dropout", choices=PLACES, default="everywhere", help="of base and tiny; everywhere: as nn.Transformer has it"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of regard's [training]: compile=false, or for one cell base.capture=true",
    )
    parser.add_argument("--rounds", type=int, help="samples of each contender (default: 5; quick: 2)")
    parser.add_argument("--profile", action="store_true", help=f"the {SHOWN} kernels that take most time")
    parser.add_argument("--quick", action="store_true", help="toy sizes on the CPU, seconds: does it run?")
    parser.add_argument(
        "--check", action="store_true", help="exit with status 1 when a target is missed or the machine is busy"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    parser.add_argument("--alone", metavar="CELL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.only = args.only.split(",")
    if unknown := set(args.only) - set(CELLS):
        parser.error(f"--only {','.join(sorted(unknown))}: the cells are {','.join(CELLS)}")
    if not args.quick and not torch.cuda.is_available():
        print("torch sees no CUDA device here, so this is --quick: toy sizes, which prove nothing")
        args.quick = True
    return args


def main() -> int:
    args = arguments()
    device = "cpu" if args.quick else "cuda"
    if args.alone:
        print(json.dumps(measure(args, args.alone, device)))
        return 0
    report = {
        "benchmark": "train_gpu",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware(device) | {"gpu_used": used_by_others(device)},
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__, "regard": regard.__version__},
        "matmul_rate": matmul_rate(device),
    }
    print(report["hardware"], report["versions"], sep="\n")
    print(f"matmul {report['matmul_rate'] / 1e12:,.1f} TFLOP/s\n")
    head = "cell  contender       tokens/s   ratio   ms/step   share   GiB max  reserved  prepare s"
    cells = []
    for name in args.only:
        if (cell := in_own_process(name, report["matmul_rate"])) is not None:
            print("" if cells and not args.profile else head, *rows(cell), sep="\n", flush=True)
            cells.append(cell)
            keep(report | {"cells": cells}, args.out)  # whatever becomes of the others
    busy = report["hardware"]["load"] > report["hardware"]["cores"] / 4 or report["hardware"]["gpu_used"] > 2
    if busy:
        print("\nThe machine was busy with other work when this began: these numbers prove nothing.")
    failed = len(args.only) - len(cells)
    met = not failed and all(cell["met"] for cell in cells)
    report |= {"cells": cells, "summary": {"met": met, "failed": failed, "busy": busy}}
    keep(report, args.out)
    print(json.dumps(report))
    return 1 if failed or (args.check and (busy or not met)) else 0


if __name__ == "__main__":
    sys.exit(main())
