"""Does regard translate real sentences faster than CTranslate2? Text in, text out, tokenization included, on a CPU.

Both have the weights of a shipped model and translate the same sentences: the everyday French of benchmarks/data, or a
file. transformers generates as many tokens with a model of the same sizes, in float32. Each round takes the next
sentences, so that texts are not repeated, and every contender has its turn in it.
Targets: 1.3 times CTranslate2 in every cell, in CPU time and in wall time; 1.0 with --busy, beside two busy processes.
Prints where regard's time goes, a table, and, as the last line, everything as one JSON object: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import compress
from pathlib import Path
from statistics import median
from typing import Any

import torch

import regard
from benchmarks.decode.real_peers import Contender, CTranslate2, Regard, Transformers, converted
from benchmarks.decode.real_table import join_reports, write_tables
from benchmarks.timing import command, hardware, keep

EVERYDAY = Path(__file__).parents[1] / "data" / "everyday.fr.txt"
FILE = 0  # in place of a batch size: all texts in one call
FORMS = ("int8", "fp32")
TARGET, BUSY_TARGET = 1.3, 1.0
SLOW, SLOW_TEXTS = "transformers", 8  # is not judged, and translates fewer texts in each round


def read_lines(path: Path, count: int) -> list[str]:
    """Return the first lines of a text file, compressed or not."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return text.rstrip("\n").split("\n")[:count]


def run_once(contender: Contender, texts: Sequence[str], batch: int, beam: int) -> tuple[float, float]:
    """Translate texts batch by batch; return wall and CPU seconds for each text."""
    wall, cpu = time.perf_counter(), time.process_time()
    for first in range(0, len(texts), batch or len(texts)):
        contender.translate(texts[first : first + (batch or len(texts))], beam)
    return (time.perf_counter() - wall) / len(texts), (time.process_time() - cpu) / len(texts)


def measure(
    contenders: dict[str, Contender], texts: Sequence[str], cell: dict[str, int], *, rounds: int, per_round: int
) -> dict[str, object]:
    """One cell: the medians of all rounds, and CTranslate2's time over regard's, round by round."""
    batch, beam, threads = cell["batch"], cell["beam"], cell["threads"]
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    names, order, supply = list(contenders), random.Random(0), itertools.cycle(texts)
    for number in range(rounds + 1):  # the first round warms up
        sentences = list(texts) if batch == FILE else list(itertools.islice(supply, per_round))
        if batch == FILE and not number:
            continue
        order.shuffle(names)
        for name in names:
            with contenders[name].turn(threads, is_file=batch == FILE):
                contenders[name].translate(sentences[:1], beam)
                some = sentences[: max(batch, SLOW_TEXTS)] if name == SLOW else sentences
                sample = run_once(contenders[name], some, batch, beam)
            if number:
                seconds[name].append(sample)
    result: dict[str, object] = dict(cell)
    for i, clock in enumerate(("wall", "cpu")):
        result[f"{clock}_ms"] = {name: 1e3 * median(sample[i] for sample in each) for name, each in seconds.items()}
        if "CTranslate2" in contenders:
            ours, theirs = ([sample[i] for sample in seconds[name]] for name in ("regard", "CTranslate2"))
            result[f"{clock}_ratio"] = median(b / a for a, b in zip(ours, theirs, strict=True))
    return result


def profile(ours: Regard, texts: Sequence[str], batch: int, beam: int) -> dict[str, float]:
    """Return where regard's CPU time goes with one thread, in milliseconds for each text."""
    tokenizer, statistics = ours.translator.source_tokenizer, ours.statistics
    with ours.turn(1, is_file=False):
        results = ours.translator.translate(list(texts), beam=beam)
        start = time.process_time()
        for text, result in zip(texts, results, strict=True):
            tokenizer.encode(text)
            ours.translator.target_tokenizer.decode(result.ids)
        parts = {"tokenizer": time.process_time() - start}
        before = None if statistics is None else asdict(statistics)
        total = run_once(ours, texts, batch, beam)[1] * len(texts)
    if before is not None:
        after = asdict(statistics)
        parts |= {name: after[f"{name}_seconds"] - before[f"{name}_seconds"] for name in ("encoder", "step", "choice")}
        steps = (after["steps"] - before["steps"]) / len(texts), (after["rows"] - before["rows"]) / len(texts)
        print(f"  batch {batch}, beam {beam}: {steps[0]:.1f} steps and {steps[1]:.1f} rows for each text", end="; ")
    parts["Python"] = total - sum(parts.values())
    milliseconds = {name: 1e3 * seconds / len(texts) for name, seconds in parts.items()}
    print(", ".join(f"{name} {value:.2f}" for name, value in milliseconds.items()), "ms", flush=True)
    return milliseconds


def compare_texts(
    contenders: dict[str, Contender], texts: Sequence[str], references: Sequence[str] | None, beams: Sequence[int]
) -> list[dict[str, object]]:
    """How many texts are the same, and the BLEU of each contender where there are references.

    regard carries numbers and rare names over, so it reads other tokens than CTranslate2 in some texts. Those that both
    read alike are counted separately.
    """
    comparisons = []
    ours: Any = contenders["regard"]
    alike = [ours.reads_all(text) for text in texts]
    for beam in beams:
        outputs = {}
        for name, contender in contenders.items():
            with contender.turn(1, is_file=True):
                outputs[name] = contender.translate(texts, beam)
        comparison: dict[str, object] = {"beam": beam, "texts": len(texts)}
        if "CTranslate2" in outputs:
            same = [a == b for a, b in zip(outputs["regard"], outputs["CTranslate2"], strict=True)]
            comparison |= {"same": sum(same), "read_alike": sum(alike), "same_of_these": sum(compress(same, alike))}
        if references is not None:
            import sacrebleu

            comparison["bleu"] = {
                name: sacrebleu.corpus_bleu(output, [references]).score for name, output in outputs.items()
            }
        print(f"  {comparison}", flush=True)
        comparisons.append(comparison)
    return comparisons


@contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """Run processes that do nothing but compute."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def row(form: str, cell: dict) -> str:
    size = "file" if cell["batch"] == FILE else cell["batch"]
    times = "".join(
        f"{cell[f'{clock}_ms'].get(name, float('nan')):>9.2f}"
        for clock in ("cpu", "wall")
        for name in ("regard", "CTranslate2")
    )
    times += f"{cell['cpu_ms'][SLOW]:>9.2f}" if SLOW in cell["cpu_ms"] else f"{'':9}"
    ratios = "".join(f"{cell.get(f'{clock}_ratio', float('nan')):>8.2f}" for clock in ("cpu", "wall"))
    return f"{form:>5}{cell['threads']:>8}{size:>6}{cell['beam']:>5}{times}{ratios}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="fr-en", help="a shipped model or a model folder (default: fr-en)")
    parser.add_argument("--source", type=Path, help="sentences, one in each line (default: benchmarks/data)")
    parser.add_argument("--reference", type=Path, help="their translations, for BLEU")
    parser.add_argument("--texts", type=int, default=2000, help="lines of the file to use (default: 2000)")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, FILE], help="0: the file in one call")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4, 5])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--per-round", type=int, default=64, help="texts that a round translates (default: 64)")
    parser.add_argument("--without-transformers", action="store_true", help="compare with CTranslate2 only")
    parser.add_argument("--table", type=Path, metavar="FILE", help="only write the table of this JSON into the docs")
    parser.add_argument("--join", type=Path, nargs="+", metavar="FILE", help="only join these JSON files into --out")
    parser.add_argument("--busy", action="store_true", help="measure beside two busy processes")
    parser.add_argument("--quick", action="store_true", help="few texts, one round: does it run?")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a target is missed")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    args = parser.parse_args()
    if args.quick:
        args.texts, args.rounds, args.per_round, args.threads = 8, 1, 4, [1]
        args.batches, args.beams = [1, FILE], [1, 4]
    return args


def main() -> int:
    args = arguments()
    if args.table:
        print(write_tables(args.table))
        return 0
    if args.join:
        keep(join_reports(args.join), args.out)
        return 0
    warnings.simplefilter("ignore")  # about sentences that do not look French
    machine = hardware("cpu")
    texts = read_lines(args.source or EVERYDAY, args.texts)
    references = read_lines(args.reference, args.texts) if args.reference else None
    report: dict[str, object] = {
        "benchmark": "decode_real",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": machine,
        "versions": {name: version(name) for name in ("torch", "ctranslate2")} | {"regard": regard.__version__},
        "model": Path(args.model).name,
        "sentences": len(texts),
        "words": sum(len(text.split()) for text in texts) / len(texts),
        "busy": args.busy,
    }
    print(machine, report["versions"], f"{len(texts)} sentences of {report['words']:.1f} words", sep="\n")
    plain: dict[str, Regard] = {form: Regard(args.model, form) for form in args.forms}
    folder = converted(Regard(args.model, "fp32").translator)
    cells, target = [], BUSY_TARGET if args.busy else TARGET
    with busy_neighbours(2 if args.busy else 0):
        for form, ours in plain.items():
            contenders: dict[str, Contender] = {
                "regard": ours,
                "CTranslate2": CTranslate2(ours.translator, form, Path(folder.name)),
            }
            print(f"\n{form}: the texts")
            report[f"{form}_texts"] = compare_texts(contenders, texts, references, args.beams)
            print(f"{form}: where regard's time goes")
            report[f"{form}_profile"] = [
                {"batch": batch, "beam": beam, **profile(ours, texts[: args.per_round], batch, beam)}
                for batch, beam in itertools.product([size for size in args.batches if size != FILE], args.beams)
            ]
            if form == "fp32" and not args.without_transformers:
                contenders[SLOW] = Transformers(ours.translator, texts)
            print(f"\n{'':24}{'CPU ms a text':>18}{'wall ms a text':>18}{'CPU ms':>9}{'ratio':>14}")
            print(" form threads batch beam   regard      CT2   regard      CT2  transf.     CPU    wall")
            for threads, batch, beam in itertools.product(args.threads, args.batches, args.beams):
                cell = {"threads": threads, "batch": batch, "beam": beam}
                rounds = max(1, args.rounds // 2) if batch == FILE else args.rounds
                cells.append({"form": form} | measure(contenders, texts, cell, rounds=rounds, per_round=args.per_round))
                print(row(form, cells[-1]), flush=True)
    met = [min(cell["cpu_ratio"], cell["wall_ratio"]) >= target for cell in cells]  # type: ignore[type-var]
    report |= {"cells": cells, "summary": {"target": target, "cells": len(cells), "met": sum(met)}}
    print(f"\n{sum(met)} of {len(cells)} cells reach {target} times CTranslate2, in CPU and wall time")
    keep(report, args.out)
    print(json.dumps(report))
    return 1 if args.check and not all(met) else 0


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    sys.exit(main())
