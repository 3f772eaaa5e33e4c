"""How long does the data doctor take, and how much memory? `regard check` on the demo corpus, in a process of its own.

Target: 100,000 pairs in under 10 seconds, in memory that does not grow with the text (24 bytes a pair and a sample of
lines). Processor time is judged, which is the wall time of a machine that has nothing else to do.
Prints a table and, as the last line, everything as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import regard
from benchmarks.timing import command, hardware
from regard.demo.corpus import demo_pairs
from regard.text.check.checker import short_check
from regard.text.files.corpus import make_corpus, read_parallel

SIZES, QUICK_SIZES = (10_000, 100_000, 400_000), (500, 1_000)
DRAWN = 100_000  # pairs of the grammar; more are made of them by a number at their end
VALIDATION = 1_000  # pairs beside them in the short form
TARGET_SECONDS, TARGET_PAIRS = 10.0, 100_000
RUN = "import sys; from regard.cli import main; sys.argv[0] = 'regard'; main()"
LOAD = "import regard.cli.check, regard.text.check.checker, regard.training.recipe.from_files"
TELL_PEAK = (
    "import atexit, resource as r, sys; atexit.register(lambda: print(r.getrusage(0).ru_maxrss, file=sys.stderr)); "
)


def write_pairs(folder: Path, size: int) -> tuple[Path, Path]:
    """That many different pairs as two files."""
    pairs = demo_pairs("train", min(size, DRAWN))
    paths = folder / "train.fr", folder / "train.en"
    for path, side in zip(paths, ("source", "target"), strict=True):
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for i in range(size):
                text = getattr(pairs[i % DRAWN], side)
                file.write(f"{text} {i // DRAWN}\n" if i >= DRAWN else f"{text}\n")
    return paths


def measure(code: str, *arguments: str) -> dict[str, float]:
    """Seconds and peak memory of a Python process that runs this code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    command = [sys.executable, "-c", TELL_PEAK + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode or (arguments and "no problems found" not in done.stdout):
        raise RuntimeError(f"{arguments}: {done.returncode} {done.stdout} {done.stderr}")
    scale = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return {
        "seconds": round(seconds, 2),
        "processor_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "peak_bytes": int(done.stderr.split()[-1]) * scale,
    }


def measure_size(size: int) -> dict[str, object]:
    """The whole command on that many pairs, and the short form that runs before a training, on pairs in memory."""
    with tempfile.TemporaryDirectory() as folder:
        files = write_pairs(Path(folder), size)
        cell = measure(RUN, "check", *map(str, files))
        corpus = read_parallel(*files)
        pairs = demo_pairs("validation", VALIDATION)
        validation = make_corpus([pair.source for pair in pairs], [pair.target for pair in pairs], name="validation")
        start = time.process_time()
        assert short_check(corpus, validation) == []
        short = time.process_time() - start
        text = sum(path.stat().st_size for path in files)
    return {"pairs": size, "file_bytes": text, **cell, "short_processor_seconds": round(short, 2)}


def row(cell: dict[str, object], base: dict[str, float]) -> str:
    numbers = [float(str(cell[key])) for key in ("file_bytes", "peak_bytes", "seconds", "processor_seconds")]
    text, peak, seconds, processor = numbers
    extra = peak - base["peak_bytes"]
    return (
        f"{cell['pairs']:>9,}{text / 1e6:>9.1f}{seconds:>9.2f}{processor:>11.2f}{peak / 1e6:>9.0f}{extra / 1e6:>13.0f}"
        f"{cell['short_processor_seconds']:>9}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, seconds: does it run?")
    parser.add_argument("--check", action="store_true", help="exit status 1 when the target is missed")
    args = parser.parse_args()
    packages = {name: version(name) for name in ("torch", "numpy", "sentencepiece")}
    report: dict[str, object] = {
        "benchmark": "check",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware("cpu"),
        "versions": {"python": sys.version.split()[0], "regard": regard.__version__, **packages},
    }
    print(report["hardware"], report["versions"], sep="\n")
    base = measure(LOAD)
    print(f"\nimports alone: {base['processor_seconds']} s of processor time, {base['peak_bytes'] / 1e6:.0f} MB")
    print("\n    pairs  text MB  seconds  processor  peak MB  over import  short s")
    cells = []
    for size in QUICK_SIZES if args.quick else SIZES:
        cells.append(measure_size(size))
        print(row(cells[-1], base), flush=True)
    a_target = [float(str(cell["processor_seconds"])) for cell in cells if cell["pairs"] == TARGET_PAIRS]
    met = all(seconds < TARGET_SECONDS for seconds in a_target) if a_target else None
    report |= {"imports": base, "cells": cells, "summary": {"met": met, "target_seconds": TARGET_SECONDS}}
    print(json.dumps(report))
    return int(args.check and not met)


if __name__ == "__main__":
    sys.exit(main())
