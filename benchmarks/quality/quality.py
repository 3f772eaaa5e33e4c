"""How good are the models that the shipped recipes train? Each is trained and judged by the two commands of a user.

    python benchmarks/quality/quality.py                          what there is to measure, and what has been
    python benchmarks/quality/quality.py --run --jobs 8           train and judge what is missing, eight at a time
    python benchmarks/quality/quality.py --run --only tiny-en-de  some of it
    python benchmarks/quality/quality.py --tables                 write the tables of docs/results.md
    python benchmarks/quality/quality.py --picture                draw BLEU by sentence length and attention

Runs in a folder that holds data/ (docs/training/data.md). A run appends one JSON line to the results. The same command
continues a run that was stopped. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.quality.quality_systems import DATA, LAST_CHARACTERS, Run, all_runs
from benchmarks.quality.quality_tables import draw_picture, read_results, write_tables

RESULTS = Path(__file__).parents[1] / "results" / "quality" / "quality.jsonl"
PARTS = ("test", "validation")  # the second to tune on
LAST_TENTH = "tinyshakespeare-last.txt"


class Runner:
    """Trains and judges, some at a time; what it started is ended with it."""

    def __init__(self, *, folder: Path, results: Path, part: str, jobs: int, minutes: float | None) -> None:
        self.folder, self.results, self.part, self.jobs = folder, results, part, jobs
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self.stopped = False
        self.children: set[subprocess.Popen] = set()
        self.writing = threading.Lock()
        self.hardware, self.versions = machine()

    def run_all(self, runs: Sequence[Run]) -> int:
        """Make the runs; the number of those that failed or are left."""
        self.jobs = max(1, min(self.jobs, len(runs)))
        before = {number: signal.signal(number, self.stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with ThreadPoolExecutor(self.jobs) as pool:
                done = list(pool.map(self.run, runs))
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return done.count(False)

    def stop(self, *_: object) -> None:
        """Ask what runs to save and end."""
        self.stopped = True
        for child in list(self.children):
            child.terminate()

    def run(self, run: Run) -> bool:
        """Train, judge and write one line down; says whether that was done."""
        if self.stopped or (self.deadline is not None and time.monotonic() > self.deadline):
            return False
        folder = self.folder / f"{run.name}-{run.key}"
        print(f"{run.name}: begun", flush=True)
        if not run.direction:
            write_last_tenth(self.folder)
        trained = self.call(train_command(run, folder), folder)
        judged = None if trained is None else self.call(evaluate_command(run, folder, self.part), folder)
        if judged is None:
            return False
        line = {**about(run, self.part), **scores_of(json.loads(judged)), **training_of(folder)}
        line |= {"at_once": self.jobs, "hardware": self.hardware, "versions": self.versions}
        line |= {"date": datetime.now(UTC).isoformat(timespec="seconds")}
        with self.writing, self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        print(f"{run.name}: {shown(line)}, {line['seconds']:.0f} s of training", flush=True)
        return True

    def call(self, arguments: Sequence[str], folder: Path) -> str | None:
        """What `regard` prints on stdout; its stderr goes to a log. None where it failed, with the log's end shown."""
        log = folder.with_name(f"{folder.name}.log")
        threads = str(max(1, (os.cpu_count() or 1) // self.jobs))
        environment = {"OMP_NUM_THREADS": threads, **os.environ}
        with log.open("ab") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", "regard", *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                text=True,
            )
            self.children.add(child)
            if self.stopped:
                child.terminate()
            printed, _ = child.communicate()
            self.children.discard(child)
        if child.returncode == 0:
            return printed
        last = "\n    ".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-4:])
        print(f"regard {shlex.join(arguments)}: ended with {child.returncode}\n    {last}", flush=True)
        return None


def train_command(run: Run, folder: Path) -> list[str]:
    settings = [part for setting in run.settings for part in ("--set", setting)]
    # No sample translations and no pictures of them: nobody looks at them here.
    return ["train", run.system.recipe, *settings, "--set", "training.samples=0", "--out", str(folder), "--quiet"]


def evaluate_command(run: Run, folder: Path, part: str) -> list[str]:
    if not run.direction:
        return ["evaluate", str(folder.parent / LAST_TENTH), "-m", str(folder), *run.system.search, "--json"]
    files = run.files.named(part, run.direction)
    return ["evaluate", *files, "-m", str(folder), *run.system.search, "--tokenize", run.files.tokenize, "--json"]


def write_last_tenth(folder: Path) -> None:
    """The part of tinyshakespeare that no model is trained on, as a file: tail -c 111540 of it."""
    path = folder / LAST_TENTH
    if not path.exists():
        text = Path(DATA["tinyshakespeare"]["raw"].test).read_bytes()[-LAST_CHARACTERS:]
        fresh = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
        fresh.write_bytes(text)
        fresh.replace(path)


def about(run: Run, part: str) -> dict[str, Any]:
    """What was measured; the commands are those of somebody who repeats it."""
    folder = Path("runs") / run.name
    training = [word for word in train_command(run, folder) if word != "--quiet"]
    return {
        "run": run.name,
        "key": run.key,
        "system": run.system.name,
        "direction": run.direction,
        "form": run.form,
        "seed": run.seed,
        "settings": list(run.more),
        "part": part,
        "commands": [f"regard {shlex.join(words)}" for words in (training, evaluate_command(run, folder, part))],
    }


def scores_of(judged: dict[str, Any]) -> dict[str, Any]:
    """What `regard evaluate --json` says, without what can be computed from it."""
    if "bleu" not in judged:
        return {"nats": judged["nll"] / judged["characters"], "window": judged["window"], "stride": judged["stride"]}
    lengths = [
        {key: bucket[key] for key in ("low", "high", "count", "merged")}
        | {"bleu": round(bucket["bleu"]["value"], 3), "interval": bucket["bleu"]["interval"]}
        for bucket in judged["by_length"]
    ]
    return {"bleu": judged["bleu"], "chrf": judged["chrf"], "by_length": lengths}


def training_of(folder: Path) -> dict[str, Any]:
    """Size, steps and seconds of the training, and how the model did on the validation part."""
    from safetensors import safe_open

    training = folder / "training"
    state = json.loads((training / (training / "latest").read_text() / "state.json").read_text(encoding="utf-8"))
    progress = state["progress"]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    with safe_open(folder / "model.safetensors", framework="numpy") as weights:
        names = weights.keys()
        parameters = sum(math.prod(weights.get_slice(name).get_shape()) for name in names)
    scores = config.get("scores", {})
    validation = {"loss": scores.get("loss"), "bleu": scores.get("bleu", {}).get("value")}
    return {
        "parameters": parameters,
        "steps": progress["step"],
        "best_step": progress["best_step"],
        "tokens": progress["tokens"],
        "seconds": round(progress["seconds"], 3),
        "preparing": round(progress.get("preparing", 0.0), 3),
        "validation": validation,
    }


def machine() -> tuple[dict[str, Any], dict[str, str]]:
    """What it is measured on, and with."""
    import sacrebleu
    import torch

    import regard
    from benchmarks.timing import hardware

    versions = {
        "regard": regard.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "sacrebleu": sacrebleu.__version__,
    }
    return hardware("cuda" if torch.cuda.is_available() else "cpu"), versions


def shown(line: dict[str, Any]) -> str:
    return f"{line['nats']:.4f} nats" if "nats" in line else f"BLEU {line['bleu']['value']:.2f}"


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="train and judge what is missing in the results")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="tiny, tiny-en-de, tiny-en-de-raw-1, …")
    parser.add_argument("--forms", nargs="+", default=[], choices=list(DATA["multi30k"]))
    parser.add_argument("--seeds", nargs="+", type=int, default=[])
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="try another setting"
    )
    parser.add_argument("--part", choices=PARTS, default="test", help="judge on this part; tune on validation only")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time")
    parser.add_argument("--minutes", type=float, help="begin nothing new after so many")
    parser.add_argument("--folder", type=Path, default=Path("runs/quality"), help="for the models")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="write the tables of docs/results.md")
    parser.add_argument("--picture", action="store_true", help="draw docs/images/multi30k-by-length.png")
    return parser.parse_args()


def main() -> None:
    options = parsed_options()
    runs = all_runs(only=options.only, forms=options.forms, seeds=options.seeds, more=options.set)
    if options.only and not runs:
        raise SystemExit(f"nothing is called {' or '.join(options.only)}; without --only all names are listed")
    results = read_results(options.results)
    known = {(line["key"], line["part"]): line for line in results}
    left = [run for run in runs if (run.key, options.part) not in known]
    if options.run:
        options.folder.mkdir(parents=True, exist_ok=True)
        runner = Runner(
            folder=options.folder,
            results=options.results,
            part=options.part,
            jobs=options.jobs,
            minutes=options.minutes,
        )
        open_runs = runner.run_all(left)
        print(f"{len(runs) - open_runs} of {len(runs)} are in {options.results.name}")
        raise SystemExit(1 if open_runs else 0)
    if options.tables:
        write_tables(results)
    if options.picture:
        print(f"wrote {draw_picture(results).name}")
    if not options.tables and not options.picture:
        for run in runs:
            line = known.get((run.key, options.part))
            print(f"{run.name:40} {'' if line is None else shown(line)}".rstrip())
    print(json.dumps({"runs": len(runs), "measured": len(runs) - len(left)}))


if __name__ == "__main__":
    main()
