"""`regard serve` under load, beside LibreTranslate and CTranslate2 with the same weights, in turns on one machine.

    python benchmarks/serve/serve.py --file sentences.fr --out results.json --load clients-32
    python benchmarks/serve/serve.py --out results.json --table          print the table of all loads measured so far

Each server runs in a process of its own, all of them at the same time, and they are asked in turns. `--libretranslate`
is a Python of an environment with libretranslate; without it, that server is left out. Every answer of regard is
compared with `Translator.translate` of that text alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.serve.load import Load, Text, run_load
from benchmarks.timing import command, hardware
from regard.api.model_names import find_model

HERE = Path(__file__).parent
BEAM, THREADS = 4, 2
LONG = 8  # sentences of a long text
START_SECONDS = 120
# clients, texts of a request, share of long texts
LOADS = {
    "clients-1": (1, 1, 0.0),
    "clients-8": (8, 1, 0.0),
    "clients-32": (32, 1, 0.0),
    "clients-128": (128, 1, 0.0),
    "lists-64": (4, 64, 0.0),
    "mix-32": (32, 1, 0.1),
}


class Server:
    """A server in a process of its own, on a port of this machine."""

    def __init__(self, name: str, command: list[str], port: int, environment: dict[str, str] | None = None) -> None:
        self.name, self.port = name, port
        began = time.perf_counter()
        log = open(Path(tempfile.gettempdir()) / f"benchmark-{name}.log", "w")  # noqa: SIM115  # open while it runs
        self.process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, stdout=log, stderr=log)
        self.ready_seconds = self.wait_for_an_answer(began)

    def wait_for_an_answer(self, began: float) -> float:
        while time.perf_counter() - began < START_SECONDS and self.process.poll() is None:
            try:
                load = asyncio.run(run_load(self.port, cycle(["Bonjour."]), clients=1, seconds=0.01, expected=None))
            except OSError:
                time.sleep(0.02)
                continue
            if load.statuses.get(200):
                return time.perf_counter() - began
        raise TimeoutError(f"{self.name} has not answered for {START_SECONDS} seconds")

    def memory_bytes(self) -> int:
        """Return the resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(status.partition("VmRSS:")[2].split()[0])

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def start_servers(names: list[str], folder: Path, libretranslate: str | None) -> Iterator[Server]:
    """Start these servers, one after the other. Their ports are fixed, to find what a crashed run left behind."""
    from regard.interop.exports.exporting import export_model

    if any(name.startswith("ctranslate2") for name in names) and not (folder / "ct2").exists():
        export_model(find_model("fr-en"), folder / "ct2", to="ct2", storage="int8")
    serve = [sys.executable, "-m", "regard", "serve", "fr-en", "--beam", str(BEAM), "--log", "off", "--queue", "512"]
    bare = [sys.executable, str(HERE / "ctranslate2_server.py")]
    for port, name in enumerate(names, start=8930):
        if name.startswith("regard"):
            dtype = name.partition("-")[2] or "auto"
            yield Server(name, [*serve, "--port", str(port), "--dtype", dtype, "--threads", str(THREADS)], port)
        elif name == "libretranslate" and libretranslate is not None:
            environment = {"ARGOS_PACKAGES_DIR": str(argos_packages(folder)), "ARGOS_INTER_THREADS": str(THREADS)}
            environment |= {"ARGOS_INTRA_THREADS": "1", "OMP_NUM_THREADS": "1", "ARGOS_COMPUTE_TYPE": "int8"}
            script = str(HERE / "libretranslate_server.py")
            yield Server(name, [libretranslate, script, str(port)], port, environment)
        elif name == "ctranslate2":
            yield Server(name, [*bare, str(port), str(folder / "ct2")], port)
        elif name == "ctranslate2-batched":
            yield Server(name, [*bare, str(port), str(folder / "ct2"), "5"], port)


def argos_packages(folder: Path) -> Path:
    """Export the model as a package of Argos Translate, and return the folder of packages."""
    import zipfile

    from regard.interop.exports.exporting import export_model

    packages = folder / "argos"
    if not packages.exists():
        package = export_model(find_model("fr-en"), folder / "fr_en.argosmodel", to="argos", storage="int8")
        zipfile.ZipFile(package).extractall(packages)
    return packages


def expected_answers(texts: list[str], dtype: str, cache: Path) -> dict[str, str]:
    """Return what the Translator writes for each text alone. The cache is a file, so that a short run can use it."""
    from regard.decoding.searches.beam import Beam
    from regard.tasks.loading import load

    answers: dict[str, str] = json.loads(cache.read_text()) if cache.exists() else {}
    if missing := [text for text in texts if text not in answers]:
        translator: Any = load("fr-en", device="cpu", dtype=dtype)
        answers |= {text: translator.translate(text, search=Beam(BEAM)).text for text in missing}
        cache.write_text(json.dumps(answers))
    return answers


def requests_of(load: str, sentences: list[str], seed: int) -> Iterator[Text]:
    """Yield the texts of a load for ever, in random order, so that no server can answer from a cache."""
    _, size, long_share = LOADS[load]
    draw = random.Random(seed)
    while True:
        if size > 1:
            yield draw.sample(sentences, size)
        elif draw.random() < long_share:
            start = LONG * draw.randrange(len(sentences) // LONG)
            yield " ".join(sentences[start : start + LONG])
        else:
            yield draw.choice(sentences)


def measure(servers: list[Server], load: str, sentences: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Ask the servers in turns, and return the median of the rounds for each."""
    clients, _, long_share = LOADS[load]
    longest = max(map(len, sentences))
    long_texts = [" ".join(sentences[i : i + LONG]) for i in range(0, len(sentences) - LONG + 1, LONG)]
    rounds: dict[str, list[dict[str, Any]]] = {server.name: [] for server in servers}
    answers = {
        server.name: expected_answers(
            sentences + (long_texts if long_share else []),
            server.name.partition("-")[2] or "auto",
            options.folder / f"expected-{server.name}.json",
        )
        for server in servers
        if server.name.startswith("regard")
    }
    if options.prepare:
        return {}

    def ask(server: Server, seconds: float, seed: int) -> Load:
        texts = requests_of(load, sentences, seed)
        return asyncio.run(
            run_load(
                server.port,
                texts,
                clients=clients,
                seconds=seconds,
                expected=answers.get(server.name),
                is_short=lambda text: len(text) <= longest,
            )
        )

    for server in servers:
        ask(server, options.warm_up, seed=0)
    for number in range(options.rounds):
        for server in servers[number % len(servers) :] + servers[: number % len(servers)]:
            cpu = server.cpu_seconds()
            result = ask(server, options.seconds, seed=1 + number)
            summary = result.summary()
            summary["cpu_ms_per_text"] = round(1000 * (server.cpu_seconds() - cpu) / max(1, result.texts), 2)
            rounds[server.name].append(summary)
            for text, found in result.wrong[:3]:
                print(f"{server.name}: {text!r} became {found!r}", file=sys.stderr)
    return {name: middle(summaries) for name, summaries in rounds.items()}


def middle(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of the numbers of several rounds; counts are added."""
    result: dict[str, Any] = {}
    for name, value in summaries[0].items():
        values = [summary[name] for summary in summaries]
        if isinstance(value, dict):
            result[name] = {key: sum(each.get(key, 0) for each in values) for each in values for key in each}
        else:
            result[name] = sum(values) if name in ("requests", "wrong") else median(values)
    return result


def print_table(results: dict[str, Any]) -> None:
    print(
        f"{'load':12} {'server':20} {'texts/s':>9} {'p50 ms':>8} {'p99 ms':>8} {'CPU ms':>7} {'wrong':>6} "
        f"{'health p99':>11}"
    )
    for load, servers in results["loads"].items():
        for name, row in servers.items():
            print(
                f"{load:12} {name:20} {row['texts_per_second']:9.1f} {row['p50_ms']:8.1f} {row['p99_ms']:8.1f} "
                f"{row['cpu_ms_per_text']:7.2f} {row['wrong']:6} {row['health_p99_ms']:11.1f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--file", type=Path, default=HERE.parent / "data" / "everyday.fr.txt", help="sentences, one a line"
    )
    parser.add_argument("--load", choices=[*LOADS], default="clients-32")
    parser.add_argument(
        "--servers",
        nargs="+",
        default=["regard", "regard-int8", "libretranslate", "ctranslate2", "ctranslate2-batched"],
    )
    parser.add_argument("--libretranslate", help="Python of an environment with libretranslate")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "regard-serve", help="for exports")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a round")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds")
    parser.add_argument("--prepare", action="store_true", help="only export models and compute the expected answers")
    parser.add_argument("--out", type=Path, help="JSON file to which the results are added")
    parser.add_argument("--table", action="store_true", help="only print the table of --out")
    options = parser.parse_args()
    results: dict[str, Any] = {"loads": {}, "start_seconds": {}}
    if options.out is not None and options.out.exists():
        results = json.loads(options.out.read_text())
    if not options.table:
        options.folder.mkdir(exist_ok=True)
        sentences = [line.strip() for line in options.file.read_text(encoding="utf-8").splitlines() if line.strip()]
        servers = []
        try:
            servers += start_servers(options.servers, options.folder, options.libretranslate)
            results["loads"][options.load] = measure(servers, options.load, sentences, options)
            results["start_seconds"] |= {server.name: round(server.ready_seconds, 2) for server in servers}
        finally:
            for server in servers:
                server.stop()
        results |= {"date": date.today().isoformat(), "hardware": hardware("cpu"), "command": command()}
        results |= {"beam": BEAM, "threads": THREADS, "load_average": os.getloadavg()[0]}
    if options.prepare:
        return
    print_table(results)
    print(json.dumps(results))
    if options.out is not None and not options.table:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
