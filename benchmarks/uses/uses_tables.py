"""The tables of docs/results.md about stories, images, captions and series, from the files that uses_gpu.sh wrote.

    python benchmarks/uses/uses_tables.py benchmarks/results/uses/*-uses-*.jsonl

A line of a file is a result of stories.py, or a report of images.py, captions.py or series.py. Runs with the same
settings but another seed, or other horizons, become one row: mean and standard deviation of the seeds.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.quality.quality_tables import PAGE, filled, markdown_table, read_results, spread

Line = dict[str, Any]
HORIZONS = (96, 192, 336, 720)
MEASUREMENT = timedelta(hours=3)  # longer than all runs of a measurement take
FASHION_MNIST = 60_000  # training images
PARTS = ("test", "combinations", "longer")
SYSTEMS = {
    "pointer-generator": "pointer-generator",
    "transformer": "the same without copying",
    "t5": "T5 of `transformers`",
    "cnn": "a plain CNN",
    "transformers": "ViT of `transformers`",
    "captioner": "`captioner`, a Transformer",
    "rnn-captioner": "`rnn-captioner`, an LSTM",
    "peer": "CNN and LSTM without attention",
}

FORECASTERS = {"dlinear": "DLinear", "patchtst": "PatchTST, our own"}
WINDOWS = {"all": "mse", "full batches": "mse_full_batches"}  # of the test part


def grouped(entries: Iterable[tuple[Hashable, Line]]) -> dict[Any, list[Line]]:
    """Gather entries with the same key, in the order in which keys first occur; of equal seeds the last one counts."""
    groups: dict[Any, dict[Any, Line]] = defaultdict(dict)
    for key, line in entries:
        groups[key][line["seed"]] = line
    return {key: list(runs.values()) for key, runs in groups.items()}


def reports(lines: Sequence[Line], benchmark: str) -> Iterator[Line]:
    return (line for line in lines if line.get("benchmark") == benchmark)


def cell(runs: Sequence[Line], key: str, digits: int = 1, scale: float = 100) -> str:
    """Return the mean over the seeds; – where a run has no such score."""
    if any(key not in run for run in runs):
        return "–"
    return spread([scale * run[key] for run in runs], digits)


def stories_table(lines: Sequence[Line]) -> str:
    """Exact match of answers, ROUGE-L of summaries, on three parts."""
    results = [line for line in lines if "task" in line]
    newest = {(line["task"], line["system"], line["parameters"]): line.get("settings") for line in results}
    best: dict[tuple[str, str, int, int], Line] = {}  # of T5's learning rates, that with the lowest validation loss
    for line in results:
        if line.get("settings") != newest[line["task"], line["system"], line["parameters"]]:
            continue
        key = line["task"], line["system"], line["parameters"], line["seed"]
        if key not in best or line.get("validation_loss", 0.0) <= best[key].get("validation_loss", 0.0):
            best[key] = line
    rows = []
    for (task, system, parameters), runs in sorted(
        grouped((key[:3], line) for key, line in best.items()).items(),
        key=lambda entry: (entry[0][0], list(SYSTEMS).index(entry[0][1]), entry[0][2]),
    ):
        measure = "exact" if task == "answers" else "rougeL"
        scores = [spread([run["scores"][part][measure] for run in runs], 1) for part in PARTS]
        pointed = [run["scores"]["test"].get("support") for run in runs]
        sentences = "–" if None in pointed else spread(pointed, 1)
        name = "answers, exact match" if task == "answers" else "summaries, ROUGE-L"
        rows.append((name, SYSTEMS[system], f"{parameters:,}", steps_of(runs), *scores, sentences))
    head = (
        *("task", "system", "parameters", "steps", "test"),
        *("unseen combinations", "longer stories", "sentences found, test"),
    )
    return markdown_table(head, rows)


def steps_of(runs: Sequence[Line]) -> str:
    """Return the steps of some runs, those planned where a line has no others: a number, or the lowest and highest."""
    planned = [dict(setting.split("=", 1) for setting in run.get("settings", ())) for run in runs]
    steps = sorted(
        {int(run.get("steps", plan.get("training.steps", 0))) for run, plan in zip(runs, planned, strict=True)}
    )
    return " to ".join(f"{count:,}" for count in dict.fromkeys((steps[0], steps[-1])))


def images_table(lines: Sequence[Line]) -> str:
    """Accuracy on the test images of Fashion-MNIST."""
    runs = grouped(
        (
            (
                system,
                report["settings"].get("model.stem", "patches") if system == "regard" else "",
                report["settings"].get("data.mix", ""),
                run["parameters"],
                *image_run(report, run),
            ),
            run,
        )
        for report in reports(lines, "images")
        for system, systems in report["runs"].items()
        for run in systems
    )
    names = {
        ("regard", "patches"): "`fashion-mnist`, linear patches",
        ("regard", "convolutions"): "`fashion-mnist`, convolutions in the stem",
        ("regard", "pooled-convolutions"): "`fashion-mnist`, pooled convolutions in the stem",
    }
    rows = [
        (f"{images:,}", ", ".join(filter(None, (names.get((system, stem), SYSTEMS.get(system, system)), mix))),
         f"{parameters:,}", f"{steps:,}", cell(found, "validation", 2), cell(found, "accuracy", 2))
        for (system, stem, mix, parameters, images, steps), found in sorted(
            runs.items(), key=lambda entry: (-entry[0][4], -mean(run["accuracy"] for run in entry[1]))
        )
    ]  # fmt: skip
    return markdown_table(("training images", "network", "parameters", "steps", "validation, %", "test, %"), rows)


def image_run(report: Line, run: Line) -> tuple[int, int]:
    """Return the images of the training file, validation included, and the steps of a run."""
    return report.get("training images", FASHION_MNIST), int(
        run.get("steps", report["settings"].get("training.steps", 0))
    )


def captions_table(lines: Sequence[Line]) -> str:
    """Captions exactly right, and peaks of the attention on the item that a noun names."""
    runs = grouped(
        ((*name.split("/"), f"{run['steps']:,}", " ".join(report["settings"])), run)
        for report in reports(lines, "captions")
        for name, systems in report["runs"].items()
        for run in systems
    )
    rows = [
        (task, SYSTEMS[system], f"{found[0]['parameters']:,}", steps,
         *(cell(found, key) for key in ("test_exact", "test_pointing", "noisy_exact", "noisy_pointing")))
        for (task, system, steps, _), found in sorted(
            runs.items(), key=lambda entry: (entry[0][0], list(SYSTEMS).index(entry[0][1]), entry[0][2])
        )
    ]  # fmt: skip
    head = ("of", "model", "parameters", "steps", "exact, %", "peaks, %", "noisy: exact, %", "noisy: peaks, %")
    return markdown_table(head, rows)


def series_table(lines: Sequence[Line]) -> str:
    """Mean squared error by horizon, beside the published errors; settings in the order of their validation error."""
    found = newest_measurement_of_each_model(lines)
    runs = grouped(((run["data"], run["model"], settings_of(run), run["horizon"]), run) for run in found)
    published = next(reports(lines, "series"), {"published": {}})["published"]
    rows = []
    for data in sorted({key[0] for key in runs}):
        for name, errors in published.items():
            rows.append((title(data), f"{name}, published", "", *(f"{error:.3f}" for error in errors[data]), ""))
        kinds = {key[1:3] for key in runs if key[0] == data}
        measured = []
        for model, settings in kinds:
            parts = [runs.get((data, model, settings, horizon), []) for horizon in HORIZONS]
            validation = mean(mean(run["validation"] for run in part) for part in parts if part)
            complete = all(parts)
            name = ", ".join((FORECASTERS.get(model, model), *([settings] if settings else [])))
            for windows, key in WINDOWS.items():
                if any(key in run for part in parts for run in part):
                    shown = f"{validation:.3f}" if complete and windows == "all" else ""
                    errors = [cell(part, key, 3, 1) if part else "–" for part in parts]
                    order = (not complete, model, validation, settings, windows)
                    measured.append((order, (title(data), name, windows, *errors, shown)))
        rows += [row for _, row in sorted(measured)]
    head = ("data", "model", "windows", *(f"{horizon} hours" for horizon in HORIZONS), "validation, mean")
    return markdown_table(head, rows)


def newest_measurement_of_each_model(lines: Sequence[Line]) -> list[Line]:
    """Return the runs of the last measurement of each model: recipes change."""
    newest: dict[str, datetime] = {}
    dated = [
        (datetime.fromisoformat(report["date"]), run) for report in reports(lines, "series") for run in report["runs"]
    ]
    for when, run in dated:
        newest[run["model"]] = max(when, newest.get(run["model"], when))
    return [run for when, run in dated if newest[run["model"]] - when < MEASUREMENT]


def title(data: str) -> str:
    return data.replace("etth", "ETTh")


def settings_of(run: Line) -> str:
    """Return the settings of a run that differ between rows."""
    shown = {
        "model.lookback": "lookback",
        "model.patch": "patch",
        "model.shortcut_dropout": "shortcut dropout",
        "training.lr": "rate",
        "training.steps": "steps",
    }
    return ", ".join(f"{label} {run['settings'][key]}" for key, label in shown.items() if key in run["settings"])


TABLES: dict[str, Callable[[Sequence[Line]], str]] = {
    "stories": stories_table,
    "images": images_table,
    "captions": captions_table,
    "series": series_table,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="results of uses_gpu.sh, the newest last")
    parser.add_argument("--print", action="store_true", help="print the tables and leave docs/results.md as it is")
    options = parser.parse_args()
    lines = [line for file in options.files for line in read_results(file)]
    tables = {name: table(lines) for name, table in TABLES.items()}
    if options.print:
        for name, table in tables.items():
            print(f"{name}\n\n{table}\n")
    else:
        measured = {name: table for name, table in tables.items() if table.count("\n") > 1}
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), measured), encoding="utf-8")
        print(f"written to {PAGE.name}: {', '.join(measured)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
