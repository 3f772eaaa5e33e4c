"""Forecasting on ETTh1 and ETTh2 against DLinear and PatchTST, measured and published: mean squared error of the test.

    python benchmarks/uses/series.py --data data --seeds 1 2 3

Trains the recipes etth1 and etth2 with each horizon and seed, with the patch forecaster and with DLinear, and a
PatchTST as its authors train it (series_peer.py). Evaluates every window of the test part (rows 11,520 to 14,400), on
values that are standardised by the training part. The authors of PatchTST test in batches of 128 windows and leave out
the last windows if they fill no batch; `mse_full_batches` is the error of the windows that they count.
Target: the mean over the seeds is at or below the published error of PatchTST (Nie et al. 2023, table 3) at every
horizon. Prints a table and a last line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch

from benchmarks.timing import command, hardware, keep
from benchmarks.uses.series_peer import BATCH, train_patchtst

HORIZONS = (96, 192, 336, 720)
FIRST, LAST = 11_520, 14_400  # rows of the test part
# Nie et al. 2023, table 3: the better of PatchTST/64 and PatchTST/42; Zeng et al. 2023 as quoted there.
PATCHTST = {"etth1": (0.370, 0.413, 0.422, 0.447), "etth2": (0.274, 0.339, 0.329, 0.379)}
DLINEAR = {"etth1": (0.375, 0.405, 0.439, 0.472), "etth2": (0.289, 0.383, 0.448, 0.605)}
MODELS: dict[str, dict[str, Any]] = {
    "forecaster": {},
    "fourier": {"model.score": "fourier"},
    "random features": {"model.attention": "random-features"},
    "dlinear": {"model.kind": "dlinear"},
    "patchtst": {},
}
FORECASTER_ONLY = (
    *("patch", "stride", "layers", "dim", "heads", "hidden", "dropout"),
    *("head_dropout", "shortcut", "shortcut_dropout"),
)
# Zeng et al. 2023: 336 points are read, in batches of 32 windows, for ten epochs at most.
DLINEAR_RATES = {"etth1": 0.005, "etth2": 0.05}
FIRST_VALIDATION = 8_640  # row
EPOCHS = 30  # of PatchTST
ERRORS = ("validation", "mse", "mse_full_batches")


class Run(NamedTuple):
    """One training."""

    data: str
    horizon: int
    model: str
    seed: int
    settings: tuple[tuple[str, Any], ...]


def train_and_test(run: Run, folder: str, data: str, last: int) -> dict[str, Any]:
    """Train one model; return its errors on the validation part, and on the test part up to row `last`."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    started = time.perf_counter()
    name = run.data.replace("etth", "ETTh")
    file = Path(data).resolve() / "ett" / f"{name}.csv.gz"
    measured = peer_errors(run, file, last) if run.model == "patchtst" else regard_errors(run, folder, file, last)
    return {
        **run._asdict(),
        "settings": dict(run.settings),
        **measured,
        "seconds": round(time.perf_counter() - started, 1),
    }


def peer_errors(run: Run, file: Path, last: int) -> dict[str, Any]:
    """Train PatchTST as its authors do; return its errors on the validation part and on the test part."""
    from regard.arrays.series import read_series

    settings = dict(run.settings)
    return train_patchtst(
        read_series(file),
        (FIRST_VALIDATION, FIRST, last),
        lookback=int(settings.get("model.lookback", 336)),
        horizon=run.horizon,
        seed=run.seed,
        epochs=int(settings.get("epochs", EPOCHS)),
        steps=int(settings["steps"]) if "steps" in settings else None,
        device=torch.device("cuda" if torch.cuda.is_available() else "cpu"),
    )


def regard_errors(run: Run, folder: str, file: Path, last: int) -> dict[str, Any]:
    """Train with a recipe; return the errors on the validation part and on the test part."""
    import regard

    overrides: dict[str, Any] = {
        "data.series": str(file),
        "model.horizon": run.horizon,
        "training.seed": run.seed,
        **MODELS[run.model],
        **{key: value for key, value in run.settings if "." in key},
    }
    if run.model == "dlinear":
        overrides |= {f"model.{key}": "" for key in FORECASTER_ONLY if f"model.{key}" not in overrides}
        overrides |= {"training.batch_tokens": 32 * 7, "training.steps": overrides.get("training.steps", 2_560)}
        settings = {"model.lookback": 336, "training.lr": DLINEAR_RATES[run.data], "training.warmup": 0}
        overrides = {**settings, "training.ema": 0.0, **overrides}
    out = Path(folder) / "-".join(map(str, (run.data, run.horizon, run.model, run.seed))).replace(" ", "-")
    trained = regard.train(run.data, out=out, overrides=overrides, quiet=True)
    forecaster = trained.load()
    errors = forecaster.evaluate(file, first=FIRST, last=last)
    windows = errors["windows"]
    rest = windows % BATCH if windows >= BATCH else 0
    return {
        "validation": trained.scores["mse"],
        **errors,
        "mse_full_batches": forecaster.evaluate(file, first=FIRST, last=last - int(rest))["mse"],
        "parameters": sum(weight.numel() for weight in forecaster.model.parameters()),
    }


def last_row(run: Run, quick: bool) -> int:
    """Return the row before which the test part ends."""
    return FIRST + run.horizon + 10 if quick else LAST


def summary_of(results: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the mean errors over the seeds, by data set, model and horizon."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault(f"{result['data']} {result['model']} {result['horizon']}", []).append(result)
    return {
        name: {
            key: round(mean(result[key] for result in group), 4) for key in ("validation", "mse", "mse_full_batches")
        }
        | {
            "seeds": len(group),
            "range": [round(min(r["mse"] for r in group), 4), round(max(r["mse"] for r in group), 4)],
        }
        for name, group in sorted(groups.items())
    }


def report_of(results: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Return the results with their means, and which targets are reached."""
    summary = summary_of(results)
    targets = {
        f"{data} {horizon}": summary[name]["mse"] <= PATCHTST[data][HORIZONS.index(horizon)]
        for data in options.datasets
        for horizon in options.horizons
        if (name := f"{data} forecaster {horizon}") in summary
    }
    return {
        "benchmark": "series",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware("cuda" if torch.cuda.is_available() else "cpu"),
        "versions": {name: version(name) for name in ("torch", "numpy")},
        "published": {"PatchTST": PATCHTST, "DLinear": DLINEAR},
        "runs": results,
        "summary": summary,
        "targets": targets,
    }


def print_table(
    summary: dict[str, dict[str, Any]], datasets: list[str], models: list[str], horizons: list[int]
) -> None:
    print(f"{'':<24}" + "".join(f"{horizon:>22}" for horizon in horizons))
    for data in datasets:
        for name, values in (("PatchTST, published", PATCHTST), ("DLinear, published", DLINEAR)):
            cells = [values[data][HORIZONS.index(horizon)] for horizon in horizons]
            print(f"{data + ' ' + name:<24}" + "".join(f"{cell:>22.3f}" for cell in cells))
        for model in models:
            cells = [summary.get(f"{data} {model} {horizon}") for horizon in horizons]
            text = [f"{c['mse']:.4f} (val. {c['validation']:.4f})" if c else "" for c in cells]
            print(f"{data + ' ' + model:<24}" + "".join(f"{cell:>22}" for cell in text))


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder that contains ett/")
    parser.add_argument("--datasets", nargs="+", choices=list(PATCHTST), default=list(PATCHTST))
    parser.add_argument("--horizons", nargs="+", type=int, choices=HORIZONS, default=list(HORIZONS))
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["forecaster", "dlinear"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of all runs")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    parser.add_argument("--minutes", type=float, help="begin nothing new after so many")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    return parser.parse_args()


def main() -> int:
    options = parsed_options()
    settings = dict(text.split("=", 1) for text in options.set)
    if options.quick:
        settings |= {"training.steps": "3", "training.validate_every": "3", "training.warmup": "1"}
        settings |= {"data.rows": "2600", "data.validation": "730", "training.batch_tokens": "2352", "epochs": "1"}
        settings |= {"steps": "2"}
    runs = [
        Run(data, horizon, model, seed, tuple(settings.items()))
        for seed in options.seeds
        for model in options.models
        for data in options.datasets
        for horizon in options.horizons
    ]
    results: list[dict[str, Any]] = []
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool,
    ):
        futures: list[Future] = [
            pool.submit(train_and_test, run, folder, str(options.data), last_row(run, options.quick)) for run in runs
        ]
        for future in as_completed(futures):
            if future.cancelled():
                continue
            if error := future.exception():
                print(f"failed: {error!r}", file=sys.stderr, flush=True)
                continue
            results.append(future.result())
            shown = ("data", "model", "horizon", "seed", "validation", "mse", "seconds")
            print({key: results[-1][key] for key in shown}, file=sys.stderr, flush=True)
            keep(report_of(results, options), options.out)  # what is there already, if the time is over
            if options.minutes is not None and time.monotonic() - started > 60 * options.minutes:
                for other in futures:
                    other.cancel()
    report = report_of(results, options)
    print_table(report["summary"], options.datasets, options.models, options.horizons)
    keep(report, options.out)
    print(json.dumps(report))
    return int(options.check and not all(report["targets"].values()))


if __name__ == "__main__":
    sys.exit(main())
