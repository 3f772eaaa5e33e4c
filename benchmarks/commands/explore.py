"""How long until `regard explore` shows its page, and until it has read a new sentence? The command, as it is started.

Targets: the first page in under 3 seconds from the start of the process, a new sentence in under 2 seconds, and
/health in under 50 ms while a model works. Wall time is judged, the worst of all runs: run it on an idle machine.
Prints a table and, as the last line, everything as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import Request, urlopen

import regard
from benchmarks.timing import command, hardware, keep
from regard.demo.corpus import demo_pairs

STATIC = Path(regard.__file__).parent / "look" / "page" / "static"
PAGE = ("", "app.css", "app.js", "api/models")  # what a browser asks for before it shows something
TARGETS = {"page": 3.0, "sentence": 2.0, "health": 0.05}
BUSY = 0.5  # load of other work from which on times say little


class Explorer:
    """The command in a process of its own, and the moment of its start."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        command = [sys.executable, "-m", "regard", "explore", "--no-browser", "--port", "0", "fr-en"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        self.process = subprocess.Popen(command, **pipes)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def ask(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        content = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.address}{path}", content, {"Content-Type": "application/json"})
        with urlopen(request, timeout=120) as answer:
            return answer.read()

    def since_start(self) -> float:
        return round(time.perf_counter() - self.start, 3)

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def measure_start() -> dict[str, float]:
    """Seconds from the start of the process to the address, the page, and the model."""
    explorer = Explorer()
    seconds = {"address": explorer.since_start()}
    for path in PAGE:
        explorer.ask(path)
    seconds["page"] = explorer.since_start()
    while b'"state":"ready"' not in explorer.ask("api/models"):
        time.sleep(0.01)
    seconds["model"] = explorer.since_start()
    explorer.end()
    return seconds


def measure_sentences(count: int) -> dict[str, Any]:
    """Seconds for each new sentence, and for /health meanwhile."""
    explorer = Explorer()
    sentences = [pair.source for pair in demo_pairs("test", count)]
    explorer.ask("api/trace", {"model": "fr-en", "text": "bonjour"})  # waits for the model
    health: list[float] = []
    working = True

    def ask_health() -> None:
        while working:
            health.append(seconds(lambda: explorer.ask("health")))
            time.sleep(0.005)

    thread = threading.Thread(target=ask_health)
    thread.start()
    taken = [
        seconds(lambda text=text: explorer.ask("api/trace", {"model": "fr-en", "text": text})) for text in sentences
    ]
    working = False
    thread.join()
    explorer.end()
    return {"sentence": taken, "health": health}


def seconds(run: Any) -> float:
    start = time.perf_counter()
    run()
    return round(time.perf_counter() - start, 5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one start, few sentences: does it run?")
    parser.add_argument(
        "--check", action="store_true", help="exit status 1 when a target is missed or the machine is busy"
    )
    parser.add_argument("--out", type=Path, help="file for the JSON object")
    args = parser.parse_args()
    starts, sentences = (1, 3) if args.quick else (10, 100)
    report: dict[str, Any] = {
        "benchmark": "explore",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware("cpu"),
        "versions": {"python": sys.version.split()[0], "regard": regard.__version__}
        | {name: version(name) for name in ("torch", "fastapi", "uvicorn")},
    }
    print(report["hardware"], report["versions"], sep="\n")
    began = [measure_start() for _ in range(starts)]
    times: dict[str, list[float]] = {name: [start[name] for start in began] for name in ("address", "page", "model")}
    times |= measure_sentences(sentences)
    packed = {name: len(gzip.compress((STATIC / name).read_bytes())) for name in ("index.html", "app.css", "app.js")}
    print("\n                       times   median s    worst s   target s")
    for name, taken in times.items():
        target = f"{TARGETS[name]:>11}" if name in TARGETS else ""
        print(f"{name:<20}{len(taken):>8}{median(taken):>11.3f}{max(taken):>11.3f}{target}")
    print(f"\nthe page's files, packed: {sum(packed.values()):,} bytes")
    busy = report["hardware"]["load"] > BUSY
    met = None if args.quick else all(max(times[name]) < target for name, target in TARGETS.items())
    seconds = {
        name: {"times": len(taken), "median": median(taken), "worst": sorted(taken, reverse=True)[:10]}
        for name, taken in times.items()
    }
    report |= {"packed_bytes": packed, "seconds": seconds, "summary": {"met": met, "busy": busy, "targets": TARGETS}}
    keep(report, args.out)
    print(json.dumps(report))
    return int(args.check and (busy or not met))


if __name__ == "__main__":
    sys.exit(main())
