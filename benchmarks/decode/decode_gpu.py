"""How many times faster than transformers does regard decode on a GPU? Tokens per second in bf16, in one run.

Both have the same weights, those of a Transformer (base) drawn from a seed, and write exactly 32 tokens for each source
of 21. In fp32 their texts are compared before the clock starts. Targets, by batch and beam: 20 times at (1, 1) and
(1, 5), 8 times at (128, 1) and (128, 5), 3 times at (1024, 1). The floor is the time to read the decoder's weights once
a step at the speed that the GPU was measured to read at; it is a floor where there are few rows.
Prints a table and, as the last line, everything as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

import regard
from benchmarks.decode.decode_cpu import package_version, pair
from benchmarks.decode.decode_peers import Contender, Ours, Setting, Transformers, make_model, make_sources
from benchmarks.decode.decode_same import compare
from benchmarks.timing import command, hardware, keep, sample, take_turns
from regard.decoding.benchmark import read_speed, step_bytes

BASE = Setting("base", layers=6, dim=512, heads=8, hidden=2048, vocabulary=16_000, length=32)
QUICK = Setting("quick", layers=1, dim=16, heads=2, hidden=32, vocabulary=60, source=5, length=4)
TARGETS = {(1, 1): 20.0, (1, 5): 20.0, (128, 1): 8.0, (128, 5): 8.0, (1024, 1): 3.0}  # by batch and beam
QUICK_CELLS = ((1, 1), (2, 2))


def make_contenders(setting: Setting, device: str, dtype: torch.dtype) -> dict[str, Contender]:
    """regard and transformers with the same weights."""
    model = make_model(setting)
    peer = Transformers(model, setting)
    peer.model.to(device, dtype)
    return {"regard": Ours(deepcopy(model).to(device, dtype), setting), "transformers": peer}


def same_texts(setting: Setting, device: str, count: int) -> dict[str, object]:
    """What fp32 writes: compared with transformers, and with regard's own modules, one operation after another."""
    torch.backends.cuda.matmul.allow_tf32 = False
    contenders = make_contenders(setting, device, torch.float32)
    ours, peer = contenders["regard"], contenders["transformers"]
    assert isinstance(ours, Ours)
    sources = make_sources(setting, count)
    comparison = compare(ours, {"transformers": peer}, sources, beams=(1, 5))
    captured = {beam: ours.generate(sources, beam) for beam in (1, 5)}
    with uncaptured():
        comparison["like_modules"] = {
            beam: sum(map(list.__eq__, texts, ours.generate(sources, beam))) / len(texts)
            for beam, texts in captured.items()
        }
    return comparison


@contextmanager
def uncaptured() -> Iterator[None]:
    """Steps one operation after another inside the block."""
    os.environ["REGARD_GRAPHS"] = "0"
    try:
        yield
    finally:
        os.environ["REGARD_GRAPHS"] = "1"


def measure(contenders: dict[str, Contender], setting: Setting, cell: tuple[int, int], **options: object) -> dict:
    """One cell: tokens per second of both, and the verdict."""
    batch, beam = cell
    sources = make_sources(setting, batch)
    runs = {name: partial(contender.generate, sources, beam) for name, contender in contenders.items()}
    device = str(options["device"])
    first = sample(runs["regard"], 1, "cpu")  # with the recording of this shape
    samples = take_turns(runs, **options)
    ratio, target = samples.ratio("transformers", "regard"), TARGETS.get(cell)
    ours = contenders["regard"]
    assert isinstance(ours, Ours)
    floor = step_bytes(ours.model) / read_speed(2**30 if device == "cuda" else 2**24, torch.device(device))
    step = samples.median("regard") / setting.length
    return {
        "batch": batch,
        "beam": beam,
        "tokens_per_second": {name: batch * setting.length / samples.median(name) for name in contenders},
        "seconds": samples.seconds,
        "first_seconds": first,
        "ratio": ratio,
        "target": target,
        "met": target is None or ratio >= target,
        "again": samples.again("regard"),
        "microseconds_a_step": 1e6 * step,  # with the encoder's share
        "floor_microseconds": 1e6 * floor,
        "share_of_floor": floor / step,
    }


def row(cell: dict) -> str:
    speeds = "".join(f"{speed:>14,.0f}" for speed in cell["tokens_per_second"].values())
    target = "" if cell["target"] is None else f" of {cell['target']:.0f}, {'met' if cell['met'] else 'not met'}"
    step = f"{cell['microseconds_a_step']:>10,.0f}{cell['share_of_floor']:>9.1%}{cell['first_seconds']:>9.2f}"
    return f"{cell['batch']:>5}{cell['beam']:>5}{speeds}{step}   {cell['ratio']:.1f}{target}; again {cell['again']:.2f}"


def tell_texts(texts: dict) -> None:
    print(f"\n{texts['sources']} sources in fp32, beams {texts['beams']}: {len(texts['differences'])} texts differ")
    for difference in texts["differences"]:
        where = (
            f"{difference['peer']}, beam {difference['beam']}, source {difference['source']}, step {difference['step']}"
        )
        print(f"  {where}: {difference['margin']:.1e}, {'a tie' if difference['tie'] else 'NOT A TIE'}")
    print(f"texts that are those of the modules, by beam: {texts['like_modules']}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    shown = " ".join(f"{batch},{beam}" for batch, beam in TARGETS)
    parser.add_argument("--cells", type=pair, nargs="+", metavar="BATCH,BEAM", help=f"default: {shown}")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each (default: 5)")
    parser.add_argument("--sources", type=int, default=64, help="how many are written by all and compared")
    parser.add_argument("--quick", action="store_true", help="a toy size on the CPU: does it run?")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a target is missed")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    args = parser.parse_args()
    if not args.quick and not torch.cuda.is_available():
        print("torch sees no CUDA device here, so this is --quick: a toy size, which proves nothing")
        args.quick = True
    return args


def main() -> int:
    args = arguments()
    os.environ["REGARD_GRAPHS"] = "1"
    device, setting = ("cpu", QUICK) if args.quick else ("cuda", BASE)
    report = {
        "benchmark": "decode_gpu",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware(device),
        "versions": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "regard": regard.__version__,
            "transformers": package_version("transformers"),
        },
        "setting": asdict(setting),
    }
    print(report["hardware"], report["versions"], report["setting"], sep="\n")
    texts = same_texts(setting, device, 8 if args.quick else args.sources)
    tell_texts(texts)
    contenders = make_contenders(setting, device, torch.bfloat16 if device == "cuda" else torch.float32)
    print(f"\ntokens per second\nbatch beam{''.join(f'{name:>14}' for name in contenders)}   us/step    floor  first s")
    cells: list[dict] = []
    for cell in args.cells or (QUICK_CELLS if args.quick else list[tuple[int, int]](TARGETS)):
        options = {"device": device, "rounds": 2 if args.quick else args.rounds, "budget": 0.0}
        cells.append(measure(contenders, setting, cell, **options))
        print(row(cells[-1]), flush=True)
    report |= {"texts": texts, "cells": cells, "summary": summary(cells, texts)}
    print("\n" + ", ".join(f"{key} {value}" for key, value in report["summary"].items()))
    keep(report, args.out)
    print(json.dumps(report))
    return 1 if args.check and not (report["summary"]["met"] and report["summary"]["same_texts"]) else 0


def summary(cells: Sequence[dict], texts: dict) -> dict[str, object]:
    return {
        "met": all(cell["met"] for cell in cells),
        "cells_met": sum(cell["met"] for cell in cells),
        "cells": len(cells),
        "same_texts": texts["met"],
    }


if __name__ == "__main__":
    sys.exit(main())
