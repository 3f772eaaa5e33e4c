"""Model folders, and run folders, spoilt in thousands of ways, each loaded and used in a child process.

    python tests/faults/fuzz/fuzzing.py 10000         all of them, and a summary; exit 1 if one ended badly
    python tests/faults/fuzz/fuzzing.py --only 4711   that one alone, left in the folder fuzz-4711
    python tests/faults/fuzz/fuzzing.py 300 --runs    trainings that stopped, and are gone on with

A folder is a stranger's: its manifest is signed anew after each change, so that no checksum catches it. What may
happen: a ModelError that names the folder, or a model that works or refuses the text with a RegardError. What may not:
another exception, the end of the process, much memory, or no end at all. A training may go on, or end in a RegardError.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "helpers"))  # for harness.py

from model_cases import Files, make_case, make_folders
from run_cases import go_on, make_run, make_run_case

MOST_MEMORY = 200 * 2**20  # bytes of a child above what it had before its first case
GUARD = 4 * 2**30  # bytes of address space above that: what asks for more is refused by the system, and seen
MOST_SECONDS = 60  # of one case; a watchdog, nothing is measured by it
CHUNK = 1000  # cases of one child process
TEXTS = ["le chat dort", "pas"]


# The child: a fork of the parent that gets the name of a folder, and answers how it went.


def answer_requests(connection: Connection, parents: Connection, warm: Path, log: Path, runs: bool) -> None:
    import torch

    parents.close()  # so that this process ends with its parent
    with open(log, "wb") as errors:
        os.dup2(errors.fileno(), sys.stderr.fileno())
    faulthandler.enable()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for folder in [warm / "again"] if runs else sorted(warm.iterdir()):
        outcome = try_run(folder, warm) if runs else try_folder(folder, look=True)
        assert outcome == "worked", f"{folder.name}: {outcome}"  # what the first use loads once counts for no case
    base = peak_memory()
    if sys.platform == "linux":
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + GUARD, size + GUARD))
    send(connection, "ready")
    while request := receive(connection):
        failure, began = "", time.perf_counter()
        try:
            folder = Path(request["folder"])
            outcome = try_run(folder, warm) if runs else try_folder(folder, look=request["look"])
        except BaseException as error:
            outcome, failure = type(error).__name__, traceback.format_exc()
        seconds, above = time.perf_counter() - began, peak_memory() - base
        send(connection, {"outcome": outcome, "failure": failure, "seconds": seconds, "above": above})


def send(connection: Connection, message: Any) -> None:
    connection.send_bytes(json.dumps(message).encode())


def receive(connection: Connection) -> Any:
    """The next message; None when the other side is gone."""
    try:
        return json.loads(connection.recv_bytes())
    except (EOFError, ConnectionResetError):
        return None


def try_folder(folder: Path, *, look: bool) -> str:
    """Load a folder and use the model; how it went. Everything but a RegardError goes on to the caller."""
    from regard.api.embedder import Embedder
    from regard.api.writer import Writer
    from regard.cli.model_folders.info import describe, lines_of
    from regard.errors import ModelError, RegardError
    from regard.tasks.loading import load

    try:
        if look:
            json.dumps(found := describe(str(folder)), ensure_ascii=False).encode()
            assert all(value.isprintable() for _, value in lines_of(found))
        model = load(folder, device="cpu")
    except ModelError as error:
        check_message(str(error), str(folder))
        return "refused"
    try:
        if isinstance(model, Embedder):
            model.embed(TEXTS)
        elif isinstance(model, Writer):
            model.write(TEXTS[0], max_tokens=30).encode()
            model.score(TEXTS[0])
        else:
            for result in model.translate(TEXTS):
                result.text.encode()
                if result.ids and result.attention.cross is not None:
                    result.alignment()
    except RegardError as error:
        check_message(str(error), "")
        return "refused the text"
    return "worked"


def try_run(folder: Path, warm: Path) -> str:
    """Go on with a training; how it went."""
    from regard.errors import RegardError

    try:
        go_on(folder, warm / "small.toml")
    except RegardError as error:
        check_message(str(error), "")
        return "refused"
    return "worked"


def check_message(message: str, folder: str) -> None:
    """A message names the folder, is short, and holds nothing that a terminal would obey or could not print."""
    message.encode()
    assert folder in message, message[:1000]
    assert len(message) < 1000 and all(letter.isprintable() for letter in message), ascii(message[:1000])


def peak_memory() -> int:
    """The most memory that this process has had, in bytes; Linux counts the parent's in `ru_maxrss`."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# The parent: it spoils the folders, and sees what becomes of the child.


class Child:
    """A process that loads folders, and what it leaves when it dies."""

    def __init__(self, warm: Path, log: Path, *, runs: bool) -> None:
        self.log = log
        fork = multiprocessing.get_context("fork")  # PyTorch and regard are imported already
        self.connection, theirs = fork.Pipe()
        self.process = fork.Process(target=answer_requests, args=(theirs, self.connection, warm, log, runs))
        self.process.start()
        theirs.close()
        if self.receive() != "ready":
            raise RuntimeError(f"the child does not start: {self.last_words()}")

    def ask(self, folder: Path, *, look: bool) -> dict[str, Any] | None:
        """The answer; None when the child died or did not answer, and then it is gone."""
        send(self.connection, {"folder": str(folder), "look": look})
        return self.receive()

    def receive(self) -> Any:
        answer = receive(self.connection) if self.connection.poll(MOST_SECONDS) else None
        if answer is None:
            self.process.kill()
            self.process.join()
        return answer

    def last_words(self) -> str:
        return f"exit {self.process.exitcode}: {self.log.read_text(errors='replace')[-1500:]}"

    def close(self) -> None:
        self.connection.close()
        self.process.join()


def write_folder(folder: Path, files: Files, dice: random.Random | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    if dice is not None and dice.random() < 0.02:  # what a checksum of the content does not tell
        name = dice.choice(list(files))
        (folder / name).unlink()
        match dice.randrange(3):
            case 0:
                (folder / name).mkdir()
            case 1:
                (folder / name).symlink_to("/etc/hostname")
            case 2:
                os.mkfifo(folder / name)


@dataclass
class Tally:
    """What became of the cases."""

    seed: int
    tried: int = 0
    bad: int = 0
    most: tuple[int, int] = (0, 0)  # bytes above the beginning, and the case
    slowest: tuple[float, int] = (0.0, 0)
    outcomes: Counter[str] = field(default_factory=Counter)
    by_change: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def count(self, number: int, told: str, answer: dict[str, Any]) -> None:
        self.tried += 1
        self.most = max(self.most, (answer["above"], number))
        self.slowest = max(self.slowest, (answer["seconds"], number))
        self.outcomes[answer["outcome"]] += 1
        for change in set(told.split()):  # kind of model and what was done
            self.by_change[change][answer["outcome"]] += 1
        if answer["failure"]:
            self.bad += 1
            print(f"case {number} of seed {self.seed}, {told}: {answer['outcome']}\n{answer['failure'][-2500:]}")

    def summary(self, seconds: float) -> str:
        changes = (f"  {change}: {told(counts)}\n" for change, counts in sorted(self.by_change.items()))
        return (
            f"{''.join(changes)}{self.tried} folders of seed {self.seed} in {seconds:.0f} s: {self.bad} ended badly\n"
            f"outcomes: {told(self.outcomes)}\n"
            f"peak memory: {self.most[0] / 2**20:.1f} MiB above the beginning (case {self.most[1]})\n"
            f"slowest: {self.slowest[0]:.2f} s (case {self.slowest[1]})"
        )


def told(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.most_common())


def fuzz(numbers: Iterable[int], *, seed: int, runs: bool, work: Path, place: Path) -> Tally:
    """Try all cases; `place` is where each one's folder is made."""
    warm = work / "whole"
    if runs:
        make_run(warm)
        shutil.copytree(warm / "run", warm / "again")
    else:
        make_folders(warm)
    tally, child = Tally(seed), None
    for number in numbers:
        told, files, dice = make_run_case(warm, number, seed) if runs else make_case(warm, number, seed)
        write_folder(place, files, None if runs else dice)
        if child is not None and tally.tried % CHUNK == 0:
            child = child.close()
        if child is None:
            child = Child(warm, work / "log", runs=runs)
        answer = child.ask(place, look=dice.random() < 0.3)
        if answer is None:
            answer = {"outcome": "died or hung", "failure": child.last_words(), "seconds": 0.0, "above": 0}
            child = None
        elif answer["above"] > MOST_MEMORY:
            answer["failure"] = answer["failure"] or f"took {answer['above'] / 2**20:.0f} MiB"
            child = child.close()
        tally.count(number, told, answer)
    if child is not None:
        child.close()
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--runs", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="this case alone")
    options = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")  # a failure may quote what cannot be printed
    numbers = range(options.count) if options.only is None else [options.only]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        place = Path(work) / "case" if options.only is None else Path(f"fuzz-{options.only}").absolute()
        tally = fuzz(numbers, seed=options.seed, runs=options.runs, work=Path(work), place=place)
    print(tally.summary(time.monotonic() - began))
    sys.exit(1 if tally.bad or not tally.tried else 0)


if __name__ == "__main__":
    main()
