"""Does regard decode faster than CTranslate2 and transformers? Tokens per second on a CPU, in one run.

All have the same weights, those of a Transformer (base) drawn from a seed, and write exactly 24 tokens for each source
of 21. What they compute and what they write is compared before the clock starts. Targets, cell by cell:
    int8   2.0 times CTranslate2's int8 at batch 1, 1.3 times at larger ones
    fp32   1.5 times CTranslate2's fp32, and the same texts as both peers, token for token, but for ties
Prints a table and, as the last line, everything as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import regard
from benchmarks.decode.decode_peers import (
    Contender,
    CTranslate2,
    Ours,
    Setting,
    Tokens,
    Transformers,
    make_model,
    make_sources,
)
from benchmarks.decode.decode_same import agreement, check_forced, compare, penalties_cancel
from benchmarks.timing import Samples, command, hardware, keep, sample
from regard.models.transformer import Transformer

BASE = Setting("base", layers=6, dim=512, heads=8, hidden=2048, vocabulary=16_000)
OPUS_MT = Setting("opus-mt", layers=6, dim=512, heads=8, hidden=2048, vocabulary=58_101)
SIZES = {"base": BASE, "opus-mt": OPUS_MT}
QUICK = Setting("quick", layers=2, dim=32, heads=2, hidden=64, vocabulary=120, source=7, length=6)
CELLS, QUICK_CELLS = ((1, 1), (1, 4), (32, 1), (32, 4)), ((1, 1), (3, 2))  # batch, beam
NAMES = ("regard int8", "CTranslate2 int8", "regard fp32", "CTranslate2 fp32", "transformers fp32")


def target(dtype: str, batch: int) -> float:
    """How many times CTranslate2's speed ours is meant to have."""
    if dtype == "fp32":
        return 1.5
    return 2.0 if batch == 1 else 1.3


def make_ours(model: Transformer, setting: Setting) -> dict[str, Ours]:
    """regard with its weights laid out for a CPU, in fp32 and rounded to int8."""
    try:
        from regard.decoding.cpu.quantize import pack_weights
    except ImportError:  # a version of regard without it
        return {"regard fp32": Ours(model, setting)}
    forms = {"regard int8": "int8", "regard fp32": "packed"}
    return {name: Ours(pack_weights(deepcopy(model), form), setting) for name, form in forms.items()}


def make_contenders(setting: Setting, threads: int) -> dict[str, Contender]:
    """All that can be had here; what is missing is said."""
    model = make_model(setting)
    made: dict[str, Contender] = {**make_ours(model, setting)}
    if importable("ctranslate2"):
        made["CTranslate2 int8"] = CTranslate2(model, setting, dtype="int8", threads=threads)
        made["CTranslate2 fp32"] = CTranslate2(model, setting, dtype="float32", threads=threads)
    if importable("transformers"):
        made["transformers fp32"] = Transformers(model, setting)
    for name in NAMES:
        if name not in made:
            print(f"{name} is not there: it is not measured, and nothing is judged by it.")
    return {name: made[name] for name in NAMES if name in made}


def importable(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def outputs(contenders: dict[str, Contender], setting: Setting, sources: list[list[int]]) -> dict[str, object]:
    """Compare the texts of fp32, with all differences, and return how far int8 follows them."""
    ours = contenders["regard fp32"]
    assert isinstance(ours, Ours)
    peers = {
        name: contender for name, contender in contenders.items() if name in ("CTranslate2 fp32", "transformers fp32")
    }
    fp32 = {"regard fp32": ours, **peers}
    greedy = ours.generate(sources, 1)
    return {
        "forced": check_forced(ours, peers, setting),
        **compare(ours, peers, sources, beams=(1, 4)),
        "penalties_cancel": penalties_cancel(fp32, sources[:8], 4),
        "int8_like_fp32": {
            name: agreement(greedy, contender.generate(sources, 1))
            for name, contender in contenders.items()
            if name not in fp32
        },
    }


def take_turns(
    contenders: dict[str, Contender], sources: Sequence[Tokens], beam: int, *, rounds: int, budget: float
) -> Samples:
    """Sample everybody once a round, in an order of its own; each is loaded for its turn, and warm when it is timed."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names, order = list(contenders), random.Random(0)
    start, done = time.perf_counter(), 0
    while done < max(rounds, 2) or (time.perf_counter() - start < budget and done < 200):
        order.shuffle(names)
        for name in names:
            run = partial(contenders[name].generate, sources, beam)
            with contenders[name].turn():
                run()
                seconds[name].append(sample(run, 1, "cpu"))
        done += 1
    return Samples(seconds)


def measure(
    contenders: dict[str, Contender], sources: Sequence[Tokens], beam: int, *, length: int, rounds: int, budget: float
) -> dict[str, object]:
    """One cell: everybody's tokens per second, and the verdicts."""
    samples = take_turns(contenders, sources, beam, rounds=rounds, budget=budget)
    batch = len(sources)
    verdicts = {}
    for dtype in ("int8", "fp32"):
        ours, theirs = f"regard {dtype}", f"CTranslate2 {dtype}"
        if ours in contenders and theirs in contenders:
            ratio = samples.ratio(theirs, ours)  # of the times, so the other way round of the speeds
            verdicts[dtype] = {
                "ratio": ratio,
                "target": target(dtype, batch),
                "met": ratio >= target(dtype, batch),
                "again": samples.again(ours),
            }
    return {
        "batch": batch,
        "beam": beam,
        "tokens_per_second": {name: batch * length / samples.median(name) for name in contenders},
        "seconds": samples.seconds,
        "rounds": len(samples.seconds["regard fp32"]),
        "verdicts": verdicts,
    }


def summary(cells: Sequence[dict], texts: dict) -> dict[str, object]:
    verdicts = [(dtype, cell["verdicts"].get(dtype)) for cell in cells for dtype in ("int8", "fp32")]
    return {
        "met": bool(cells) and all(verdict is not None and verdict["met"] for _, verdict in verdicts),
        "cells_met": sum(verdict is not None and verdict["met"] for _, verdict in verdicts),
        "cells": len(verdicts),
        "worst": {
            dtype: min(
                (verdict["ratio"] / verdict["target"] for name, verdict in verdicts if verdict and name == dtype),
                default=None,
            )
            for dtype in ("int8", "fp32")
        },
        "same_texts": texts["met"] and texts["penalties_cancel"],
        "noise": max((abs(verdict["again"] - 1) for _, verdict in verdicts if verdict), default=None),
    }


def row(cell: dict) -> str:
    speeds = "".join(f"{cell['tokens_per_second'].get(name, float('nan')):>19,.0f}" for name in NAMES)
    judged = "".join(
        f"   {dtype} {verdict['ratio']:.2f} of {verdict['target']} {'met' if verdict['met'] else 'not met'}"
        for dtype, verdict in cell["verdicts"].items()
    )
    return f"{cell['batch']:>5}{cell['beam']:>5}{speeds}{judged}"


def tell_outputs(texts: dict) -> None:
    """Print what `outputs` found."""
    forced = ", ".join(f"{name} {distance:.1e}" for name, distance in texts["forced"].items())
    print(f"\nforced to one prefix, logits or log-probabilities are apart by at most: {forced or 'nobody to compare'}")
    print(f"{texts['sources']} sources, beams {texts['beams']}: {len(texts['differences'])} texts of the peers differ")
    for difference in texts["differences"]:
        where = (
            f"{difference['peer']}, beam {difference['beam']}, source {difference['source']}, step {difference['step']}"
        )
        print(f"  {where}: {difference['margin']:.1e}, {'a tie' if difference['tie'] else 'NOT A TIE'}")
    print(f"the same with and without length penalty: {texts['penalties_cancel']}")
    for name, share in texts["int8_like_fp32"].items():
        print(f"{name} writes {share:.0%} of the tokens of regard fp32 before it differs (greedy)")


def profile(ours: dict[str, Ours], setting: Setting, batch: int, beam: int, *, rows: int = 15) -> None:
    """Print where a step of ours spends its time, operator by operator.

    What a text of full length takes more than one of half the length is the steps alone, without the encoder.
    """
    sources, half = make_sources(setting, batch), replace(setting, length=setting.length // 2)
    steps, repeats = setting.length - half.length, 5
    for name, contender in ours.items():
        profiles: list[dict[str, tuple[float, float]]] = []
        walls = []
        for each in (contender, type(contender)(contender.model, half)):
            each.generate(sources, beam)
            start = time.perf_counter()
            for _ in range(repeats):
                each.generate(sources, beam)
            walls.append(time.perf_counter() - start)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
                for _ in range(repeats):
                    each.generate(sources, beam)
            profiles.append({event.key: (event.self_cpu_time_total, event.count) for event in seen.key_averages()})
        whole, part = profiles
        table = {
            key: tuple((x - y) / steps / repeats for x, y in zip(whole[key], part.get(key, (0.0, 0.0)), strict=True))
            for key in whole
        }
        total = sum(microseconds for microseconds, _ in table.values())
        wall = (walls[0] - walls[1]) / steps / repeats * 1e6
        print(f"\n{name}, batch {batch}, beam {beam}: a step takes {wall:,.0f} us, its operators {total:,.0f} us")
        print(f"{'operator':44}{'us a step':>12}{'share':>8}{'calls':>8}")
        for key, (microseconds, calls) in sorted(table.items(), key=lambda item: -item[1][0])[:rows]:
            print(f"{key[:43]:44}{microseconds:>12,.1f}{microseconds / total:>8.1%}{calls:>8.1f}")


def package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def pair(text: str) -> tuple[int, int]:
    """A cell as it is written on the command line."""
    batch, _, beam = text.partition(",")
    if not (batch.isdecimal() and beam.isdecimal() and int(batch) and int(beam)):
        raise argparse.ArgumentTypeError(f"{text!r} is not BATCH,BEAM, such as 32,4")
    return int(batch), int(beam)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    shown = " ".join(f"{batch},{beam}" for batch, beam in CELLS)
    parser.add_argument("--size", choices=[*SIZES], default="base", help="base: vocabulary of 16,000; opus-mt: 58,101")
    parser.add_argument("--cells", type=pair, nargs="+", metavar="BATCH,BEAM", help=f"default: {shown}")
    parser.add_argument("--threads", type=int, default=2, help="for each contender (default: 2)")
    parser.add_argument("--sources", type=int, help="how many are written by all and compared (default: 64; quick: 8)")
    parser.add_argument("--rounds", type=int, help="samples of each contender, at least (default: 5; quick: 2)")
    parser.add_argument("--budget", type=float, help="seconds a cell goes on sampling (default: 20; quick: 0)")
    parser.add_argument("--profile", type=pair, metavar="BATCH,BEAM", help="only show where our time goes in this cell")
    parser.add_argument("--quick", action="store_true", help="a toy size, few rounds: does it run?")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when missed or the machine is busy")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    machine = hardware("cpu")  # before anything of ours makes it busy
    torch.set_num_threads(args.threads)
    setting = QUICK if args.quick else SIZES[args.size]
    rounds = args.rounds or (2 if args.quick else 5)
    budget = args.budget if args.budget is not None else 0.0 if args.quick else 20.0
    report = {
        "benchmark": "decode_cpu",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": {**machine, "threads": args.threads},
        "versions": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "regard": regard.__version__,
            "ctranslate2": package_version("ctranslate2"),
            "transformers": package_version("transformers"),
        },
        "setting": asdict(setting),
    }
    print(report["hardware"], report["versions"], report["setting"], sep="\n")
    if args.profile:
        profile(make_ours(make_model(setting), setting), setting, *args.profile)
        return 0
    contenders = make_contenders(setting, args.threads)
    texts = outputs(contenders, setting, make_sources(setting, args.sources or (8 if args.quick else 64)))
    tell_outputs(texts)
    print(f"\ntokens per second\nbatch beam{''.join(f'{name:>19}' for name in NAMES)}")
    cells = []
    for batch, beam in args.cells or (QUICK_CELLS if args.quick else CELLS):
        sources = make_sources(setting, batch)
        cells.append(measure(contenders, sources, beam, length=setting.length, rounds=rounds, budget=budget))
        print(row(cells[-1]), flush=True)
    busy = machine["load"] > machine["cores"] / 4
    report |= {"texts": texts, "cells": cells, "summary": {**summary(cells, texts), "busy": busy}}
    if busy:
        print("\nThe machine was busy with other work when this began: these numbers prove nothing.")
    print("\n" + ", ".join(f"{key} {value}" for key, value in report["summary"].items()))
    keep(report, args.out)
    print(json.dumps(report))
    met = report["summary"]["met"] and report["summary"]["same_texts"] and not busy
    return 1 if args.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
