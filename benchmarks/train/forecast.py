"""Is the forecast of `regard train --dry-run` within a quarter of what happens? Memory and time, in one run.

Each training is forecast in one process and then run in another. Target: memory and time within 25% in every cell.
Prints a table and, as the last line, everything as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import regard
import regard.training.budget.forecast
from benchmarks.timing import command, hardware, keep
from regard.machine import peak_memory, reset_peak_memory
from regard.training.budget.forecast import forecast
from regard.training.prepared import Prepared
from regard.training.recipe.toml_file import read_recipe
from regard.training.run.prepare import prepare
from regard.training.run.training_run import run_training

MB = 2**20
TARGET = 0.25
COMMON = {"data.demo": 8_000, "data.validation": 200, "training.warmup": 4, "decoding.sentences": 100}
MEDIUM = {"model.layers": 4, "model.dim": 256, "model.hidden": 1024}
BASE = {"model.layers": 6, "model.dim": 512, "model.heads": 8, "model.hidden": 2048}
RECURRENT = {"model": {"kind": "rnn-attention", "hidden": 256, "embedding": 128, "dropout": 0.1}}
TEXT = {
    "data": {"demo": 4_000, "context": 64},
    "tokenizer": {"kind": "characters"},
    "model": {"kind": "transformer-lm", "layers": 2, "dim": 128, "heads": 4, "hidden": 512},
    "decoding": {},
}
# By device: the recipe `demo` with these changes. Steps are few, so that a run is short.
CELLS: dict[str, dict[str, dict[str, Any]]] = {
    "cpu": {
        "small": {"training.steps": 100, "training.batch_tokens": 1024},
        "small, sampled": {"training.steps": 40, "training.batch_tokens": 2048, "tokenizer.sampling": 0.2},
        "medium": {"training.steps": 8, "training.batch_tokens": 2048, **MEDIUM},
        "rnn-attention": {"training.steps": 40, "training.batch_tokens": 1024, **RECURRENT},
        "transformer-lm": {"training.steps": 60, "training.batch_tokens": 2048, **TEXT},
    },
    "cuda": {
        "small": {"training.steps": 800, "training.batch_tokens": 4096},
        "small, sampled": {"training.steps": 400, "training.batch_tokens": 16384, "tokenizer.sampling": 0.2},
        "base": {"training.steps": 300, "training.batch_tokens": 16384, **BASE},
        "rnn-attention": {"training.steps": 400, "training.batch_tokens": 8192, **RECURRENT},
        "transformer-lm": {"training.steps": 600, "training.batch_tokens": 16384, **TEXT},
    },
}
QUICK = {"quick": {"training.steps": 6, "training.batch_tokens": 256, "data.demo": 300, "data.validation": 20}}


def changes_of(cell: dict[str, Any], device: str) -> dict[str, Any]:
    """The whole list of changes to the recipe; two validations and saves."""
    every = cell["training.steps"] // 2
    changes = {**COMMON, "training.device": device, "training.samples": 0, **cell}
    if "data" in changes:  # a table of its own: the recipe's settings for pairs do not fit
        changes = {key: value for key, value in changes.items() if not key.startswith(("data.", "decoding."))}
    return {**changes, "training.validate_every": every, "training.save_every": every}


def forecasted(ready: Prepared, folder: Path) -> dict[str, float]:
    began = time.perf_counter()
    prediction = forecast(ready)
    took = time.perf_counter() - began
    assert prediction.seconds is not None, prediction.warning
    return {"memory": prediction.peak, "seconds": prediction.seconds.total, "took": took, "before": prediction.before}


def measured(ready: Prepared, folder: Path) -> dict[str, float]:
    regard.training.budget.forecast.SHORT_TRAINING = sys.maxsize  # no trial run at the beginning: it is not measured
    reset_peak_memory(ready.device)
    began = time.perf_counter()
    run_training(ready, folder, say=lambda text: None, quiet=True)
    return {"seconds": time.perf_counter() - began, "memory": peak_memory(ready.device)}


def alone(name: str, changes: dict[str, Any]) -> dict[str, float]:
    """The forecast, or the training, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        ready = prepare(read_recipe("demo", changes), folder=run if name == "measured" else None, say=lambda text: None)
        return {"forecasted": forecasted, "measured": measured}[name](ready, run)


def in_a_child(name: str, changes: dict[str, Any]) -> dict[str, float]:
    command = [sys.executable, __file__, "--alone", name, json.dumps(changes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(name: str, cell: dict[str, Any], device: str) -> dict[str, Any]:
    """One training, forecast and run, with the ratios of the two."""
    changes = changes_of(cell, device)
    predicted, real = in_a_child("forecasted", changes), in_a_child("measured", changes)
    ratios = {what: predicted[what] / real[what] for what in ("memory", "seconds")}
    met = all(abs(ratio - 1) <= TARGET for ratio in ratios.values())
    return {"name": name, "changes": changes, "forecast": predicted, "measured": real, "ratio": ratios, "met": met}


def row(cell: dict[str, Any]) -> str:
    predicted, real, ratio = cell["forecast"], cell["measured"], cell["ratio"]
    return (
        f"{cell['name']:16}{predicted['memory'] / MB:>10,.0f}{real['memory'] / MB:>10,.0f}{ratio['memory']:>8.2f}"
        f"{predicted['seconds']:>10.1f}{real['seconds']:>10.1f}{ratio['seconds']:>8.2f}{predicted['took']:>8.1f}"
        f"  {'met' if cell['met'] else 'missed'}"
    )


def summary(cells: Iterable[dict[str, Any]]) -> dict[str, Any]:
    cells = list(cells)
    worst = {
        what: max((cell["ratio"][what] for cell in cells), key=lambda r: abs(r - 1)) for what in ("memory", "seconds")
    }
    return {"cells": len(cells), "worst": worst, "met": all(cell["met"] for cell in cells)}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: CUDA if there is one")
    parser.add_argument("--cells", nargs="+", metavar="NAME", help="some of them; default: all")
    parser.add_argument("--quick", action="store_true", help="a toy size: does it run?")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when missed or the machine is busy")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    parser.add_argument("--alone", nargs=2, metavar=("WHAT", "CHANGES"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here; use cpu or auto")
    return args


def main() -> int:
    args = arguments()
    if args.alone:
        print(json.dumps(alone(args.alone[0], json.loads(args.alone[1]))))
        return 0
    device = ("cuda" if torch.cuda.is_available() else "cpu") if args.device == "auto" else args.device
    cells = QUICK if args.quick else CELLS[device]
    if unknown := [name for name in args.cells or () if name not in cells]:
        raise SystemExit(f"unknown cell {unknown[0]!r}; there are {', '.join(cells)}")
    report: dict[str, Any] = {
        "benchmark": "forecast",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware(device),
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__, "regard": regard.__version__},
        "setting": {"device": device},
        "cells": [],
    }
    busy = report["hardware"]["load"] > report["hardware"]["cores"] / 4
    print(f"{'':16}{'MB, told':>10}{'real':>10}{'ratio':>8}{'s, told':>10}{'real':>10}{'ratio':>8}{'took':>8}")
    for name in args.cells or cells:
        report["cells"].append(compare(name, cells[name], device))
        print(row(report["cells"][-1]), flush=True)
    report["summary"] = {**summary(report["cells"]), "busy": busy}
    if busy:
        print("\nThe machine was busy with other work when this began: the times prove nothing.")
    keep(report, args.out)
    print(json.dumps(report))
    return 1 if args.check and (busy or not report["summary"]["met"]) else 0


if __name__ == "__main__":
    sys.exit(main())
