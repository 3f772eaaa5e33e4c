"""Does the GPU ever wait for data? The share of time that training waits for batches, with subword sampling on.

First the parts: how long the tokens take at the first start and at the next, an epoch's draw, and batches alone. Then
the waiting: with steps of a given length that do nothing, and, with --sizes, in steps of a real model. Target: less
than 2% of the time. Prints a table and, as the last line, everything as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import torch

import regard
from benchmarks.timing import command, hardware, keep
from benchmarks.train.train import SETTINGS
from benchmarks.train.train_contenders import Ours
from regard.demo.corpus import demo_pairs
from regard.text.batches.batch import Batch
from regard.text.batches.pairs import PairData
from regard.text.batches.prefetch import Prefetcher
from regard.text.files.corpus import Corpus, make_corpus, read_parallel
from regard.text.tokenizers.subwords import SubwordTokenizer, train_subwords
from regard.training.run.data import place_tokens

TARGET = 0.02  # of the time
SIZES = {setting.name: setting for setting in SETTINGS}
WARM_UP = 10  # steps of a model, which are not counted


def read_text(files: list[str] | None, pairs: int) -> Corpus:
    """The files, or the demo corpus."""
    if files:
        return read_parallel([files[0]], [files[1]])
    made = demo_pairs("train", pairs, seed=1)
    return make_corpus([pair.source for pair in made], [pair.target for pair in made], name="demo corpus")


def make(corpus: Corpus, tokenizer: SubwordTokenizer, args: argparse.Namespace, cache: Path) -> PairData:
    return PairData(
        corpus,
        tokenizer,
        tokenizer,
        batch_tokens=args.batch_tokens,
        seed=1,
        max_length=100,
        sampling=args.sampling,
        copy=0.1,
        cache=cache,
    )


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def measure_parts(data: PairData) -> dict[str, float]:
    """An epoch's draw and its batches, each alone."""
    draws = [seconds(lambda epoch=epoch: data._epoch(epoch)) for epoch in range(5)]
    tokens = sum(batch.tokens for batch in data.batches(0))
    took = seconds(lambda: [batch.tokens for batch in data.batches(0)])
    return {
        "draw_seconds": median(draws),
        "tokens_an_epoch": tokens,
        "batches_an_epoch": len(data.plan(0)),
        "tokens_per_second": tokens / took,
    }


def endless(data: PairData) -> Iterator[Batch]:
    epoch = 0
    while True:
        yield from data.batches(epoch)
        epoch += 1


def wait_of_nothing(data: PairData, milliseconds: float, limit: float) -> dict[str, object]:
    """The share of time that steps of this length wait for their batches, over two epochs or `limit` seconds."""
    steps = min(2 * len(data.plan(0)), int(1e3 * limit / milliseconds))
    prefetcher = Prefetcher(endless(data))
    prefetcher.take(never)
    began, waited, tokens = time.perf_counter(), prefetcher.waited, 0
    for _ in range(steps):
        batch = prefetcher.take(never)
        tokens += batch.tokens
        time.sleep(milliseconds / 1e3)  # as a GPU computes: this thread does nothing meanwhile
    wall = time.perf_counter() - began
    waited = prefetcher.waited - waited
    prefetcher.close()
    return cell(f"steps of {milliseconds:g} ms", "in main memory", steps, wall, waited, tokens)


def wait_of_a_model(
    data: PairData, size: str, vocabulary: int, device: str, steps: int, *, there: bool
) -> dict[str, object]:
    """The same in training steps of a model, with tokens on its device or in main memory."""
    target = torch.device(device)
    data.move("cpu")
    where = place_tokens(data, target) if there else "in main memory"
    precision = "bf16" if device == "cuda" else "fp32"
    trainer = Ours(replace(SIZES[size], vocabulary=vocabulary), device, precision)
    prefetcher = Prefetcher(batch.to(target) for batch in endless(data))
    tokens = 0
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            synchronize(device)
            began, waited = time.perf_counter(), prefetcher.waited
        batch = prefetcher.take(never)
        trainer.step(batch)
        tokens += batch.tokens * (step >= WARM_UP)
    synchronize(device)
    wall = time.perf_counter() - began
    waited = prefetcher.waited - waited
    prefetcher.close()
    return cell(f"model {size}", where, steps, wall, waited, tokens)


def cell(name: str, where: str, steps: int, wall: float, waited: float, tokens: int) -> dict[str, object]:
    return {
        "step": name,
        "where": where,
        "steps": steps,
        "seconds": wall,
        "seconds_a_step": wall / steps,
        "tokens_per_second": tokens / wall,
        "waiting": waited / wall,
        "met": waited / wall < TARGET,
    }


def never() -> bool:
    return False


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def row(cell: dict) -> str:
    return (
        f"{cell['step']:18}{cell['steps']:>7}{1e3 * cell['seconds_a_step']:>9.2f}{cell['tokens_per_second']:>12,.0f}"
        f"{cell['waiting']:>9.2%}  tokens {cell['where']}"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: CUDA if there is one")
    parser.add_argument("--data", nargs=2, metavar=("SRC", "TGT"), help="text files; default: the demo corpus")
    parser.add_argument("--pairs", type=int, default=100_000, help="of the demo corpus")
    parser.add_argument("--vocabulary", type=int, help="pieces; default: chosen by the data")
    parser.add_argument("--kind", choices=("unigram", "bpe"), default="unigram", help="of subwords")
    parser.add_argument("--sampling", type=float, default=0.2, help="alpha of subword sampling")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--step-ms", type=float, nargs="*", default=[5.0, 20.0], help="lengths of empty steps")
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=[], help="models to train as well")
    parser.add_argument("--steps", type=int, default=300, help="of each model")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for each row of empty steps")
    parser.add_argument("--quick", action="store_true", help="little data, few steps: does it run?")
    parser.add_argument(
        "--check", action="store_true", help="exit with status 1 when the target is missed or the machine is busy"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here; use cpu or auto")
    if args.quick:
        args.pairs, args.steps, args.limit, args.batch_tokens = 500, 3, 0.3, 512
    return args


def main() -> int:
    args = arguments()
    device = ("cuda" if torch.cuda.is_available() else "cpu") if args.device == "auto" else args.device
    report = {
        "benchmark": "data",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware(device),
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__, "regard": regard.__version__},
        "setting": {"device": device, "sampling": args.sampling, "kind": args.kind, "batch_tokens": args.batch_tokens},
    }
    print(report["hardware"], report["versions"], report["setting"], sep="\n")
    corpus = read_text(args.data, args.pairs)
    texts = [*corpus.source, *(corpus.target or [])]
    tokenizer = train_subwords(texts, size=args.vocabulary, kind=args.kind, lossless=False)
    with tempfile.TemporaryDirectory() as cache:
        starts = [seconds(lambda: make(corpus, tokenizer, args, Path(cache))) for _ in range(2)]
        data = make(corpus, tokenizer, args, Path(cache))
        parts = {"pairs": len(corpus), "vocabulary": tokenizer.size, "start_seconds": starts, **measure_parts(data)}
        print(
            f"\n{len(corpus):,} pairs, {tokenizer.size:,} pieces; tokens made in {starts[0]:.1f} s, at the next start "
            f"there in {starts[1]:.2f} s\nan epoch of {parts['tokens_an_epoch']:,} target tokens is drawn in "
            f"{parts['draw_seconds']:.2f} s; batches alone: {parts['tokens_per_second']:,.0f} tokens/s\n"
        )
        print(f"{'':18}{'steps':>7}{'ms/step':>9}{'tokens/s':>12}{'waiting':>9}")
        cells = []
        for milliseconds in args.step_ms:
            cells.append(wait_of_nothing(data, milliseconds, args.limit))
            print(row(cells[-1]), flush=True)
        for size in args.sizes:
            for there in (False, True) if device != "cpu" else (False,):
                cells.append(wait_of_a_model(data, size, tokenizer.size, device, args.steps, there=there))
                print(row(cells[-1]), flush=True)
    worst = max((cell["waiting"] for cell in cells), default=0.0)
    report |= {"parts": parts, "cells": cells}
    report["summary"] = {"cells": len(cells), "worst_waiting": worst, "met": all(cell["met"] for cell in cells)}
    if busy := report["hardware"]["load"] > report["hardware"]["cores"] / 4:
        print("\nThe machine was busy with other work when this began: these numbers prove nothing.")
    report["summary"]["busy"] = busy
    print("\n" + ", ".join(f"{key} {value}" for key, value in report["summary"].items()))
    keep(report, args.out)
    print(json.dumps(report))
    return 1 if args.check and (busy or not report["summary"]["met"]) else 0


if __name__ == "__main__":
    sys.exit(main())
