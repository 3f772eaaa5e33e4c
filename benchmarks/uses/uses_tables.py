"""The tables of docs/results.md about stories, images, captions and series, from the files that uses_gpu.sh wrote.

    python benchmarks/uses/uses_tables.py benchmarks/results/uses/*-uses-*.jsonl

A line of a file is a result of stories.py, or a report of images.py, captions.py or series.py. Runs with the same
settings but another seed, or other horizons, become one row: mean and standard deviation of the seeds.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.quality.quality_tables import PAGE, filled, markdown_table, read_results, spread

Line = dict[str, Any]
HORIZONS = (96, 192, 336, 720)
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
    best: dict[tuple[str, str, int], Line] = {}  # of T5's learning rates, that with the lowest validation loss
    for line in (line for line in lines if "task" in line):
        key = line["task"], line["system"], line["seed"]
        if key not in best or line.get("validation_loss", 0.0) <= best[key].get("validation_loss", 0.0):
            best[key] = line
    rows = []
    for (task, system), runs in sorted(
        grouped(((task, system), line) for (task, system, _), line in best.items()).items(),
        key=lambda entry: (entry[0][0], list(SYSTEMS).index(entry[0][1])),
    ):
        measure = "exact" if task == "answers" else "rougeL"
        scores = [spread([run["scores"][part][measure] for run in runs], 1) for part in PARTS]
        pointed = [run["scores"]["test"].get("support") for run in runs]
        found = "–" if None in pointed else spread(pointed, 1)
        name = "answers, exact match" if task == "answers" else "summaries, ROUGE-L"
        rows.append((name, SYSTEMS[system], f"{runs[0]['parameters']:,}", *scores, found))
    head = ("task", "system", "parameters", "test", "unseen combinations", "longer stories", "sentences found, test")
    return markdown_table(head, rows)


def images_table(lines: Sequence[Line]) -> str:
    """Accuracy on the test images of Fashion-MNIST."""
    runs = grouped(
        ((system, report["settings"].get("model.stem", "patches") if system == "regard" else ""), run)
        for report in reports(lines, "images")
        for system, systems in report["runs"].items()
        for run in systems
    )
    names = {
        ("regard", "patches"): "`fashion-mnist`, linear patches",
        ("regard", "convolutions"): "`fashion-mnist`, convolutional stem",
    }
    rows = [
        (names.get(key, SYSTEMS.get(key[0], key[0])), f"{found[0]['parameters']:,}",
         cell(found, "validation", 2), cell(found, "accuracy", 2))
        for key, found in sorted(runs.items(), key=lambda entry: -mean(run["accuracy"] for run in entry[1]))
    ]  # fmt: skip
    return markdown_table(("network", "parameters", "validation, %", "test, %"), rows)


def captions_table(lines: Sequence[Line]) -> str:
    """Captions exactly right, and peaks of the attention on the item that a noun names."""
    runs = grouped(
        ((*name.split("/"), f"{run['steps']:,}", " ".join(report["settings"])), run)
        for report in reports(lines, "captions")
        for name, systems in report["runs"].items()
        for run in systems
    )
    rows = [
        (task, SYSTEMS[system] + (f", `{settings}`" if settings else ""), f"{found[0]['parameters']:,}", steps,
         *(cell(found, key) for key in ("test_exact", "test_pointing", "noisy_exact", "noisy_pointing")))
        for (task, system, steps, settings), found in sorted(
            runs.items(), key=lambda entry: (entry[0][0], list(SYSTEMS).index(entry[0][1]), entry[0][2])
        )
    ]  # fmt: skip
    head = ("of", "model", "parameters", "steps", "exact, %", "peaks, %", "noisy: exact, %", "noisy: peaks, %")
    return markdown_table(head, rows)


def series_table(lines: Sequence[Line]) -> str:
    """Mean squared error by horizon, beside the published errors; settings in the order of their validation error."""
    found = list(reports(lines, "series"))
    runs = grouped(
        ((run["data"], run["model"], settings_of(run), run["horizon"]), run)
        for report in found
        for run in report["runs"]
    )
    rows = []
    for data in sorted({key[0] for key in runs}):
        for name, published in found[0]["published"].items():
            rows.append((title(data), f"{name}, published", *(f"{error:.3f}" for error in published[data]), ""))
        kinds = {key[1:3] for key in runs if key[0] == data}
        measured = []
        for model, settings in kinds:
            parts = [runs.get((data, model, settings, horizon), []) for horizon in HORIZONS]
            errors = [cell(part, "mse", 3, 1) if part else "–" for part in parts]
            validation = mean(run["validation"] for part in parts for run in part)
            complete = all(parts)
            shown = f"{validation:.3f}" if complete else "–"
            name = "DLinear" if model == "dlinear" else f"{model}, {settings}" if settings else model
            measured.append((not complete, model, validation, (title(data), name, *errors, shown)))
        rows += [row for *_, row in sorted(measured)]
    head = ("data", "model", *(f"{horizon} hours" for horizon in HORIZONS), "validation, mean")
    return markdown_table(head, rows)


def title(data: str) -> str:
    return data.replace("etth", "ETTh")


def settings_of(run: Line) -> str:
    """Return the settings of a run that differ between rows."""
    shown = {"model.lookback": "lookback", "training.lr": "rate", "training.steps": "steps"}
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
