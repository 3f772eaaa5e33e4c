"""How fast does a language model generate on a CPU? regard, transformers and llama.cpp with the same weights.

The models are the shipped `shakespeare`, and models of the GPT-2 and Llama shapes with random weights. Each stream is a
prompt of 32 tokens and a continuation of 32, greedy or sampled (top-k 40, temperature 0.8). Greedy texts in float32 are
compared before timing starts. Target: no peer generates more tokens per second of wall time.
Prints a table and, as the last line, everything as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import time
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from statistics import median

import torch

import regard
from benchmarks.decode.generate_peers import (
    SHAPES,
    Cell,
    Contender,
    LlamaCpp,
    Regard,
    Transformers,
    make_model,
    make_prompts,
)
from benchmarks.timing import command, hardware, keep
from regard.api.model_names import find_model
from regard.models.folder import load_model
from regard.models.language_model import TransformerLM

MODELS = ("shakespeare", "gpt2", "llama")
NAMES = ("regard fp32", "transformers fp32", "llama.cpp F32", "regard int8", "llama.cpp Q8_0")
PEERS = {"fp32": ("regard fp32", NAMES[1:3]), "int8": ("regard int8", NAMES[4:])}


def load(name: str) -> TransformerLM:
    model = load_model(find_model(name)) if name not in SHAPES else make_model(SHAPES[name])
    assert isinstance(model, TransformerLM)
    return model


def make_contenders(model: TransformerLM, cell: Cell) -> dict[str, Contender]:
    """Return the contenders that are installed and implement the shape; llama.cpp gets models of the Llama shape."""
    contenders: dict[str, Contender] = {"regard fp32": Regard(model, "packed"), "regard int8": Regard(model, "int8")}
    if installed("transformers"):
        contenders["transformers fp32"] = Transformers(model)
    if installed("xllamacpp") and installed("gguf") and model.config.norm == "rms":
        contenders["llama.cpp F32"] = LlamaCpp(model, cell, "F32")
        contenders["llama.cpp Q8_0"] = LlamaCpp(model, cell, "Q8_0")
    return {name: contenders[name] for name in NAMES if name in contenders}


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def agreement(model: TransformerLM, cell: Cell, contenders: dict[str, Contender]) -> dict[str, float]:
    """Return the share of greedy tokens before the first difference from regard in float32."""
    prompts = make_prompts(model.config, cell)
    greedy = Cell(cell.streams, cell.threads, False, cell.prompt, cell.length)
    texts = {name: contender.generate(prompts, greedy) for name, contender in contenders.items()}
    expected = texts.pop("regard fp32")
    return {name: shared_tokens(expected, theirs) / (len(prompts) * cell.length) for name, theirs in texts.items()}


def shared_tokens(texts: list[list[int]], others: list[list[int]]) -> int:
    """Count the tokens before the first difference of each pair of texts."""
    return sum(
        next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
        for text, other in zip(texts, others, strict=True)
    )


def measure(model: TransformerLM, cell: Cell, *, rounds: int) -> dict[str, object]:
    """Measure one cell: the contenders run one after the other in each round, in a random order, once to warm up."""
    torch.set_num_threads(cell.threads)
    contenders = make_contenders(model, cell)
    prompts, order = make_prompts(model.config, cell), random.Random(0)
    shares = agreement(model, cell, contenders)
    wall: dict[str, list[float]] = {name: [] for name in contenders}
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name in order.sample([*contenders], len(contenders)):
            run = partial(contenders[name].generate, prompts, cell)
            start = time.perf_counter(), time.process_time()
            texts = run()
            wall[name].append(time.perf_counter() - start[0])
            cpu[name].append(time.process_time() - start[1])
            if any(len(text) != cell.length for text in texts):
                raise RuntimeError(f"{name} ended a text after {min(map(len, texts))} of {cell.length} tokens")
    tokens = cell.streams * cell.length
    return {
        **vars(cell),
        "tokens_per_second": {name: tokens / median(seconds) for name, seconds in wall.items()},
        "cpu_ms_per_token": {name: 1000 * median(seconds) / tokens for name, seconds in cpu.items()},
        "wall_ratio": {dtype: best_ratio(wall, *names) for dtype, names in PEERS.items()},
        "cpu_ratio": {dtype: best_ratio(cpu, *names) for dtype, names in PEERS.items()},
        "shared_with_regard_fp32": shares,
        "wall": wall,
        "cpu": cpu,
    }


def best_ratio(seconds: dict[str, list[float]], ours: str, peers: tuple[str, ...]) -> float | None:
    """Return how many times as long as regard the fastest peer takes; None without a peer."""
    ratios = [
        median(theirs / mine for theirs, mine in zip(seconds[peer], seconds[ours], strict=True))
        for peer in peers
        if peer in seconds
    ]
    return min(ratios, default=None)


def print_row(name: str, cell: dict) -> None:
    speeds = "".join(f"{cell['tokens_per_second'].get(contender, float('nan')):>19,.1f}" for contender in NAMES)
    ratios = "".join(
        f"   {dtype} {cell['wall_ratio'][dtype]:.2f} wall {cell['cpu_ratio'][dtype]:.2f} CPU"
        for dtype in PEERS
        if cell["wall_ratio"][dtype] is not None
    )
    kind = "sampled" if cell["sampled"] else "greedy"
    print(f"{name:12}{cell['streams']:>8}{cell['threads']:>8} {kind:>8}{speeds}{ratios}", flush=True)


def summary(cells: list[dict], *, busy: bool) -> dict[str, object]:
    ratios = [cell["wall_ratio"][dtype] for cell in cells for dtype in PEERS if cell["wall_ratio"][dtype] is not None]
    return {
        "met": None if busy or not ratios else min(ratios) >= 1.0,
        "busy": busy,
        "cells_met": sum(ratio >= 1.0 for ratio in ratios),
        "cells": len(ratios),
        "worst_wall_ratio": min(ratios, default=None),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=(*MODELS, "quick"), help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--streams", type=int, nargs="+", help="default: 1 8 32")
    parser.add_argument("--threads", type=int, nargs="+", help="default: 1 2")
    parser.add_argument("--searches", nargs="+", choices=("greedy", "sampled"), default=("greedy", "sampled"))
    parser.add_argument("--length", type=int, help="tokens to generate (default: 32; quick: 6)")
    parser.add_argument("--rounds", type=int, help="samples of each contender (default: 5; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="a toy size: tests that it runs")
    parser.add_argument("--check", action="store_true", help="exit with status 1 if missed or if the machine is busy")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object to this file too")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    machine = hardware("cpu")
    packages = [name for name in ("transformers", "xllamacpp", "gguf") if installed(name)]
    for name in {"transformers", "xllamacpp", "gguf"} - {*packages}:
        print(f"{name} is not installed: its contender is not measured.")
    report = {
        "benchmark": "generate_cpu",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": machine,
        "versions": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "regard": regard.__version__,
            **{name: version(name) for name in packages},
        },
    }
    print(report["hardware"], report["versions"], sep="\n")
    columns = "".join(f"{name:>19}" for name in NAMES)
    print(f"\ntokens per second\n{'model':12}{'streams':>8}{'threads':>8}{'search':>9}{columns}")
    length, rounds = args.length or (6 if args.quick else 32), args.rounds or (1 if args.quick else 5)
    cells = []
    for name in args.models or (("quick",) if args.quick else MODELS):
        model = load(name)
        grid = product(args.streams or ((1, 3) if args.quick else (1, 8, 32)), args.threads or (1, 2), args.searches)
        for streams, threads, search in grid:
            cell = Cell(streams, threads, search == "sampled", length=length)
            cells.append({"model": name, **measure(model, cell, rounds=rounds)})
            print_row(name, cells[-1])
    busy = machine["load"] > machine["cores"] / 4
    if busy:
        print("\nThe machine was busy with other work: compare ratios of CPU times.")
    report |= {"cells": cells, "summary": summary(cells, busy=busy)}
    keep(report, args.out)
    print(json.dumps(report))
    return 1 if args.check and report["summary"]["met"] is not True else 0


if __name__ == "__main__":
    sys.exit(main())
