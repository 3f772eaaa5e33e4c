"""Trainings in processes of their own, and what is compared of the folders that they leave."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PATIENCE = 50.0  # seconds; a watchdog, five times what is promised
TIMES = {"seconds", "tokens_per_second", "waited", "waiting_for_data"}  # what differs between equal runs

WORDS = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze", "douze"]
RECIPE = """
name = "small"
[data]
source = ["a.fr"]
target = ["a.en"]
validation = 8
[tokenizer]
kind = "unigram"
size = 310
shared = true
sampling = 0.3
[model]
kind = "transformer"
layers = 1
dim = 16
heads = 2
hidden = 32
dropout = 0.1
[training]
steps = 12
batch_tokens = 200
lr = 1e-3
warmup = 2
schedule = "cosine"
validate_every = 4
save_every = 3
log_every = 2
device = "cpu"
precision = "fp32"
[decoding]
sentences = 0
"""


def write_recipe(folder: Path, *, pairs: int = 80, changes: dict[str, str] | None = None) -> Path:
    """A recipe for a model of a few thousand parameters, dropout and subword sampling on, and its data."""
    draw = random.Random(0)
    sentences: dict[tuple[str, ...], None] = {}  # each once
    while len(sentences) < pairs:
        sentences[tuple(draw.choices(WORDS, k=draw.randint(2, 7)))] = None
    folder.mkdir(exist_ok=True)
    (folder / "a.fr").write_text("".join(" ".join(words) + "\n" for words in sentences))
    (folder / "a.en").write_text("".join(" ".join(words[::-1]).upper() + "\n" for words in sentences))
    text = RECIPE
    for old, new in (changes or {}).items():
        assert old in text
        text = text.replace(old, new)
    path = folder / "small.toml"
    path.write_text(text)
    return path


class Child:
    """One training process, or the launcher of several."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = int(wait_for(folder / "pid").read_text())

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(self.pid, number)

    def wait(self, seconds: float = PATIENCE) -> int:
        """The exit code; negative when a signal ended it."""
        return int(wait_for(self.folder / "code", seconds, self).read_text())

    @property
    def ended(self) -> bool:
        return (self.folder / "code").exists()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()


class Team:
    """The processes of one training; mostly just one."""

    def __init__(self, children: list[Child]) -> None:
        self.children = children

    def send(self, number: int) -> None:
        for child in self.children:
            child.send(number)

    def wait(self) -> list[int]:
        return [child.wait() for child in self.children]

    @property
    def pid(self) -> int:
        return self.children[0].pid

    @property
    def err(self) -> str:
        return "".join(child.err for child in self.children)


def wait_for(path: Path, seconds: float = PATIENCE, child: Child | None = None) -> Path:
    """Wait until a file is there; `child` is the process that it is wanted from."""
    end = time.monotonic() + seconds
    while not path.exists():
        if child is not None and child.ended and not path.exists():
            raise AssertionError(f"{path.name} is not there, and its process has ended; it said:\n{child.err}")
        if time.monotonic() > end:
            told = f"; it said:\n{child.err}" if child else ""
            raise AssertionError(f"{path.name} is not there after {seconds} s{told}")
        time.sleep(0.005)
    return path


class Nursery:
    """Makes teams of processes; see nursery.py."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.numbers = folder, itertools.count()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        paths = [str(HERE / "inside"), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "nursery.py")],
            stdin=subprocess.PIPE,
            text=True,
            env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )
        self.ask({"folder": str(self.folder)})
        while not (self.folder / "ready").exists():
            assert self.process.poll() is None, "the nursery could not start; what it said is on stderr"
            time.sleep(0.05)

    def ask(self, request: dict[str, Any]) -> None:
        assert self.process.poll() is None, "the nursery has died; what it said is on stderr"
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def train(
        self,
        recipe: Path,
        out: Path,
        *options: str,
        processes: int = 1,
        faults: tuple[dict[str, Any], ...] = (),
        user: int = 0,
    ) -> Team:
        """Start `regard train RECIPE --out OUT …` in so many processes, as a launcher would; faults as in inject.py."""
        variables = {"FAULTS": json.dumps(faults), "FAULTS_FOLDER": str(out)} if faults else {}
        meeting = self.folder / f"meeting-{next(self.numbers)}"
        children = []
        for rank in range(processes):
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
            ranks["REGARD_MEETING"] = str(meeting)
            folder = self.folder / str(next(self.numbers))
            folder.mkdir(parents=True)
            request = {
                "folder": str(folder),
                "arguments": ["train", str(recipe), "--out", str(out), *options],
                "environment": {**variables, **(ranks if processes > 1 else {})},
                "user": user,
            }
            self.ask(request)
            children.append(Child(folder))
        return Team(children)

    def close(self) -> None:
        """End the nursery; what it has started does not outlive it."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(PATIENCE)


def code(team: Team, wanted: int) -> str:
    """What the processes said, once it is sure that all ended with that code."""
    found = team.wait()
    assert set(found) == {wanted}, f"ended with {found}, not {wanted}:\n{team.err}"
    return team.err


def first_code(team: Team, wanted: int) -> str:
    """The same for a fault that only the first process can see: the others end because it is gone."""
    found = team.wait()
    assert found[0] == wanted, f"ended with {found}, not {wanted}:\n{team.err}"
    assert 0 not in found
    return team.children[0].err


def whole_checkpoints(run: Path) -> list[int]:
    """The steps of the checkpoints whose every file is as its manifest says; not with regard's own reader."""
    found = []
    for place in (run / "training").glob("step-*"):
        with contextlib.suppress(OSError, ValueError, AssertionError):
            files = json.loads((place / "manifest.json").read_bytes())["files"]
            for name, told in files.items():
                content = (place / name).read_bytes()
                assert len(content) == told["size"]
                assert hashlib.sha256(content).hexdigest() == told["sha256"]
            found.append(int(place.name.removeprefix("step-")))
    return sorted(found)


def contents(run: Path) -> dict[str, Any]:
    """All that must be the same in two equal runs: weights, optimizer, generators, numbers, but no times."""
    found: dict[str, Any] = {}
    newest = run / "training" / (run / "training" / "latest").read_text().strip()
    for path in [*sorted(newest.iterdir()), run / "model.safetensors"]:
        if path.suffix == ".safetensors":
            found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.name == "state.json":
            found[path.name] = without_times(json.loads(path.read_bytes()))
    found["step"] = newest.name
    found["metrics"] = metrics(run)
    return found


def metrics(run: Path) -> list[dict[str, Any]]:
    return [without_times(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items() if key not in TIMES}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def leftovers(run: Path) -> list[str]:
    """What a training that has ended should have cleaned up, in its folder and beside it."""
    names = [str(path.relative_to(run.parent)) for path in run.parent.rglob("*")]
    return sorted(name for name in names if "writing" in name or "store" in name)


def tensors(run: Path, step: int, name: str = "weights") -> dict[str, Any]:
    """The tensors of a checkpoint."""
    from safetensors.torch import load_file

    return load_file(run / "training" / f"step-{step:08d}" / f"{name}.safetensors")


def largest_difference(a: dict[str, Any], b: dict[str, Any]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in a)


def trained_on(file: Path) -> dict[int, list[list[int]]]:
    """By step, the ids of each global batch that was trained on: one for all the shares and parts of it."""
    steps: dict[int, list[list[int]]] = {}
    for line in file.read_text().splitlines():
        step, _, _, whole = json.loads(line)
        batches = steps.setdefault(step, [])
        if whole not in batches:
            batches.append(whole)
    return dict(sorted(steps.items()))


def held(where: str, at: int, folder: Path, rank: int = 0, processes: int = 1) -> tuple[dict[str, Any], ...]:
    """Faults that hold a process in some place, until folder/go is there; folder/batches says what was trained on."""
    hold = {"kind": "hold", "where": where, "at": at, "folder": str(folder)}
    return (
        {"kind": "note batches", "file": str(folder / "batches")},
        hold | {"rank": rank} if processes > 1 else hold,
    )


def wait_for_step(file: Path, step: int) -> None:
    """Wait until a process has begun that step."""
    end = time.monotonic() + PATIENCE
    while not (file.exists() and step in trained_on(file)):
        assert time.monotonic() < end, f"step {step} did not come"
        time.sleep(0.01)


def below(pid: int) -> list[int]:
    """The processes that a process started, and theirs."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found = parents.get(pid, [])
    return [*found, *(deeper for child in found for deeper in below(child))]
