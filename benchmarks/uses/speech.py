"""Spoken digits: regard's recognizers and `transformers`' Speech2Text on the Free Spoken Digit Dataset.

    python benchmarks/uses/speech.py --data data --tune --jobs 14
    python benchmarks/uses/speech.py --data data --seeds 1 2 3 --speakers --jobs 14

DATA/fsdd has the folder recordings, or an archive of it, recordings.tar.gz or .tar.xz. The data set's own split: index
0 to 4 of each digit and speaker is the test part. Every system learns from the same batches (single digits and strings
of up to 7, with the changes of the recipe `fsdd`), for the same number of steps unless --fit or --limit say otherwise.
It is tested on the single digits of the test part, and on strings of 3 to 7 of them by one speaker, with up to 0.3 s of
silence between two. With --speakers, systems also learn from five speakers and are tested on the sixth; nothing was
tuned on that test.

--demo learns the digits that regard speaks itself, as the recipe `demo-speech` says, and needs no data: a comparison
that two cores can make. It is tested on other digits of the same voices, and on strings of 3 to 5 of them.

--tune never reads the test part: it trains the variants below on index 10 to 49 and compares them on index 5 to 9.
--choose FILE takes the variant that such a comparison found best, and --fit FILE as many steps as fit into --limit by
the speed that was measured there.

"placed" is the share of digits whose attention peak (CTC: whose label) lies in their own part of the recording.
Targets: 97% of single digits right, and a digit error rate on strings under 5%, by the system "attention".
Each training stops after --limit seconds and is tested as far as it came. Prints a table and a last line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch

import regard
from benchmarks.timing import command, hardware, keep
from regard.arrays.speech.recordings import Recordings, make_recordings, read_recordings
from regard.demo.speech import VOICES, WORDS, demo_speech
from regard.errors import StoppedError
from regard.training.recipe.schema import Recipe
from regard.training.recipe.toml_file import read_recipe

TEST_INDICES = 5  # of each digit and speaker, from 0
GAP = 0.3  # seconds between two digits, at most
STRINGS = 400
TEST_SECONDS = 25  # that a test takes at most
STARTUP, FIT = 20, 0.8  # seconds until the first step, and the share of the rest that steps are planned for
DEMO_TEST = 300  # digits
NEVER = 1e12  # seconds since 1970
SYSTEMS: dict[str, dict[str, Any]] = {
    "attention": {},
    "listen-attend-spell": {
        "kind": "listen-attend-spell",
        "hidden": 192,
        "embedding": 64,
        "encoder_hidden": 96,
        "dropout": 0.2,
    },
    "ctc": {"kind": "speech-ctc", "layers": 6, "decoder_layers": None, "ctc": None},
    "attention without ctc": {"ctc": None},
    "transformers": {},
    "transformers with half lr": {},
}
PEERS = ("transformers", "transformers with half lr")
# One change each of the recipe `fsdd`, compared by --tune.
VARIANTS: dict[str, dict[str, Any]] = {
    "recipe": {},
    "scaling": {"model.scaling": "bands"},
    "no local layers": {"model.local_layers": 0},
    "4 local layers": {"model.local_layers": 4},
    "subsampling": {"model.subsampling": 2},
    "less ctc": {"model.ctc": 0.3},
    "more masks": {"data.masks": 3},
    "more speed": {"data.speed": 0.25},
    "dropout": {"model.dropout": 0.2},
    "lr": {"training.lr": 1e-3},
    "average": {"training.ema": 0.998},
    "fast growth": {"data.growth": 1},
}
TUNED_SYSTEMS = ("listen-attend-spell", "ctc")  # for their speed
BEAM = 5
QUICK = {"model": {"layers": 1, "decoder_layers": 1, "dim": 32, "heads": 2, "hidden": 64}}


def folder_of(data: Path) -> Path:
    """Return the folder of the recordings; an archive is unpacked beside the temporary files."""
    folder = data / "fsdd" / "recordings"
    if folder.is_dir():
        return folder
    unpacked = Path(tempfile.gettempdir()) / "fsdd-recordings"
    if not unpacked.is_dir():
        partial = Path(tempfile.mkdtemp())
        with tarfile.open(next(folder.parent.glob("recordings.tar*"))) as archive:
            archive.extractall(partial, filter="data")
        (partial / "recordings").rename(unpacked)
    return unpacked


def parts_of(path: Path) -> tuple[str, str, int]:
    """Return the digit, the speaker and the index in a name such as 7_jackson_32.wav."""
    digit, speaker, index = path.stem.split("_")
    return digit, speaker, int(index)


def write_tables(recordings: Path, folder: Path, held_out: str | None, tune: bool) -> tuple[Path, Path]:
    """Write the tables of the training and the test part: by index, or with a speaker as the test part.

    To tune, the data set's own test part is left out, and the next indices take its place.
    """
    tables = folder / "train.tsv", folder / "test.tsv"
    lines: tuple[list[str], list[str]] = ([], [])
    for path in sorted(recordings.glob("*.wav")):
        digit, speaker, index = parts_of(path)
        if tune and index < TEST_INDICES:
            continue
        is_test = speaker == held_out if held_out else index < (2 if tune else 1) * TEST_INDICES
        lines[is_test].append(f"{path.resolve()}\t{digit}\n")
    for table, rows in zip(tables, lines, strict=True):
        table.write_text("".join(rows))
    return tables


def demo_test() -> Recordings:
    """Return digits of the demo that no training has heard, named like those of the data set."""
    singles = demo_speech(DEMO_TEST, seed=99)
    names = [f"{text}_{i // len(WORDS) % VOICES}_{i}.wav" for i, text in enumerate(singles.texts)]
    return replace(singles, names=names)


def strings_of(
    singles: Recordings, count: int, seed: int = 7, longest: int = 7
) -> tuple[Recordings, list[list[tuple[float, float]]]]:
    """Join recordings of one speaker to strings of 3 to `longest` digits; also return the seconds of each digit."""
    generator = np.random.Generator(np.random.PCG64(seed))
    by_speaker: dict[str, list[int]] = {}
    for i, name in enumerate(singles.names):
        by_speaker.setdefault(parts_of(Path(name))[1], []).append(i)
    speakers, audio, texts, places = sorted(by_speaker), [], [], []
    for n in range(count):
        recordings = by_speaker[speakers[n % len(speakers)]]
        chosen = [
            recordings[int(i)]
            for i in generator.integers(len(recordings), size=int(generator.integers(3, longest + 1)))
        ]
        sound: list[Any] = []
        spans = []
        for i in chosen:
            if sound:
                sound.append(np.zeros(int(generator.uniform(0, GAP) * singles.rate), np.float32))
            start = sum(map(len, sound)) / singles.rate
            sound.append(singles.audio[i])
            spans.append((start, start + len(singles.audio[i]) / singles.rate))
        audio.append(np.concatenate(sound))
        texts.append(" ".join(singles.texts[i] for i in chosen))
        places.append(spans)
    return make_recordings(audio, texts, singles.rate, name="strings"), places


def recipe_of(job: dict[str, Any], table: Path) -> Recipe:
    """Return the recipe of a job: that of the data set, with the network of its system."""
    name = "demo-speech" if job["demo"] else "fsdd"
    overrides = {} if job["demo"] else {"data.speech": str(table)}
    overrides |= {"training.seed": job["seed"], "training.kernels": "off"}
    overrides |= {"training.precision": "fp32", **job["set"]}
    if job["system"] == "transformers with half lr":
        overrides["training.lr"] = (read_recipe(name, overrides).training.lr or 1e-3) / 2
    if job["system"] != "attention":  # a network of another kind has no use for the others
        overrides = {key: value for key, value in overrides.items() if key.partition(".")[0] != "model"}
    recipe = read_recipe(name, overrides)
    model = SYSTEMS[job["system"]]
    if "layers" not in model and "kind" in model:
        settings = dict(model)
    else:
        settings = {**recipe.model, **model, **(QUICK["model"] if job["quick"] else {})}
        settings = {key: value for key, value in settings.items() if value is not None}
        if settings["kind"] == "speech-ctc":
            settings = {key: value for key, value in settings.items() if key not in ("decoder_layers", "ctc")}
    return Recipe(
        name=recipe.name, data=recipe.data, tokenizer=recipe.tokenizer, model=settings, training=recipe.training
    )


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """Train one system and test it; a training that takes too long is stopped, and its best model is tested."""
    started = time.perf_counter()
    limit = min(job["limit"], job["deadline"] - time.time() - TEST_SECONDS)
    timer = threading.Timer(max(1.0, limit), os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, test = write_tables(Path(job["recordings"]), folder, job["held_out"], job["tune"])  # none of the demo
        recipe = recipe_of(job, train)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        facts = {key: job[key] for key in ("system", "variant", "seed", "held_out")}
        stopped = False
        if job["system"] in PEERS:
            from benchmarks.uses.speech_peer import train_peer

            transcriber, steps = train_peer(recipe, torch.device(device), seconds=limit)
        else:
            timer.start()
            try:
                regard.train(recipe, out=folder / "run", quiet=True)
            except StoppedError:
                stopped = True
            timer.cancel()
            metrics = (folder / "run" / "metrics.jsonl").read_text().splitlines()
            steps = max(json.loads(line).get("step", 0) for line in metrics)
            facts["seconds a step"] = seconds_a_step([json.loads(line) for line in metrics])
            transcriber = regard.load(folder / "run", device=device)
        trained = time.perf_counter() - started
        singles = demo_test() if job["demo"] else read_recordings([test], transcriber.rate)
        scores = tested(transcriber, singles, job["strings"], longest=recipe.data.joined)
    weights = sum(weight.numel() for weight in transcriber.model.parameters())
    seconds = {"seconds": round(trained, 1), "test seconds": round(time.perf_counter() - started - trained, 1)}
    return {**facts, **scores, "parameters": weights, "steps": steps, "stopped": stopped, **seconds}


def seconds_a_step(metrics: list[dict[str, Any]]) -> float | None:
    """Return the median time of a training step, from the tokens of each report and their throughput."""
    reports = [record for record in metrics if record.get("kind") == "train"]
    pairs = [(a, b) for a, b in pairwise(reports) if b["tokens_per_second"]]
    times = [(b["tokens"] - a["tokens"]) / b["tokens_per_second"] / (b["step"] - a["step"]) for a, b in pairs]
    return median(times) if times else None


def tested(transcriber: Any, singles: Recordings, count: int, longest: int) -> dict[str, float]:
    """Return the accuracy on single digits, the digit error rate on strings, and how many digits are placed right."""
    strings, places = strings_of(singles, count, longest=longest)
    result = errors_of(transcriber, singles, strings, beam=1)
    if transcriber.step:  # the peer has no beam, and gives no times
        result |= errors_of(transcriber, singles, strings, beam=BEAM)
        pairs = [(samples, strings.rate) for samples in strings.audio]
        right = placed = 0
        for transcript, text, spans in zip(
            transcriber.transcribe(pairs, attention=True), strings.texts, places, strict=True
        ):
            if transcript.text != text or transcript.times is None:
                continue
            for second, (start, end) in zip(transcript.times, spans, strict=True):
                right += 1
                placed += start - transcript.step <= second <= end + transcript.step
        result |= {"placed": placed / right} if right else {}
    return result


def errors_of(transcriber: Any, singles: Recordings, strings: Recordings, *, beam: int) -> dict[str, float]:
    """Return the errors of a search; the names of those of a beam say so."""
    single, joined = transcriber.evaluate(singles, beam=beam), transcriber.evaluate(strings, beam=beam)
    scores = {"accuracy": single["exact"], "digit error rate": joined["wer"], "strings right": joined["exact"]}
    return scores if beam == 1 else {f"{name}, beam {beam}": value for name, value in scores.items()}


def jobs_of(options: argparse.Namespace, recordings: Path) -> Iterator[dict[str, Any]]:
    """Yield what is to be trained: all systems with all seeds, then with each speaker held out; or the variants."""
    settings = dict(text.split("=", 1) for text in options.set)
    if options.choose and options.choose.is_file():
        settings = VARIANTS[json.loads(options.choose.read_text())["best"]] | settings
    settings |= {"training.steps": options.steps} if options.steps else {}
    if options.quick:
        settings |= {"training.steps": 4, "training.warmup": 1, "training.validate_every": 2, "training.log_every": 1}
        settings |= {"training.batch_tokens": 2000}
    common = {
        "recordings": str(recordings),
        "quick": options.quick,
        "strings": 20 if options.quick else STRINGS,
        "demo": options.demo,
        "tune": options.tune,
        "limit": options.limit,
        "seed": 1,
        "held_out": None,
        "variant": None,
        "deadline": time.time() + options.seconds if options.seconds else NEVER,
    }

    def job(system: str, **changes: Any) -> dict[str, Any]:
        return {**common, "system": system, "set": fitting_steps(options, system, settings), **changes}

    if options.tune:
        for name, change in VARIANTS.items():
            yield {**job("attention", variant=name), "set": settings | change}
        yield from (job(system) for system in TUNED_SYSTEMS)
        return
    for system in options.systems:
        yield from (job(system, seed=seed) for seed in options.seeds)
    if options.speakers:
        speakers = sorted({parts_of(path)[1] for path in recordings.glob("*.wav")})
        for system in options.speaker_systems:
            yield from (job(system, held_out=speaker) for speaker in speakers)


def fitting_steps(options: argparse.Namespace, system: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with as many steps as fit into the limit, at most those of the recipe or the options."""
    if not (options.fit and options.fit.is_file()):
        return settings
    speeds = json.loads(options.fit.read_text())["seconds a step"]
    speed = speeds.get(system) or speeds.get("attention")
    if not speed:
        return settings
    most = int(settings.get("training.steps") or read_recipe("fsdd", {"data.speech": "."}).training.steps or 1)
    steps = max(1, int(FIT * (options.limit - STARTUP) / speed))
    return settings | {"training.steps": min(most, steps)}


def run_all(jobs: list[dict[str, Any]], at_a_time: int, seconds: float | None) -> Iterator[dict[str, Any]]:
    """Run each job in a process of its own; after `seconds`, those that still run are ended."""
    started, running = time.monotonic(), []
    waiting = list(jobs)
    with tempfile.TemporaryDirectory() as name:
        while waiting or running:
            while waiting and len(running) < at_a_time:
                job, number = waiting.pop(0), len(jobs) - len(waiting)
                result = Path(name) / f"{number}.json"
                log = (Path(name) / f"{number}.txt").open("w")
                arguments = [sys.executable, __file__, "--job", json.dumps(job), "--result", str(result)]
                running.append((job, result, log, subprocess.Popen(arguments, stdout=log, stderr=log)))
            time.sleep(0.2)
            if seconds is not None and time.monotonic() - started > seconds + 10:
                waiting = []
                for _, _, _, process in running:
                    process.kill()
            for entry in [entry for entry in running if entry[3].poll() is not None]:
                running.remove(entry)
                job, result, log, process = entry
                log.close()
                if result.is_file():
                    yield json.loads(result.read_text())
                else:
                    last = Path(log.name).read_text().strip().splitlines()[-1:]
                    print(f"{job['system']} {job['seed']} {job['held_out']}: {last}", file=sys.stderr, flush=True)


def groups_of(runs: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the runs of each system, with each speaker held out apart."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        variant = f": {run['variant']}" if run["variant"] else ""
        name = run["system"] + variant + (", unseen speakers" if run["held_out"] else "")
        groups.setdefault(name, []).append(run)
    return groups


def summary_of(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the means over the seeds, and over the speakers that were held out, of each system."""
    scores = ("accuracy", "digit error rate", "strings right")
    keys = (*scores, *(f"{key}, beam {BEAM}" for key in scores), "placed", "parameters", "steps", "seconds")
    return {
        name: {"runs": len(group)}
        | {key: mean(run[key] for run in group) for key in keys if all(key in run for run in group)}
        for name, group in groups_of(runs).items()
    }


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder that contains fsdd/")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--speakers", action="store_true", help="also hold out each speaker")
    parser.add_argument("--speaker-systems", nargs="+", choices=SYSTEMS, default=["attention", "ctc"])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings unlike the recipe's")
    parser.add_argument("--demo", action="store_true", help="learn the digits that regard speaks")
    parser.add_argument("--tune", action="store_true", help="compare variants of the recipe, without the test part")
    parser.add_argument("--choose", type=Path, help="JSON of --tune: take the best variant")
    parser.add_argument("--fit", type=Path, help="JSON of --tune: take as many steps as fit into the limit")
    parser.add_argument("--steps", type=int, help="of each training; default: those of the recipe")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    parser.add_argument("--limit", type=float, default=3600, help="seconds of one training")
    parser.add_argument("--seconds", type=float, help="of all together: later trainings are shorter")
    parser.add_argument("--quick", action="store_true", help="a few steps of small models, to see that it runs")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the table of a JSON file, and train nothing")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file, after each training")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def report_of(runs: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Return everything that was measured so far."""
    summary = summary_of(runs)
    attention = summary.get("attention", {})
    reached = {
        f"beam {beam}": attention.get(f"accuracy{end}", 0) >= 0.97 and attention.get(f"digit error rate{end}", 1) < 0.05
        for beam, end in ((1, ""), (BEAM, f", beam {BEAM}"))
    }
    outcome: dict[str, Any] = {"target reached": reached}
    if options.tune:
        speeds: dict[str, list[float]] = {}
        for run in runs:
            if run.get("seconds a step") and run["variant"] in (None, "recipe"):
                speeds.setdefault(run["system"], []).append(run["seconds a step"])
        ranking = sorted((wrong_share(run), run["variant"]) for run in runs if run["variant"])
        outcome = {"best": ranking[0][1] if ranking else "recipe", "ranking": ranking}
        outcome["seconds a step"] = {system: max(values) for system, values in speeds.items()}
    return {
        "benchmark": "speech",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware("cuda" if torch.cuda.is_available() else "cpu"),
        "versions": {name: version(name) for name in ("torch", "numpy")},
        "runs": runs,
        "summary": summary,
        **outcome,
    }


def wrong_share(run: dict[str, Any]) -> float:
    """Return what variants are compared by: the mean of the errors in single digits and in strings, both searches."""
    ends = ("", f", beam {BEAM}")
    return mean(value for end in ends for value in (1 - run[f"accuracy{end}"], run[f"digit error rate{end}"]))


def table_of(report: dict[str, Any]) -> str:
    """Return the table of docs/results.md: means and, of several trainings, the lowest and the highest value."""
    columns = ("accuracy", "digit error rate", f"accuracy, beam {BEAM}", f"digit error rate, beam {BEAM}", "placed")
    heads = ("single digits right", "digit error rate of strings", f"right, beam {BEAM}", f"error rate, beam {BEAM}")
    lines = [
        f"| system | trainings | parameters | steps | {' | '.join(heads)} | digits placed right |",
        "| --- " * 9 + "|",
    ]
    groups = groups_of(report["runs"])
    for name in sorted(groups, key=lambda name: [name.startswith(system) for system in SYSTEMS], reverse=True):
        group = groups[name]
        cells = [name, str(len(group)), f"{group[0]['parameters']:,}", f"{mean(run['steps'] for run in group):,.0f}"]
        for column in columns:
            values = [100 * run[column] for run in group if column in run]
            spread = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
            cells.append(f"{mean(values):.1f}%{spread}" if values else "–")
        lines.append(f"| {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def main() -> int:
    options = parsed_options()
    if options.table:
        print(table_of(json.loads(options.table.read_text())), end="")
        return 0
    if options.job:
        options.result.write_text(json.dumps(run_job(json.loads(options.job))))
        return 0
    runs: list[dict[str, Any]] = []
    recordings = Path("no recordings") if options.demo else folder_of(options.data.resolve())
    jobs = list(jobs_of(options, recordings))
    for run in run_all(jobs, options.jobs, options.seconds):
        runs.append(run)
        print(run, file=sys.stderr, flush=True)
        keep(report_of(runs, options), options.out)
    report = report_of(runs, options)
    for name, row in report["summary"].items():
        errors = f"{row['accuracy']:>9.2%} single {row['digit error rate']:>8.2%} errors in strings"
        wide = f"{row.get(f'accuracy, beam {BEAM}', 0):>9.2%} {row.get(f'digit error rate, beam {BEAM}', 0):>8.2%}"
        rest = f"{row.get('placed', 0):>9.1%} placed{row['steps']:>7.0f} steps{row['seconds']:>6.0f} s"
        print(f"{name:<36}{errors}, beam {BEAM}:{wide}{rest}")
    print(json.dumps(report))
    return int(options.check and not any(report["target reached"].values()))


if __name__ == "__main__":
    sys.exit(main())
